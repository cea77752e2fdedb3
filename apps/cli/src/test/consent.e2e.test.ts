/** Tests consent and key rotation as a user performs them at a terminal. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { failureOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

const alice = (...words: string[]) => machine.run(words)
const bob = (...words: string[]) => machine.run([...words, '--profile', 'bob'])

test('an unknown sender is refused under contacts, accepted once allowed, and refused once blocked', async () => {
  expect(jsonOf(await alice('consent', 'set', 'contacts', '--json'))).toEqual({
    ...{ policy: 'contacts', allowed: [], blocked: [] },
  })
  const refused = await bob('send', 'alice', 'hello', '--json')
  expect(failureOf(refused)).toEqual([4, 'not_allowed'])
  const allowed = await alice('consent', 'allow', 'bob')
  expect(allowed).toMatchObject({ code: 0, stdout: expect.stringMatching(/allowed +bob \([\w-]{9}\)\n/) })
  expect((await bob('send', 'alice', 'hello again')).code).toBe(0)
  expect((await alice('consent', 'block', 'bob')).stdout).toMatch(/allowed +nobody\nblocked +bob/)
  expect((await bob('send', 'alice', 'me again')).code).toBe(4)
  await alice('consent', 'forget', 'bob')
  expect((await alice('consent', 'set', 'open')).stdout).toContain('all peers except blocked ones (open)')
  expect((await bob('send', 'alice', 'at last')).code).toBe(0)
  expect(await alice('consent', 'allow', 'nobody-of-this-name')).toMatchObject({ code: 3 })
  expect(jsonOf(await alice('consent', 'show', '--json'))).toEqual({ policy: 'open', allowed: [], blocked: [] })
})

test('messages sealed before a rotation stay readable, whichever command holds the session', async () => {
  await bob('send', 'alice', 'to the first key')
  expect(jsonOf(await alice('key', 'rotate', '--json'))).toEqual({ boxEpoch: 2 })
  const listener = machine.start(['listen', '--json'])
  const texts = () => listener.lines.map((line) => (JSON.parse(line) as { text: string }).text)
  await listener.until('the mail from before is opened', () => texts().includes('to the first key'))
  expect(jsonOf(await alice('key', 'rotate', '--json'))).toEqual({ boxEpoch: 3 })
  await bob('send', 'alice', 'to the third key')
  await listener.until('the mail of now is opened', () => texts().includes('to the third key'))
  await listener.interrupt()
  const file = JSON.parse(await readFile(join(machine.folder, 'profiles/default/key.json'), 'utf8'))
  expect(file.boxKeys.map(({ epoch }: { epoch: number }) => epoch)).toEqual([3, 2, 1])
  const bobHears = machine.start(['listen', '--json', '--profile', 'bob'])
  await alice('send', 'bob', 'from the third key')
  await bobHears.until('it is opened', ({ stdout }) => stdout.includes('from the third key'))
  await bobHears.interrupt()
})

test('both peers see the same fingerprint', async () => {
  const own = jsonOf(await alice('key', 'fingerprint', '--json'))
  expect(own.fingerprint).toMatch(/^([0-9A-Z]{4}-){7}[0-9A-Z]{4}$/)
  expect(jsonOf(await bob('key', 'fingerprint', 'alice', '--json'))).toEqual({ ...own, name: 'alice' })
  expect((await bob('peers')).stdout).toContain(own.fingerprint)
})

test('a profile with locked keys joins, sends and rotates with its passphrase, and does nothing without it', async () => {
  const env = { SEALPOST_PASSPHRASE: 'correct horse' }
  const carol = (words: string[], environment: Record<string, string> = env) =>
    machine.run([...words, '--profile', 'carol'], { env: environment })
  expect((await carol(['keygen', '--passphrase'])).code).toBe(0)
  const invite = (await alice('invite', 'create', '--quiet')).stdout.trim()
  expect(await carol(['join', invite, '--name', 'carol'], {})).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('SEALPOST_PASSPHRASE'),
  })
  expect((await carol(['join', invite, '--name', 'carol'])).code).toBe(0)
  expect((await carol(['send', 'bob', 'hello'])).code).toBe(0)
  expect((await carol(['key', 'rotate'])).code).toBe(0)
  const wrong = await carol(['send', 'bob', 'hello', '--json'], { SEALPOST_PASSPHRASE: 'wrong horse' })
  expect([wrong.code, JSON.parse(wrong.stderr)]).toMatchObject([4, { error: { code: 'passphrase_wrong' } }])
  const file = await readFile(join(machine.folder, 'profiles/carol/key.json'), 'utf8')
  expect(JSON.parse(file)).toMatchObject({ version: 2, lock: { kdf: 'argon2id' } })
  expect((await carol(['send', 'bob', 'still here'])).code).toBe(0)
})
