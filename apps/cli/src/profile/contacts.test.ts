import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PeerKey, StoreRecord } from '@sealpost/sdk'
import { afterAll, expect, test } from 'vitest'
import { SharedStore } from './contacts.ts'

const folder = mkdtempSync(join(tmpdir(), 'sealpost-shared-store-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

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
