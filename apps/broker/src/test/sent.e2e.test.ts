/** Tests what a sender learns of its messages: the broker's receipts, and the recipient's signed confirmations. */

import { generateIdentity, type Message } from '@sealpost/sdk'
import { confirmationsOf } from '@sealpost/sdk/confirmations'
import { joinAsDevice } from '@sealpost/sdk/join'
import { sentLogOf } from '@sealpost/sdk/sent'
import { usersOf } from '@sealpost/sdk/users'
import type { EnvelopeId } from '@sealpost/std'
import { test as base, expect } from 'vitest'
import { codeOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import type { World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent
const BRISK = { SWEEP_MS: '50', POLL_MS: '100', FAILED_ATTEMPTS_MAX: '2', FAILED_ATTEMPTS_SPAN_MS: '1' }

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

test('the broker reports where a message is to its sender only', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, sent } = await openPair(world)
  const eve = await Member.open(world)
  const waits = await sent.send(bob.peer.key, 'one', { ttlSeconds: 600 })
  const late = await sent.send(bob.peer.key, 'two', { notBefore: Date.now() + 60_000 })
  const ids = [waits.envelopeId!, late.envelopeId!, 'ab'.repeat(16) as EnvelopeId]
  await until('the first one is pushed', async () => (await sent.askBroker(ids))[0]!.status === 'pushed')
  const [first, second, third] = await sent.askBroker(ids)
  expect(first).toMatchObject({ recipient: bob.peer.key, failedAttempts: 0, failedAttemptsMax: 2 })
  expect(first!.presence).toMatchObject({ isOnline: true, availability: 'idle', offlineSinceMs: null })
  expect(first!.expiresAtMs! - first!.enqueuedAtMs!).toBeGreaterThan(500_000)
  expect(second).toMatchObject({ status: 'delayed', death: null })
  expect(third).toMatchObject({ status: 'unknown', recipient: null, presence: null })
  const asked = await sentLogOf(eve.peer).askBroker(ids)
  expect(asked.map(({ status }) => status)).toEqual(['unknown', 'unknown', 'unknown'])
  await bob.peer.close()
  await until('the recipient has left', async () => !(await sent.askBroker(ids))[0]!.presence!.isOnline)
  const [left] = await sent.askBroker(ids)
  expect(left!.presence!.offlineSinceMs).toBeGreaterThanOrEqual(left!.presence!.connectedAtMs! - 1000)
  expect(alice.all('closed')).toEqual([])
})

test('a sender learns how each message ended, and why', async () => {
  await using world = await shared(BRISK)
  const { bob, sent } = await openPair(world)
  const silent = await Member.open(world)
  await silent.peer.close()
  bob.peer.onMessage((message) => {
    if (message.text() === 'fails') throw new Error('a failing handler')
    if (message.text() === 'reject') message.reject('not for me')
  })
  const ends = await Promise.all([
    codeOf(sent.send(silent.peer.key, 'x', { wait: 'settled', ttlSeconds: 1 })),
    codeOf(sent.send(bob.peer.key, 'fails', { wait: 'settled' })),
    codeOf(sent.send(bob.peer.key, 'reject', { wait: 'confirmed' })),
  ])
  expect(ends).toEqual(['message_expired', 'message_struck_out', 'message_rejected'])
  const [ofRejected, ofFails, ofExpires] = sent.list()
  await until('the rejection is signed', () => sent.find(ofRejected!.envelopeId!)!.isSigned)
  expect(sent.find(ofRejected!.envelopeId!)).toMatchObject({ state: 'rejected', reason: 'not for me' })
  expect([ofFails!.state, ofExpires!.state]).toEqual(['struck_out', 'expired'])
  const where = await sent.askBroker([ofRejected, ofFails, ofExpires].map((message) => message!.envelopeId!))
  expect(where.map(({ status, death }) => `${status} ${death}`)).toEqual([
    'dead rejected',
    'dead strikes',
    'dead expired',
  ])
  await bob.peer.updateConsent({ policy: 'contacts' })
  expect(await codeOf(sent.send(bob.peer.key, 'x'))).toBe('not_allowed')
  expect(sent.list({ limit: 1 })).toMatchObject([{ state: 'refused', reason: 'not_allowed' }])
})

test('a message to a device is confirmed by the device, and listed with its user', async () => {
  await using world = await shared(BRISK)
  const { bob, sent } = await openPair(world)
  const identity = generateIdentity()
  const membership = await joinAsDevice({ invite: usersOf(bob.peer).inviteDevice('laptop'), identity })
  const laptop = await Member.enter(world, { ...membership, identity })
  confirmationsOf(laptop.peer)
  const confirmed = await sent.send(laptop.peer.key, 'x', { wait: 'confirmed' })
  expect(confirmed).toMatchObject({ user: bob.peer.key, deviceLabel: 'laptop', signer: laptop.peer.key })
  expect(sent.list({ to: bob.peer.key })).toEqual([confirmed])
})
