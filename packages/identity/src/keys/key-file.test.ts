import { chmod, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { OperatingError, toHex } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { generateBoxKeys, ready } from '../index.ts'
import { MESH, peerNumber, readVector } from '../test/fixtures.ts'
import {
  beginBoxKeyRotation,
  completeBoxKeyRotation,
  type KeyFile,
  type PeerKeyFile,
  readKeyFile,
  replaceKeyFile,
  writeKeyFile,
} from './key-file.ts'

let folder: string
let count = 0

beforeAll(async () => {
  await ready()
  folder = await mkdtemp(join(tmpdir(), 'sealpost-key-file-'))
})

afterAll(() => rm(folder, { recursive: true }))

const newPath = () => join(folder, `key-${count++}.json`)

function peerFile(): PeerKeyFile {
  const enrolment = { meshId: MESH, authority: 'broker.example:443', brokerKey: peerNumber(9).signing.publicKey }
  return { kind: 'peer', identity: peerNumber(1), formerBoxKeys: [generateBoxKeys(7)], enrolment }
}

test.each<[string, () => KeyFile]>([
  ['a peer that is enrolled', peerFile],
  ['a peer that is not enrolled yet', () => ({ ...peerFile(), formerBoxKeys: [], enrolment: null })],
  ['a broker', () => ({ kind: 'broker', signing: peerNumber(4).signing })],
])('the keys of %s are read as they were written', async (_, make) => {
  const path = newPath()
  const contents = make()
  await writeKeyFile(path, contents)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(await readKeyFile(path)).toEqual({ contents, isLocked: false, warning: null })
})

test('an existing file or link at the path is never overwritten', async () => {
  const [path, target, link] = [newPath(), newPath(), newPath()]
  await writeFile(path, 'mine')
  await symlink(target, link)
  for (const taken of [path, link]) expect(await failure(writeKeyFile(taken, peerFile()))).toBe('key_file_exists')
  expect(await readFile(path, 'utf8')).toBe('mine')
  await expect(stat(target)).rejects.toThrow('ENOENT')
})

test('a missing folder and an existing file have different errors', async () => {
  expect(await failure(writeKeyFile(join(folder, 'no', 'key.json'), peerFile()))).toBe('key_file_unwritable')
})

test.each([0o640, 0o604, 0o660])('a file with mode %o is read with a warning', async (mode) => {
  const path = newPath()
  await writeKeyFile(path, peerFile())
  await chmod(path, mode)
  expect((await readKeyFile(path)).warning?.code).toBe('key_file_exposed')
})

test('a missing file and an unreadable one have codes of their own', async () => {
  expect(await failure(readKeyFile(newPath()))).toBe('key_file_missing')
  expect(await failure(readKeyFile(folder))).toBe('key_file_unreadable')
})

const DAMAGES: Record<string, (text: string) => string> = {
  'no text': () => '',
  'no JSON': (text) => text.slice(0, -20),
  'JSON of another kind': () => '[]',
  'another format': (text) => text.replace('sealpost-key', 'other-key'),
  'a later version': (text) => text.replace('"version": 1', '"version": 2'),
  'an unknown kind': (text) => text.replace('"kind": "peer"', '"kind": "mesh"'),
  'a public key that does not match the seed': (text) => text.replace(/"publicKey": "../, '"publicKey": "00'),
  'a seed of 31 bytes': (text) => text.replace(/"signingSeed": "../, '"signingSeed": "'),
  'no box key': (text) => text.replace(/"boxKeys": \[[^\]]*\]/, '"boxKeys": []'),
  'a box key that is not hex': (text) => text.replace(/"secretKey": "../, '"secretKey": "zz'),
  'an epoch that is not a number': (text) => text.replace('"epoch": 1', '"epoch": "1"'),
  'a mesh id in upper case': (text) => text.replace(MESH, MESH.toUpperCase()),
  'excessive length': (text) => text + ' '.repeat(70_000),
}

test.each(Object.keys(DAMAGES))('a file with %s is malformed, and the error contains no secret', async (name) => {
  const path = newPath()
  await writeKeyFile(path, peerFile())
  const text = await readFile(path, 'utf8')
  const damaged = DAMAGES[name]!(text)
  expect(damaged).not.toBe(text)
  await writeFile(path, damaged)
  const error = await readKeyFile(path).catch((cause) => cause)
  expect(error).toMatchObject({ code: 'key_file_malformed' })
  expect(allText(error)).not.toContain(toHex(peerNumber(1).signing.secretKey).slice(8, 32))
  expect(allText(error)).not.toContain(toHex(peerNumber(1).box.secretKey).slice(8, 32))
})

test('a key file is replaced atomically, also after an interrupted attempt', async () => {
  const path = newPath()
  await writeKeyFile(path, peerFile())
  await writeFile(`${path}.next`, 'half a key fi')
  const contents = { ...peerFile(), formerBoxKeys: [{ ...generateBoxKeys(3), retiredAtMs: 17 }] }
  await replaceKeyFile(path, contents)
  expect((await readKeyFile(path)).contents).toEqual(contents)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  await expect(stat(`${path}.next`)).rejects.toThrow('ENOENT')
})

const CHEAP = { memoryKib: 8, passes: 1 }

test('a locked file opens with its passphrase in any Unicode form, and hides every secret', async () => {
  const path = newPath()
  const contents = peerFile()
  await writeKeyFile(path, contents, { passphrase: 'Caf\u00e9 au lait', cost: CHEAP })
  expect(await readKeyFile(path, () => 'Cafe\u0301 au lait')).toEqual({ contents, isLocked: true, warning: null })
  const text = await readFile(path, 'utf8')
  for (const { secretKey } of [contents.identity.signing, contents.identity.box, contents.formerBoxKeys[0]!])
    expect(text).not.toContain(toHex(secretKey).slice(0, 16))
  await replaceKeyFile(path, { ...contents, formerBoxKeys: [] }, { passphrase: 'another', cost: CHEAP })
  expect((await readKeyFile(path, async () => 'another')).contents).toMatchObject({ formerBoxKeys: [] })
  expect(await failure(readKeyFile(path, () => 'Caf\u00e9 au lait'))).toBe('passphrase_wrong')
})

test('a locked file names the entry of the keychain that has its passphrase', async () => {
  const path = newPath()
  await writeKeyFile(path, peerFile(), { passphrase: 'random', keychain: 'ada 7f', cost: CHEAP })
  const asked: (string | undefined)[] = []
  const find = (keychain?: string) => {
    asked.push(keychain)
    return 'random'
  }
  expect(await readKeyFile(path, find)).toMatchObject({ isLocked: true, keychain: 'ada 7f' })
  await replaceKeyFile(path, peerFile(), { passphrase: 'random', cost: CHEAP })
  expect(await readKeyFile(path, find)).not.toHaveProperty('keychain')
  expect(asked).toEqual(['ada 7f', undefined])
})

test('the default cost is that of RFC 9106, and is written to the file', async () => {
  const path = newPath()
  await writeKeyFile(path, peerFile(), { passphrase: 'long enough' })
  expect(JSON.parse(await readFile(path, 'utf8'))).toMatchObject({
    version: 2,
    lock: { kdf: 'argon2id', memoryKib: 65_536, passes: 3, cipher: 'xchacha20poly1305' },
  })
  expect(await failure(readKeyFile(path, () => 'long enough'))).toBe('no failure')
})

test('a frozen locked file still opens', async () => {
  const vector = readVector('key-file.json')
  const path = newPath()
  await writeFile(path, JSON.stringify(vector.file), { mode: 0o600 })
  const { contents } = await readKeyFile(path, () => vector.passphrase)
  expect(contents).toEqual({ kind: 'peer', identity: peerNumber(1), formerBoxKeys: [], enrolment: null })
})

const LOCK_DAMAGES: Record<string, [(text: string) => string, string]> = {
  'a changed salt': [(text) => text.replace(/"salt": "../, '"salt": "00'), 'passphrase_wrong'],
  'a lower cost': [(text) => text.replace('"passes": 2', '"passes": 1'), 'passphrase_wrong'],
  'the key of another file': [(text) => text.replace(/"publicKey": "../, '"publicKey": "00'), 'passphrase_wrong'],
  'another kind': [(text) => text.replace('"kind": "peer"', '"kind": "broker"'), 'passphrase_wrong'],
  'half of the sealed data': [(text) => text.replace(/("sealed": ".{100})[^"]*/, '$1'), 'passphrase_wrong'],
  'no lock': [(text) => text.replace('"lock"', '"look"'), 'key_file_malformed'],
  'another key derivation': [(text) => text.replace('argon2id', 'argon2i'), 'key_file_malformed'],
  'no passes': [(text) => text.replace('"passes": 2', '"passes": 0'), 'key_file_malformed'],
  'excessive memory': [(text) => text.replace('"memoryKib": 8', '"memoryKib": 800000000'), 'key_file_malformed'],
}

test.each(Object.keys(LOCK_DAMAGES))('a locked file with %s does not open', async (name) => {
  const path = newPath()
  await writeKeyFile(path, peerFile(), { passphrase: 'secret', cost: { memoryKib: 8, passes: 2 } })
  const [damage, code] = LOCK_DAMAGES[name]!
  const text = await readFile(path, 'utf8')
  const damaged = damage(text)
  expect(damaged).not.toBe(text)
  await writeFile(path, damaged)
  expect(await failure(readKeyFile(path, () => 'secret'))).toBe(code)
})

test('without a passphrase, a locked file reports that it is locked, and a plain file asks for none', async () => {
  const [locked, plain] = [newPath(), newPath()]
  await writeKeyFile(locked, peerFile(), { passphrase: 'secret', cost: CHEAP })
  await writeKeyFile(plain, peerFile())
  expect(await failure(readKeyFile(locked))).toBe('key_file_locked')
  const unasked = () => expect.unreachable('it was asked for a passphrase')
  expect((await readKeyFile(plain, unasked)).isLocked).toBe(false)
})

async function failure(step: Promise<unknown>): Promise<string> {
  const error = await step.then(
    () => 'no failure',
    (cause) => cause,
  )
  return error instanceof OperatingError ? error.code : String(error)
}

function allText(error: Error): string {
  return [error.message, error.stack, String(error.cause), (error.cause as Error | undefined)?.stack].join('\n')
}

beforeAll(() => ready())

const DAY_MS = 24 * 3600_000
const file = (): PeerKeyFile => ({ kind: 'peer', identity: peerNumber(1), formerBoxKeys: [], enrolment: null })
const publishedOf = ({ identity: { box } }: PeerKeyFile) => ({ boxKey: box.publicKey, boxEpoch: box.epoch })
const epochsOf = ({ identity, formerBoxKeys }: PeerKeyFile) =>
  [identity.box, ...formerBoxKeys].map(({ epoch }) => epoch)

test('the next key opens at once and seals once published; the previous key still opens', () => {
  const before = file()
  const { next, file: between } = beginBoxKeyRotation(before, publishedOf(before))
  expect(next.epoch).toBe(2)
  expect(between.identity).toEqual(before.identity)
  expect(between.formerBoxKeys).toEqual([next])
  const after = completeBoxKeyRotation(between, next, 1000)
  expect(after.identity).toEqual({ ...before.identity, box: next })
  expect(after.formerBoxKeys).toEqual([{ ...before.identity.box, retiredAtMs: 1000 }])
})

test('an interrupted attempt resumes with its key, published or not', () => {
  const before = file()
  const { next, file: between } = beginBoxKeyRotation(before, publishedOf(before))
  expect(beginBoxKeyRotation(between, publishedOf(before))).toEqual({ next, file: between })
  expect(beginBoxKeyRotation(between, { boxKey: next.publicKey, boxEpoch: 2 })).toEqual({ next, file: between })
})

test('the next epoch is above those of an outdated key file and the directory', () => {
  const before = file()
  const elsewhere = { boxKey: new Uint8Array(32), boxEpoch: 7 }
  expect(beginBoxKeyRotation(before, elsewhere).next.epoch).toBe(8)
  const { file: between } = beginBoxKeyRotation(before, publishedOf(before))
  const { next, file: again } = beginBoxKeyRotation(between, elsewhere)
  expect(next.epoch).toBe(8)
  expect(epochsOf(completeBoxKeyRotation(again, next, 0))).toEqual([8, 1, 2])
})

test('former keys are deleted 60 days after their retirement, and at most 64 are kept', () => {
  let kept = file()
  const rotate = (atMs: number) => {
    const { next, file: between } = beginBoxKeyRotation(kept, publishedOf(kept))
    kept = completeBoxKeyRotation(between, next, atMs)
  }
  for (const days of [0, 30, 61, 95]) rotate(days * DAY_MS)
  expect(epochsOf(kept)).toEqual([5, 4, 3])
  for (let i = 0; i < 70; i++) rotate(95 * DAY_MS + i)
  expect(kept.formerBoxKeys).toHaveLength(64)
  const unknown = { ...kept, formerBoxKeys: [generateBoxKeys(1)] }
  expect(completeBoxKeyRotation(unknown, generateBoxKeys(99), 5).formerBoxKeys[1]).toMatchObject({
    epoch: 1,
    retiredAtMs: 5,
  })
})
