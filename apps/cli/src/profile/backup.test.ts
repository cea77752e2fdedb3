import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readKeyFile, replaceKeyFile } from '@sealpost/identity/key-file'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { failureOf, jsonOf, runHere } from '../test/cli.ts'
import { gatherBackup, openBackup, readBackup, sealBackup } from './backup.ts'
import { Passphrase } from './passphrase.ts'
import { Profile } from './profile.ts'

const CHEAP = { memoryKib: 8, passes: 1 }
const SECRET = 'correct horse'
let folder: string
let file: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-backup-'))
  file = join(folder, 'ada.sealpost')
  await new Profile({ home: folder }, 'ada').makeKeys()
  await writeFile(file, await sealBackup(await gatherBackup(new Profile({ home: folder }, 'ada')), SECRET, CHEAP))
})
afterAll(() => rm(folder, { recursive: true }))

async function run(words: readonly string[], passphrase: string | undefined = SECRET) {
  const { code, out, err } = await runHere([...words, '--json'], {
    SEALPOST_HOME: folder,
    SEALPOST_PASSPHRASE: passphrase,
  })
  return { code, stdout: out, stderr: err }
}

const fingerprintOf = async (profile: string) =>
  jsonOf(await run(['key', 'fingerprint', '--profile', profile])).fingerprint

test('a restored profile has the key of the backup, and its folder contains only its files', async () => {
  const restored = jsonOf(await run(['key', 'restore', file, '--profile', 'again']))
  expect(restored).toMatchObject({ profile: 'again', name: null, sessions: [] })
  expect(restored.fingerprint).toBe(await fingerprintOf('ada'))
  expect(await fingerprintOf('again')).toBe(restored.fingerprint)
  expect(await readdir(join(folder, 'again'))).toEqual(['key.json'])
})

test('encrypted keys are restored with the passphrase of the backup', async () => {
  const locked = new Profile({ home: folder }, 'locked', new Passphrase({ fromEnvironment: 'of the keys' }))
  await locked.makeKeys()
  const { contents } = await readKeyFile(locked.keyFile)
  await replaceKeyFile(locked.keyFile, contents, { passphrase: 'of the keys', cost: CHEAP })
  await writeFile(`${file}.locked`, await sealBackup(await gatherBackup(locked), SECRET, CHEAP))
  expect((await run(['key', 'restore', `${file}.locked`, '--profile', 'unlocked'])).code).toBe(0)
  expect(JSON.parse(await readFile(join(folder, 'unlocked/key.json'), 'utf8'))).toMatchObject({ version: 2 })
  expect(await fingerprintOf('unlocked')).toMatch(/^(\w{4}-){7}\w{4}$/)
})

test('the file states its version and the cost of a guess, and contains no key', async () => {
  const made = join(folder, 'made.sealpost')
  expect((await run(['key', 'backup', made, '--profile', 'ada'])).code).toBe(0)
  const text = await readFile(made, 'utf8')
  expect(JSON.parse(text)).toMatchObject({
    ...{ format: 'sealpost-backup', version: 1 },
    lock: { kdf: 'argon2id', memoryKib: 65_536, passes: 3, cipher: 'xchacha20poly1305' },
  })
  const key = JSON.parse(await readFile(join(folder, 'ada/key.json'), 'utf8'))
  expect(text).not.toContain(key.publicKey)
  const opened = await openBackup(await readBackup(text, made), SECRET, made)
  expect(JSON.parse(opened.texts['key.json']!)).toMatchObject({ signingSeed: key.signingSeed })
})

test('a backup overwrites no file, and a restore overwrites no profile', async () => {
  const before = await readFile(file, 'utf8')
  expect(failureOf(await run(['key', 'backup', file, '--profile', 'ada']))).toEqual([5, 'backup_exists'])
  expect(await readFile(file, 'utf8')).toBe(before)
  expect(failureOf(await run(['key', 'restore', file, '--profile', 'ada']))).toEqual([5, 'profile_exists'])
})

test('without a passphrase or a profile, nothing is written', async () => {
  const path = join(folder, 'nothing')
  const unknown = await run(['key', 'backup', path, '--profile', 'nobody'])
  expect(failureOf(unknown)).toEqual([3, 'profile_missing'])
  expect(failureOf(await run(['key', 'backup', path, '--profile', 'ada'], ''))).toEqual([2, 'usage'])
  expect(await Bun.file(path).exists()).toBe(false)
  const nowhere = join(folder, 'no-folder', 'file')
  expect(failureOf(await run(['key', 'backup', nowhere, '--profile', 'ada']))).toEqual([1, 'file_unwritable'])
})

const DAMAGES: Record<string, [(text: string) => string, number, string]> = {
  'a missing end': [(text) => text.slice(0, -100), 1, 'backup_malformed'],
  'a changed digit': [(text) => text.replace(/("sealed":".{100})./, '$1~'), 1, 'backup_malformed'],
  'a lower cost': [(text) => text.replace('"passes":1', '"passes":2'), 1, 'backup_malformed'],
  'another format': [(text) => text.replace('sealpost-backup', 'sealpost-key'), 1, 'backup_malformed'],
  'no text': [() => '', 1, 'backup_malformed'],
  'a later version': [(text) => text.replace('"version":1', '"version":2'), 1, 'backup_version'],
}

test.each(Object.keys(DAMAGES))('a file with %s restores nothing', async (name) => {
  const [damage, code, reason] = DAMAGES[name]!
  await writeFile(`${file}.changed`, damage(await readFile(file, 'utf8')))
  expect(failureOf(await run(['key', 'restore', `${file}.changed`, '--profile', 'none']))).toEqual([code, reason])
  expect((await readdir(folder)).filter((path) => path === 'none' || path.startsWith('.'))).toEqual([])
})

test('a wrong passphrase, a key file and a missing file restore nothing', async () => {
  const restore = async (path: string, passphrase = SECRET) =>
    failureOf(await run(['key', 'restore', path, '--profile', 'none'], passphrase))
  expect(await restore(file, 'wrong')).toEqual([4, 'passphrase_wrong'])
  expect(await restore(join(folder, 'ada/key.json'))).toEqual([1, 'backup_malformed'])
  expect(await restore(`${file}.none`)).toEqual([3, 'file_missing'])
})

test('a backup with files outside the profile is refused', async () => {
  const contents = await gatherBackup(new Profile({ home: folder }, 'ada'))
  for (const path of ['../other/key.json', 'sessions/../key.json', '/etc/passwd', 'key.json/../../x']) {
    const hostile = { ...contents, texts: { ...contents.texts, [path]: contents.texts['key.json']! } }
    const locked = await readBackup(await sealBackup(hostile, SECRET, CHEAP), file)
    await expect(openBackup(locked, SECRET, file)).rejects.toMatchObject({ code: 'backup_malformed' })
  }
})
