/** Tests that a backup makes another machine the peer that was lost, and what a restore costs in forward secrecy. */
import { cp, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { readKeyFile } from '@sealpost/identity/key-file'
import { connect } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonLinesOf, jsonOf, Machine, type Running } from './cli.ts'

let machine: Machine
let other: Machine
const SECRET = { SEALPOST_PASSPHRASE: 'correct horse battery staple' }
const REJECTED = /^Rejected an envelope that claims to be from/gm
const AGREED = /has agreed on new keys/g
const RESET = /differ: one of both was restored/g

beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'carol')
  other = await Machine.make()
})
afterAll(async () => {
  await other[Symbol.asyncDispose]()
  await machine[Symbol.asyncDispose]()
})

/** Runs a command that must succeed, and print no warning. */
async function ok(at: Machine, words: readonly string[], env: Record<string, string> = {}) {
  const ended = await at.run([...words, '--json', '--quiet'], { env })
  expect([ended.code, ended.stderr]).toEqual([0, ''])
  return ended
}

const bob = (...words: string[]) => [...words, '--profile', 'bob']
const texts = async (at: Machine, words: string[]) => jsonLinesOf(await ok(at, words)).map(({ text }) => text)
const sentByAlice = async () => jsonLinesOf(await ok(machine, ['sent']))

/** Waits until a command has written this many lines of a kind to its error output. */
const reported = (running: Running, line: RegExp, count: number) =>
  running.until(`it has reported ${line} ${count} times`, ({ stderr }) => [...stderr.matchAll(line)].length >= count)

/** Returns a command that has received this many reports of lost keys, and through which later commands send. */
async function learnOfReset(at: Machine, words: string[], line: RegExp, count: number) {
  const listener = at.start(words)
  await reported(listener, line, count)
  return listener
}

/** Sends with Carol's keys and without ratchets, like an earlier SDK. */
async function sendWithoutRatchets(to: PeerKey, text: string) {
  const folder = join(machine.folder, 'profiles/carol')
  const { contents } = await readKeyFile(join(folder, 'key.json'))
  if (contents.kind !== 'peer') throw new Error('a profile has the keys of a peer')
  const { url, brokerKey, meshId } = await Bun.file(join(folder, 'membership.json')).json()
  const peer = await connect({ url, brokerKey, meshId, identity: contents.identity })
  await peer.send(to, text)
  await peer.close()
}

test('a restored identity keeps its sessions and groups, opens mail without ratchets, and rejects the rest', async () => {
  await ok(machine, ['group', 'create', 'ops', 'bob'])
  await ok(machine, ['send', 'bob', 'first'])
  expect(await texts(machine, bob('listen', '--as', 'api', '--count', '1'))).toEqual(['first'])
  await ok(machine, bob('send', 'alice', 'before the backup'))
  await cp(join(machine.folder, 'profiles/bob'), join(machine.folder, 'yesterday'), { recursive: true })

  const file = join(machine.folder, 'bob.sealpost')
  const made = jsonOf(await ok(machine, bob('key', 'backup', file), SECRET))
  expect(made).toMatchObject({ name: 'bob', sessions: ['api'], file })
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  await ok(machine, bob('send', 'alice', 'after the backup'))
  const positions = await texts(machine, ['listen', '--count', '2'])
  expect(positions).toEqual(['before the backup', 'after the backup'])

  await ok(machine, ['send', 'bob', 'to the lost ratchet of the member'])
  await ok(machine, ['send', 'bob/api', 'to the lost ratchet of the session'])
  await ok(machine, ['group', 'send', 'ops', 'to the lost chain of the group'])
  await sendWithoutRatchets(made.key, 'without ratchets')
  const restored = jsonOf(await ok(other, bob('key', 'restore', file), SECRET))
  expect(restored).toMatchObject({ key: made.key, profile: 'bob', name: 'bob', sessions: ['api'] })
  const heard = other.start(bob('listen', '--as', 'api', '--count', '4', '--json', '--quiet'))
  await reported(heard, REJECTED, 3)
  await reported(heard, RESET, 2)
  const states = async () => (await sentByAlice()).slice(0, 3).map(({ state }) => state)
  await expect.poll(states).toEqual(['rejected', 'rejected', 'rejected'])
  const [rejected] = await sentByAlice()
  expect((await machine.run(['why', rejected.envelopeId])).stdout).toMatch(/^rejected .* lacks its key/)

  const alice = await learnOfReset(machine, ['listen'], AGREED, 2)
  await ok(machine, ['send', 'bob', 'to the member'])
  await ok(machine, ['send', 'bob/api', 'to the session'])
  await ok(machine, ['group', 'send', 'ops', 'to the group'])
  await alice.interrupt()
  const ended = await heard.ended()
  const opened = jsonLinesOf(ended).map(({ text }) => text)
  expect(ended.code).toBe(0)
  expect(opened.toSorted()).toEqual(['to the group', 'to the member', 'to the session', 'without ratchets'])
  expect(ended.stderr.match(REJECTED)).toHaveLength(3)

  await ok(other, bob('send', 'alice', 'from the other machine'))
  await ok(other, bob('group', 'send', 'ops', 'to the group from the other machine'))
  expect(await texts(machine, ['listen', '--count', '2'])).toEqual([
    'from the other machine',
    'to the group from the other machine',
  ])
})

test('the first message of a profile folder from yesterday is rejected, later ones arrive, and nothing arrives twice', async () => {
  await using yesterday = await Machine.make()
  await mkdir(join(yesterday.folder, 'profiles'))
  await cp(join(machine.folder, 'yesterday'), join(yesterday.folder, 'profiles/bob'), { recursive: true })
  await ok(yesterday, bob('send', 'alice', 'in a lost chain'))
  const heard = machine.start(['listen', '--count', '2', '--json', '--quiet'])
  await reported(heard, REJECTED, 1)
  const listener = await learnOfReset(yesterday, bob('listen'), new RegExp(`${RESET.source}|${AGREED.source}`, 'g'), 1)
  expect(jsonLinesOf(await ok(yesterday, bob('sent')))[0]).toMatchObject({ state: 'rejected' })
  await ok(yesterday, bob('send', 'alice', 'from yesterday'))
  await listener.interrupt()
  await ok(machine, ['send', 'alice', 'the last one'])
  const ended = await heard.ended()
  expect(ended.stderr).toContain('ratchet_reset')
  expect(jsonLinesOf(ended).map(({ text }) => text)).toEqual(['from yesterday', 'the last one'])
})

test('an identity restored from a backup that predates a rotation reports it, and rotates again', async () => {
  const file = join(machine.folder, 'bob.sealpost')
  await ok(other, bob('key', 'rotate'))
  await using outdated = await Machine.make()
  const { key } = jsonOf(await ok(outdated, bob('key', 'restore', file), SECRET))
  await sendWithoutRatchets(key, 'to the second key')
  const listener = outdated.start(bob('listen', '--as', 'api'))
  await listener.until('it reports the missing key', ({ stderr }) => stderr.includes('lacks its box key number 2'))
  await listener.interrupt()
  expect(jsonOf(await ok(outdated, bob('key', 'rotate')))).toEqual({ boxEpoch: 3 })
  await ok(machine, ['send', 'bob', 'to the third key'])
})
