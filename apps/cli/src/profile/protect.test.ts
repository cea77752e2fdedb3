import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { failureOf, jsonOf, runHere } from '../test/cli.ts'
import { Profile } from './profile.ts'

let folder: string
let profile: Profile
const sessionFile = () => join(profile.folder, 'sessions/desk/key.json')

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-protect-'))
  profile = new Profile({ home: folder }, 'ada')
  await profile.makeKeys()
  await mkdir(join(profile.folder, 'sessions/desk'), { recursive: true })
  await cp(profile.keyFile, sessionFile())
})
afterAll(() => rm(folder, { recursive: true }))

async function run(words: readonly string[], passphrase?: string) {
  const env = { SEALPOST_HOME: folder, SEALPOST_PASSPHRASE: passphrase }
  const { code, out, err } = await runHere([...words, '--json', '--profile', 'ada'], env)
  return { code, stdout: out, stderr: err }
}

const versions = async () =>
  Promise.all([profile.keyFile, sessionFile()].map(async (path) => JSON.parse(await readFile(path, 'utf8')).version))

test('keys are encrypted, get another passphrase, and are decrypted, with those of the sessions', async () => {
  const plain = await readFile(sessionFile(), 'utf8')
  expect(jsonOf(await run(['key', 'protect'], 'first'))).toEqual({ profile: 'ada', protection: 'passphrase' })
  expect(await versions()).toEqual([2, 2])

  await writeFile(sessionFile(), plain) // as after a crash between the two files
  const next = join(folder, 'next')
  await writeFile(next, 'second\n')
  expect((await run(['key', 'protect', '--new-passphrase-file', next], 'first')).code).toBe(0)
  expect(await versions()).toEqual([2, 2])
  expect(failureOf(await run(['key', 'fingerprint'], 'first'))).toEqual([4, 'passphrase_wrong'])

  expect(jsonOf(await run(['key', 'unprotect'], 'second'))).toEqual({ profile: 'ada', protection: 'none' })
  expect(await versions()).toEqual([1, 1])
  expect(await readFile(sessionFile(), 'utf8')).toBe(plain)
})

test('a refused change leaves the keys as they are', async () => {
  const code = async (...words: string[]) => failureOf(await run(['key', ...words]))
  expect(await code('protect', '--new-passphrase-file', join(folder, 'none'))).toEqual([3, 'file_missing'])
  expect(await code('protect', '--keychain', '--new-passphrase-file', 'x')).toEqual([2, 'usage'])
  expect(await code('protect')).toEqual([4, 'key_file_locked'])
  expect(failureOf(await run(['key', 'protect'], ''))).toEqual([2, 'usage'])
  expect(await versions()).toEqual([1, 1])
})
