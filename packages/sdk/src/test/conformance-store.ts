/** Declares the tests that every store must pass, with `storeConformance({ name, isDurable }, makeWorld)`. */
import type { StreamId } from '@sealpost/identity'
import type { DeliveryId, EnvelopeId, GroupId, MeshId, PeerKey } from '@sealpost/std'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openKeyEpochs } from '../keys/key-epochs.ts'
import type { StoreRecord } from '../stores/records.ts'
import { loadStore, type PeerStore, SECRET_PREFIX } from '../stores/store.ts'

export interface StoreWorld {
  /** Opens the store, which is at the same location each time. */
  open(): Promise<PeerStore>
  /** Simulates a crash of the process: releases the lock but flushes nothing. */
  crash(): Promise<void>
  end(): Promise<void>
}

const ALICE = 'a'.repeat(64) as PeerKey
const BOB = 'b'.repeat(64) as PeerKey
const MESH = '1'.repeat(32) as MeshId
const ID = '7'.repeat(32)

const waiting = (outboxNo: number, bytes = Uint8Array.of(outboxNo)): StoreRecord => ({
  kind: 'waiting',
  outboxNo,
  terms: { to: BOB, priority: 'next', ttlSeconds: 0 },
  bytes,
})

const SAMPLES: readonly StoreRecord[] = [
  { kind: 'owner', format: 1, meshId: MESH, peerKey: ALICE },
  waiting(1, new Uint8Array(0)),
  waiting(2, crypto.getRandomValues(new Uint8Array(5_000))),
  {
    kind: 'sealed',
    outboxNo: 1_700_000_000_000_123,
    terms: { to: BOB, priority: 'now', ttlSeconds: 60 },
    envelopeId: ID as EnvelopeId,
    admittedAtMs: 1_700_000_000_000.25,
    bytes: Uint8Array.of(0, 255, 10),
  },
  { kind: 'mark', sender: BOB, streamId: ID as StreamId, rank: 3, settled: [1, 5, 7, 4_294_967_295] },
  {
    kind: 'group',
    groupId: ID as GroupId,
    epoch: 3,
    bodyId: ID + ID,
    terms: { priority: 'low', ttlSeconds: 60 },
    isSecond: true,
    owed: [ALICE, BOB],
    bytes: Uint8Array.of(9, 0, 255),
  },
  { kind: 'loose', sender: BOB, envelopeId: ID as EnvelopeId, rank: 4 },
  {
    ...{ kind: 'rejected', sender: BOB, envelopeId: ID as EnvelopeId },
    ...{ deliveryId: 9_007_199_254_740_991 as DeliveryId, reason: 'no', rank: 5 },
  },
  { kind: 'keyEpoch', peer: BOB, boxEpoch: 4 },
]

const put = (...records: StoreRecord[]) => records.map((record) => ({ key: keyOf(record), record }))
const keyOf = (record: StoreRecord) => ('outboxNo' in record ? `out ${record.outboxNo}` : record.kind)

export function storeConformance(
  { name, isDurable }: { name: string; isDurable: boolean },
  makeWorld: () => Promise<StoreWorld>,
): void {
  describe(`a store (${name})`, () => {
    let world: StoreWorld
    let open: PeerStore | null
    beforeEach(async () => {
      world = await makeWorld()
      open = await world.open()
    })
    afterEach(async () => {
      await open?.close()
      await world.end()
    })
    const store = () => open!
    const reopen = async () => {
      await open!.close()
      open = await world.open()
    }
    /** Returns the contents, sorted because a store has no order. */
    const contents = async () => (await store().load()).sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
    const sorted = (records: readonly StoreRecord[]) => [...records].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))

    test('is empty at first', async () => {
      expect(await contents()).toEqual([])
    })

    test('returns every kind of record unchanged, after a close and after a crash', async () => {
      await store().write(put(...SAMPLES))
      await reopen()
      expect(await contents()).toEqual(sorted(SAMPLES))
      await world.crash()
      open = await world.open()
      expect(await contents()).toEqual(sorted(SAMPLES))
    })

    test('keeps the box key epochs of a former process as lower bounds', async () => {
      const owner = { meshId: MESH, peerKey: ALICE }
      const epochs = await openKeyEpochs(store(), owner)
      epochs.raise(BOB, 3)
      epochs.raise(BOB, 2)
      await epochs.close()
      open = await world.open()
      expect((await openKeyEpochs(open, owner)).of(BOB)).toBe(3)
    })

    test('keeps every confirmed change after a crash', async () => {
      for (let no = 1; no <= 20; no++) await store().write(put(waiting(no)))
      await world.crash()
      open = await world.open()
      expect((await contents()).map((record) => 'outboxNo' in record && record.outboxNo).sort()).toEqual(
        Array.from({ length: 20 }, (_, i) => i + 1).sort(),
      )
    })

    test('keeps the last record of each key, and null deletes it', async () => {
      await store().write(put(waiting(1), waiting(2), waiting(3)))
      const last = waiting(1, Uint8Array.of(9))
      await store().write([...put(last), { key: 'out 2', record: null }, { key: 'never there', record: null }])
      await store().write([{ key: 'out 3', record: null }, ...put(waiting(3))])
      await reopen()
      expect(await contents()).toEqual([last, waiting(3)])
    })

    test('returns the newest version of each secret record, after a close and after a crash', async () => {
      const secret = (no: number, byte: number) => ({
        key: `${SECRET_PREFIX}${no}`,
        record: waiting(no, Uint8Array.of(byte)),
      })
      await store().write([secret(1, 1), secret(2, 1), secret(3, 1), ...put(waiting(4))])
      await store().write([secret(1, 2), { key: `${SECRET_PREFIX}2`, record: null }])
      const newest = [waiting(1, Uint8Array.of(2)), waiting(3, Uint8Array.of(1)), waiting(4)]
      await reopen()
      expect(await contents()).toEqual(newest)
      await store().write([secret(3, 2)])
      await world.crash()
      open = await world.open()
      expect(await contents()).toEqual([...newest.slice(0, 1), waiting(3, Uint8Array.of(2)), waiting(4)])
    })

    test('keeps a thousand records through several processes', async () => {
      const kept = new Map<string, StoreRecord>()
      const inShort = (records: StoreRecord[]) =>
        records.map((record) => `${keyOf(record)} ${'bytes' in record && record.bytes[0]}`)
      for (let life = 0; life < 4; life++) {
        for (let no = life * 500; no < life * 500 + 1000; no += 100) {
          const batch = put(...Array.from({ length: 100 }, (_, i) => waiting(no + i, new Uint8Array(300).fill(life))))
          for (const { key, record } of batch) kept.set(key, record)
          const gone = [...kept.keys()].slice(0, Math.max(0, kept.size - 1000))
          for (const key of gone) kept.delete(key)
          await store().write([...batch, ...gone.map((key) => ({ key, record: null }))])
        }
        await reopen()
        expect(inShort(await contents())).toEqual(inShort(sorted([...kept.values()])))
      }
    })

    test('belongs to the first peer that opens it', async () => {
      expect(await loadStore(store(), { meshId: MESH, peerKey: ALICE })).toEqual([])
      await reopen()
      expect(await loadStore(store(), { meshId: MESH, peerKey: ALICE })).toHaveLength(1)
      for (const other of [
        { meshId: MESH, peerKey: BOB },
        { meshId: '2'.repeat(32) as MeshId, peerKey: ALICE },
      ])
        await expect(loadStore(store(), other)).rejects.toMatchObject({ code: 'store_foreign' })
    })

    test('refuses writes once it is closed', async () => {
      await store().write(put(waiting(1)))
      const closed = store()
      await reopen()
      await expect(closed.write(put(waiting(2)))).rejects.toMatchObject({ code: 'store_failed' })
      await reopen()
      expect(await contents()).toEqual([waiting(1)])
    })

    // A memory store keeps the object itself and has no lock, so the rest does not apply.
    if (!isDurable) return

    test('stores only the bytes of a body that is a view of larger memory', async () => {
      const memory = Uint8Array.from({ length: 100_000 }, (_, i) => i)
      await store().write(put(waiting(1, memory.subarray(500, 503))))
      await reopen()
      const [record] = (await contents()) as [StoreRecord & { bytes: Uint8Array }]
      expect([...record.bytes]).toEqual([244, 245, 246])
      expect(record.bytes.buffer.byteLength).toBeLessThan(100_000)
    })

    test('allows one process at a time', async () => {
      await expect(world.open()).rejects.toMatchObject({ code: 'store_in_use' })
      await store().write(put(waiting(1))) // the first store still works
      await reopen()
      expect(await contents()).toEqual([waiting(1)])
    })
  })
}
