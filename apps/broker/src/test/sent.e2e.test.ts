/** Tests what a sender learns of its messages: the broker's receipts, and the recipient's signed confirmations. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '@sealpost/sdk'
import { confirmationsOf } from '@sealpost/sdk/confirmations'
import { openFileStore } from '@sealpost/sdk/file-store'
import { sentLogOf } from '@sealpost/sdk/sent'
import { test as base, expect } from 'vitest'
import { codeOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import type { World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent
const BRISK = { SWEEP_MS: '50', POLL_MS: '100' }

/** Opens a sender with a log, and a recipient that confirms. */
async function openPair(world: World) {
  const [alice, bob] = [await Member.open(world), await Member.open(world)]
  return { alice, bob, sent: sentLogOf(alice.peer), confirmations: confirmationsOf(bob.peer) }
}

test('a sender waits for each state, and the recipient signs the last one', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, sent } = await openPair(world)
  const to = bob.peer.key
  const stored = await sent.send(to, 'one')
  expect(stored).toMatchObject({ to, state: 'stored', isSigned: false, bodyBytes: 3 })
  const held: Message[] = []
  bob.peer.onMessage((message) => {
    held.push(message)
    return message.text() === 'two' ? new Promise(() => undefined) : undefined
  })
  expect(await sent.send(to, 'two', { wait: 'pushed' })).toMatchObject({ state: 'pushed' })
  expect(await sent.send(to, 'three', { wait: 'settled' })).toMatchObject({ state: 'settled', isSigned: false })
  const confirmed = await sent.send(to, 'four', { wait: 'confirmed' })
  expect(confirmed).toMatchObject({ state: 'confirmed', isSigned: true, signer: to })
  expect(sent.list().map(({ state }) => state)).toEqual(['confirmed', 'settled', 'pushed', 'stored'])
  expect(held.map((message) => message.text())).toEqual(['one', 'two', 'three', 'four'])
  expect(alice.received).toEqual([]) // the application sees no confirmation
  await until('the confirmation is settled', async () => (await world.count('message_queue')) === 1) // the second message
})
