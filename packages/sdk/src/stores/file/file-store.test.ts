import { link, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { gone, put, secret, stolenFrom, versionOf, versionsIn } from '../../test/secret-records.ts'
import { deleteFileStore, openFileStore, readStoreRecords } from './file-store.ts'

let folder: string
let path: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-test-'))
  path = join(folder, 'peer.store')
})
afterEach(() => rm(folder, { recursive: true }))

async function stolen(): Promise<number[]> {
  return stolenFrom(
    await Promise.all((await readdir(folder)).map(async (name) => new Uint8Array(await readFile(join(folder, name))))),
  )
}

describe('former versions of secret records', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
  afterEach(() => void vi.useRealTimers())

  /** Passes time, and waits for the erasure that this may have begun: it has three steps, and a write waits for one. */
  const pass = async (ms: number) => {
    vi.advanceTimersByTime(ms)
    for (let step = 0; step < 4; step++) await store.write([put('out 0', 0)])
  }
  let store: Awaited<ReturnType<typeof openFileStore>>

  test('are erased right after the first batch that replaces one, and then at most once per second', async () => {
    store = await openFileStore(path)
    await store.write([secret('a', 1)])
    await store.write([secret('a', 2)])
    await pass(0)
    expect(await stolen()).toEqual([2])
    await store.write([secret('a', 3)])
    await store.write([secret('a', 4)])
    await pass(999)
    expect(await stolen()).toEqual([2, 3, 4])
    await pass(1)
    expect(await stolen()).toEqual([4])
    await store.write([gone('a')])
    await store.close()
    expect(await stolen()).toEqual([])
  })

  test('are not readable after hundreds of batches of an outbox, and the records of the outbox are not stored again', async () => {
    store = await openFileStore(path)
    const body = 2_000
    await store.write(Array.from({ length: 1_000 }, (_, i) => put(`out ${i}`, 200, body)))
    await store.write([secret('a', 1), secret('b', 1)])
    const before = (await stat(path)).size
    for (let version = 2; version <= 150; version++) {
      const settled = { key: `out ${version}`, record: null }
      await store.write([secret('a', version), secret('b', version - 1), settled])
      vi.advanceTimersByTime(250)
    }
    await pass(1_000)
    expect(await stolen()).toEqual([149, 150])
    expect((await stat(path)).size - before).toBeLessThan(200_000)
    await store.close()
    store = await openFileStore(path)
    expect(await versionsIn(store)).toHaveLength(1_000 - 149 + 2)
    await store.close()
  })
})

test('a reader without the lock gets secret records too, while another process replaces them', async () => {
  const store = await openFileStore(path)
  await store.write([secret('a', 1), put('out 1', 2)])
  const reads: Promise<unknown>[] = []
  for (let version = 3; version < 60; version++) {
    await store.write([secret('a', version)])
    reads.push(readStoreRecords(path).then((records) => expect(records).toHaveLength(2)))
  }
  await Promise.all(reads)
  await store.close()
  expect((await readStoreRecords(path)).map((record) => versionOf({ record })).sort()).toEqual([2, 59])
})

test('the secret records of a deleted store can not be read from its former blocks', async () => {
  const store = await openFileStore(path)
  await store.write([secret('a', 1)])
  await store.close()
  const journal = new Uint8Array(await readFile(path))
  const keys = join(folder, 'same blocks')
  await link(`${path}.secrets`, keys)
  expect(stolenFrom([journal, new Uint8Array(await readFile(keys))])).toEqual([1])
  await deleteFileStore(path)
  expect(stolenFrom([journal, new Uint8Array(await readFile(keys))])).toEqual([])
  expect(await readdir(folder)).toEqual(['same blocks'])
})

test('only the owner can read the files of a store', async () => {
  const store = await openFileStore(path)
  await store.write([secret('a', 1)])
  await store.close()
  for (const name of await readdir(folder)) expect((await stat(join(folder, name))).mode & 0o777, name).toBe(0o600)
})
