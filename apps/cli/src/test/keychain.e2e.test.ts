/** Tests keys whose passphrase is in the keychain of the operating system: GNOME Keyring, where it is installed. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, test as base, beforeAll, expect } from 'vitest'
import { failureOf, jsonOf, Machine } from './cli.ts'
import { missingKeychain, SecretService } from './secret-service.ts'

const isSkipped = missingKeychain !== null && process.env.CI !== 'true'
if (isSkipped) process.stdout.write(`the test of the keychain is skipped: ${missingKeychain}\n`)
const test = base.skipIf(isSkipped)

let keychain: SecretService
let machine: Machine
beforeAll(async () => {
  if (isSkipped) return
  keychain = await SecretService.start()
  machine = await Machine.withBroker()
})
afterAll(async () => {
  await machine?.[Symbol.asyncDispose]()
  await keychain?.[Symbol.asyncDispose]()
})

const run = (words: readonly string[], env = keychain.environment) =>
  machine.run([...words, '--json', '--quiet'], { env })
const keyFile = async (profile: string, path = 'key.json') =>
  JSON.parse(await readFile(join(machine.folder, 'profiles', profile, path), 'utf8'))

async function ok(words: readonly string[]) {
  const ended = await run(words)
  expect([ended.code, ended.stderr]).toEqual([0, ''])
  return ended
}

test('a member joins, sends and receives with keys that only the keychain opens', async () => {
  const { stdout: invite } = await machine.run(['invite', 'create', '--quiet'])
  await ok(['join', invite.trim(), '--name', 'bob', '--profile', 'bob', '--keychain'])
  const file = await keyFile('bob')
  expect(file).toMatchObject({ version: 2, keychain: expect.stringMatching(/^bob [0-9a-f]{16}$/) })
  expect(JSON.stringify(file)).not.toContain('signingSeed')
  await ok(['send', 'alice', 'from the keychain', '--profile', 'bob'])
  await machine.run(['send', 'bob', 'to the keychain'])
  const heard = jsonOf(await ok(['listen', '--as', 'desk', '--count', '1', '--profile', 'bob']))
  expect(heard.text).toBe('to the keychain')
  expect(await keyFile('bob', 'sessions/desk/key.json')).toMatchObject({ version: 2 })
  await ok(['key', 'rotate', '--profile', 'bob'])
  expect((await keyFile('bob')).keychain).toBe(file.keychain)

  expect(failureOf(await run(['send', 'alice', 'x', '--profile', 'bob'], {}))).toEqual([7, 'keychain_unavailable'])
})

test('keys are put into the keychain, given a passphrase, and decrypted again, with those of the sessions', async () => {
  const { stdout: invite } = await machine.run(['invite', 'create', '--quiet'])
  await ok(['join', invite.trim(), '--name', 'carol', '--profile', 'carol'])
  const { fingerprint } = jsonOf(await ok(['key', 'fingerprint', '--profile', 'carol']))
  const session = machine.start(['listen', '--as', 'desk', '--profile', 'carol'])
  await session.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const whileUsed = await run(['key', 'protect', '--keychain', '--profile', 'carol'])
  expect(failureOf(whileUsed)).toEqual([5, 'profile_in_use'])
  await session.interrupt()

  const files = async () => [await keyFile('carol'), await keyFile('carol', 'sessions/desk/key.json')]
  const versions = async () => (await files()).map(({ version }) => version)
  const isOpen = async (env = keychain.environment) =>
    jsonOf(await run(['key', 'fingerprint', '--profile', 'carol'], env)).fingerprint === fingerprint
  expect(await versions()).toEqual([1, 1])
  const kept = jsonOf(await ok(['key', 'protect', '--keychain', '--profile', 'carol']))
  expect(kept).toEqual({ profile: 'carol', protection: 'keychain' })
  expect([await versions(), await isOpen()]).toEqual([[2, 2], true])

  const [former] = await files()
  const secret = { ...keychain.environment, SEALPOST_PASSPHRASE: 'chosen' }
  expect(jsonOf(await run(['key', 'protect', '--profile', 'carol'], secret)).protection).toBe('passphrase')
  expect([await versions(), await isOpen({ SEALPOST_PASSPHRASE: 'chosen' })]).toEqual([[2, 2], true])
  const path = join(machine.folder, 'profiles/carol/key.json')
  const current = await readFile(path, 'utf8')
  await writeFile(path, JSON.stringify(former)) // a copy of the file from before, whose entry is gone
  const gone = await run(['key', 'fingerprint', '--profile', 'carol'])
  expect(failureOf(gone)).toEqual([4, 'keychain_entry_missing'])
  await writeFile(path, current)

  const backup = join(machine.folder, 'carol.sealpost')
  expect((await run(['key', 'backup', backup, '--profile', 'carol'], secret)).code).toBe(0)
  expect((await run(['key', 'restore', backup, '--keychain', '--profile', 'again'], secret)).code).toBe(0)
  expect((await keyFile('again')).keychain).toMatch(/^again /)
  expect(jsonOf(await ok(['key', 'fingerprint', '--profile', 'again'])).fingerprint).toBe(fingerprint)

  expect(jsonOf(await run(['key', 'unprotect', '--profile', 'carol'], secret)).protection).toBe('none')
  expect([await versions(), await isOpen({})]).toEqual([[1, 1], true])
})

test('without a keychain, no keys are generated', async () => {
  const refused = await run(['keygen', '--keychain', '--profile', 'dave'], {})
  expect(failureOf(refused)).toEqual([7, 'keychain_unavailable'])
  expect(await Bun.file(join(machine.folder, 'profiles/dave/key.json')).exists()).toBe(false)
  const both = await run(['keygen', '--keychain', '--passphrase', '--profile', 'dave'])
  expect(failureOf(both)).toEqual([2, 'usage'])
})
