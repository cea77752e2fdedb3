/** Tests that a backup makes another machine the peer that was lost, and that a store from yesterday repeats nothing. */
import { cp, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonLinesOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
let other: Machine
const SECRET = { SEALPOST_PASSPHRASE: 'correct horse battery staple' }

beforeAll(async () => {
  machine = await Machine.withBroker('bob')
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

test('a restored identity opens waiting mail, keeps its sessions and groups, and begins new streams', async () => {
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

  await ok(machine, ['send', 'bob', 'to the member'])
  await ok(machine, ['send', 'bob/api', 'to the session'])
  await ok(machine, ['group', 'send', 'ops', 'to the group'])
  const restored = jsonOf(await ok(other, bob('key', 'restore', file), SECRET))
  expect(restored).toMatchObject({ key: made.key, profile: 'bob', name: 'bob', sessions: ['api'] })
  const heard = await texts(other, bob('listen', '--as', 'api', '--count', '3'))
  expect(heard.toSorted()).toEqual(['to the group', 'to the member', 'to the session'])

  await ok(other, bob('send', 'alice', 'from the other machine'))
  await ok(other, bob('group', 'send', 'ops', 'to the group from the other machine'))
  expect(await texts(machine, ['listen', '--count', '2'])).toEqual([
    'from the other machine',
    'to the group from the other machine',
  ])
})

test('a profile folder from yesterday begins new streams too, and nothing arrives twice', async () => {
  await using yesterday = await Machine.make()
  await mkdir(join(yesterday.folder, 'profiles'))
  await cp(join(machine.folder, 'yesterday'), join(yesterday.folder, 'profiles/bob'), { recursive: true })
  await ok(yesterday, bob('send', 'alice', 'from yesterday'))
  await ok(machine, ['send', 'alice', 'the last one'])
  expect(await texts(machine, ['listen', '--count', '2'])).toEqual(['from yesterday', 'the last one'])
})

test('an identity restored from a backup that predates a rotation reports it, and rotates again', async () => {
  const file = join(machine.folder, 'bob.sealpost')
  await ok(other, bob('key', 'rotate'))
  await ok(machine, ['send', 'bob', 'to the second key'])
  await using outdated = await Machine.make()
  await ok(outdated, bob('key', 'restore', file), SECRET)
  const listener = outdated.start(bob('listen', '--as', 'api'))
  await listener.until('it reports the missing key', ({ stderr }) => stderr.includes('lacks its box key number 2'))
  await listener.interrupt()
  expect(jsonOf(await ok(outdated, bob('key', 'rotate')))).toEqual({ boxEpoch: 3 })
  await ok(machine, ['send', 'bob', 'to the third key'])
})
