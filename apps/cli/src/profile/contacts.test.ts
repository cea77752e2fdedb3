import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PeerKey, StoreRecord } from '@sealpost/sdk'
import { afterAll, expect, test } from 'vitest'
import { Contacts, SharedStore } from './contacts.ts'

const folder = mkdtempSync(join(tmpdir(), 'sealpost-shared-store-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const [ONE, OTHER] = ['1', '2'].map((digit) => digit.repeat(64)) as [PeerKey, PeerKey]
const fileOf = (contacts: Record<string, PeerKey>, name = 'contacts') => {
  const path = join(folder, `${name}.json`)
  writeFileSync(path, JSON.stringify({ version: 1, contacts }))
  return path
}

test('a file of the previous version is read, and stays readable for it', async () => {
  const path = fileOf({ bob: ONE, 'xn--Zo-ija': OTHER })
  const contacts = await Contacts.read(path)
  expect([contacts.keyOf('bob'), contacts.keyOf('Zoë'), contacts.isVerified(ONE)]).toEqual([ONE, OTHER, false])
  await contacts.verify('bob', ONE)
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({
    version: 1,
    contacts: { bob: ONE, Zoë: OTHER },
    verified: [ONE],
  })
  expect((await Contacts.read(path)).isVerified(ONE)).toBe(true)
})

test('the new key of a verified contact is not verified, and the error mentions it', async () => {
  const contacts = await Contacts.read(fileOf({ bob: ONE }))
  const wasVerified = /THE KEY OF bob, WHICH YOU VERIFIED, HAS CHANGED/
  await expect(contacts.pin('bob', OTHER)).rejects.not.toThrow(wasVerified)
  await contacts.verify('bob', ONE)
  await expect(contacts.pin('bob', OTHER)).rejects.toThrow(wasVerified)
  await contacts.accept('bob', OTHER)
  expect([contacts.isVerified(OTHER), contacts.isVerified(ONE)]).toEqual([false, false])
  await contacts.accept('bob', ONE)
  expect(contacts.isVerified(ONE)).toBe(false)
})

test('a name that looks like a contact is not pinned', async () => {
  const contacts = await Contacts.read(fileOf({ scope: ONE }))
  for (const name of ['\u0455\u0441\u043e\u0440\u0435', 'sc0pe'])
    await expect(contacts.pin(name, OTHER)).rejects.toMatchObject({ code: 'name_confusable' })
  await expect(contacts.pin('p\u0430ypal', OTHER)).rejects.toMatchObject({ code: 'name_unusable' })
  expect(await contacts.pin('scope', ONE)).toBe(false)
})

const seen = (revision: number): StoreRecord => ({
  ...{ kind: 'entry', space: 'a', keyHash: 'b', revision, hash: '00', keyEpoch: 1, isDeleted: false, seq: revision },
})
const put = (record: StoreRecord) => [{ key: 'a/b', record }]

test('commands of one profile share the store, and one with older records overwrites nothing', async () => {
  const [one, other] = [new SharedStore(join(folder, 'state')), new SharedStore(join(folder, 'state'))]
  await Promise.all([one.write(put(seen(3))), other.write(put(seen(2)))])
  await other.write(put(seen(1)))
  expect(await one.load()).toMatchObject([{ revision: 3 }])
  await other.write(put(seen(4)))
  expect(await one.load()).toMatchObject([{ revision: 4 }])
  await other.write([{ key: 'a/b', record: null }])
  expect(await one.load()).toEqual([])
})

test('the highest box-key epoch is kept', async () => {
  const [one, other] = [new SharedStore(join(folder, 'keys')), new SharedStore(join(folder, 'keys'))]
  const epoch = (boxEpoch: number) => [
    { key: 'key b', record: { kind: 'keyEpoch', peer: 'b' as PeerKey, boxEpoch } as const },
  ]
  await one.write(epoch(3))
  await other.write(epoch(2))
  expect(await one.load()).toMatchObject([{ boxEpoch: 3 }])
})
