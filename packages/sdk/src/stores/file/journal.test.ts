/** Tests the journal on a disk that may lose power at any step, and with files that were cut or damaged at any byte. */

import { type PeerKey, seededRandom } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { PowerCut, TestingDisk } from '../../test/disk.ts'
import type { StoreChange } from '../store.ts'
import { StoreJournal } from './journal.ts'

const PATH = '/peer.store'
const BOB = 'b'.repeat(64) as PeerKey

function put(key: string, bytes: Uint8Array): StoreChange {
  const record = { kind: 'waiting', outboxNo: 1, terms: { to: BOB, priority: 'next', ttlSeconds: 0 }, bytes } as const
  return { key, record }
}

/** The store's bodies by key, abbreviated. */
type Contents = Record<string, string>

function afterBatches(batches: readonly StoreChange[][], count: number): Contents {
  const contents: Contents = {}
  for (const { key, record } of batches.slice(0, count).flat()) {
    if (record) contents[key] = inShort(record)
    else delete contents[key]
  }
  return contents
}

const inShort = (record: NonNullable<StoreChange['record']>) => ('bytes' in record ? record.bytes.join() : record.kind)

/** Returns the bodies, which identify records, as records do not contain their keys. */
async function bodiesIn(journal: StoreJournal): Promise<string[]> {
  return (await journal.load()).map(inShort).sort()
}

function batchesOf(shape: readonly (readonly number[])[]): StoreChange[][] {
  return shape.map((keys, i) =>
    keys.map((key, k) => (key < 0 ? { key: `k${-key}`, record: null } : put(`k${key}`, Uint8Array.of(i, k, key, 255)))),
  )
}

const FIVE = batchesOf([[1, 2], [3], [1, -2], [4, 5, 6], [-3, 2]])

async function fileOf(batches: readonly StoreChange[][]): Promise<{ bytes: Uint8Array; ends: number[] }> {
  const disk = new TestingDisk()
  const journal = await StoreJournal.open(disk, PATH)
  const ends = [disk.contentOf(PATH).length]
  for (const batch of batches) {
    await journal.write(batch)
    ends.push(disk.contentOf(PATH).length)
  }
  return { bytes: disk.contentOf(PATH), ends }
}

async function openOn(bytes: Uint8Array): Promise<string[]> {
  const disk = new TestingDisk()
  disk.put(PATH, bytes)
  return bodiesIn(await StoreJournal.open(disk, PATH))
}

const bodiesAfter = (batches: readonly StoreChange[][], count: number) =>
  Object.values(afterBatches(batches, count)).sort()

describe('a damaged file', () => {
  test('holds every batch that ends before the cut, at any byte', async () => {
    const { bytes, ends } = await fileOf(FIVE)
    for (let length = ends[0]!; length <= bytes.length; length++) {
      const whole = ends.findLastIndex((end) => end <= length)
      expect(await openOn(bytes.slice(0, length)), `cut at ${length}`).toEqual(bodiesAfter(FIVE, whole))
    }
  })

  test('with any changed byte is refused, or the change is in its last batch, which is dropped', async () => {
    const { bytes, ends } = await fileOf(FIVE)
    const outcomes = { refused: 0, dropped: 0 }
    for (let at = 0; at < bytes.length; at++) {
      const damaged = bytes.slice()
      damaged[at]! ^= 0x10
      const opened = await openOn(damaged).catch((error) => error.code)
      if (at >= ends.at(-2)!) expect(opened, `byte ${at}`).toEqual(bodiesAfter(FIVE, 4))
      else if (opened !== 'store_corrupt') expect.unreachable(`byte ${at} gave ${opened}`)
      outcomes[opened === 'store_corrupt' ? 'refused' : 'dropped'] += 1
    }
    expect(outcomes.refused).toBe(ends.at(-2))
  })

  test('with a frame from another position or another file ends before that frame', async () => {
    const { bytes, ends } = await fileOf(FIVE)
    const last = bytes.slice(ends[4])
    expect(await openOn(Uint8Array.of(...bytes, ...last))).toEqual(bodiesAfter(FIVE, 5))
    const other = await fileOf(FIVE)
    expect(await openOn(Uint8Array.of(...bytes.slice(0, ends[4]), ...other.bytes.slice(ends[4])))).toEqual(
      bodiesAfter(FIVE, 4),
    )
  })

  test('that is no store is refused and left unchanged', async () => {
    const disk = new TestingDisk()
    const letter = new TextEncoder().encode('Dear Bob, this is a letter and no store of any kind.')
    disk.put(PATH, letter)
    await expect(StoreJournal.open(disk, PATH)).rejects.toMatchObject({ code: 'store_corrupt' })
    expect(disk.contentOf(PATH)).toEqual(letter)
  })
})

const shape = fc.array(
  fc.array(
    fc.integer({ min: -5, max: 5 }).filter((key) => key !== 0),
    { minLength: 1, maxLength: 4 },
  ),
  { minLength: 1, maxLength: 12 },
)

/** Runs processes on one store until the power fails. Returns how many batches were begun and confirmed. */
async function live(
  disk: TestingDisk,
  batches: StoreChange[][],
  from: number,
): Promise<{ kept: number; begun: number }> {
  let kept = from
  let begun = from
  try {
    const journal = await StoreJournal.open(disk, PATH)
    for (const batch of batches.slice(from)) {
      begun += 1
      await journal.write(batch)
      kept += 1
    }
  } catch (error) {
    expect((error as Error).cause).toBeInstanceOf(PowerCut)
  }
  return { kept, begun }
}

describe('power cuts', () => {
  test('at every step of a fixed sequence leave all confirmed batches and no partial one', async () => {
    const whole = new TestingDisk()
    await live(whole, FIVE, 0)
    expect(whole.steps).toBeGreaterThan(10)
    for (let step = 1; step <= whole.steps; step++)
      for (let seed = 0; seed < 30; seed++) {
        const disk = new TestingDisk()
        disk.cutAtStep = step
        const { kept, begun } = await live(disk, FIVE, 0)
        disk.restart(seededRandom(seed).next)
        const found = await bodiesIn(await StoreJournal.open(disk, PATH))
        const possible = Array.from({ length: begun - kept + 1 }, (_, i) => bodiesAfter(FIVE, kept + i))
        expect(possible, `step ${step}, seed ${seed}`).toContainEqual(found)
      }
  })

  test('in many processes lose no confirmed batch', async () => {
    const seen = { cuts: 0, unanswered: 0 }
    await fc.assert(
      fc.asyncProperty(
        shape,
        fc.array(fc.integer({ min: 1, max: 14 }), { maxLength: 6 }),
        fc.integer(),
        async (keys, cuts, seed) => {
          const { next } = seededRandom(seed)
          const batches = batchesOf(keys)
          const disk = new TestingDisk()
          let from = 0
          for (const cut of cuts) {
            disk.cutAtStep = disk.steps + cut
            const { kept, begun } = await live(disk, batches, from)
            disk.restart(next)
            const found = await bodiesIn(await StoreJournal.open(disk, PATH))
            from = Array.from({ length: begun - kept + 1 }, (_, i) => kept + i).findLast(
              (count) => String(bodiesAfter(batches, count)) === String(found),
            )!
            expect(from, 'a state between what was answered and what was begun').toBeDefined()
            seen.cuts += 1
            if (from > kept) seen.unanswered += 1
          }
          await live(disk, batches, from)
          expect(await bodiesIn(await StoreJournal.open(disk, PATH))).toEqual(bodiesAfter(batches, batches.length))
        },
      ),
      { numRuns: 300, seed: 20260104 },
    )
    expect(seen.cuts).toBeGreaterThan(300)
    expect(seen.unanswered).toBeGreaterThan(20)
  })

  test('reveal a file that was not synced', async () => {
    const lost = async () => {
      for (let seed = 0; seed < 50; seed++) {
        const disk = new TestingDisk()
        const create = disk.create.bind(disk)
        disk.create = async (path) => ({ ...(await create(path)), sync: async () => undefined })
        const journal = await StoreJournal.open(disk, PATH)
        for (const batch of FIVE) await journal.write(batch)
        disk.restart(seededRandom(seed).next)
        expect(await bodiesIn(await StoreJournal.open(disk, PATH))).toEqual(bodiesAfter(FIVE, 5))
      }
    }
    await expect(lost()).rejects.toThrow()
  })
})

describe('length', () => {
  test('a file is rewritten once more than half of it is obsolete', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    const body = new Uint8Array(100_000)
    const lengths: number[] = []
    for (let i = 0; i < 60; i++) {
      await journal.write([put(`k${i % 3}`, body)])
      lengths.push(disk.contentOf(PATH).length)
    }
    expect(Math.max(...lengths)).toBeLessThan(1_048_576 + 6 * 101_000)
    expect(lengths.filter((length, i) => i > 0 && length < lengths[i - 1]!).length).toBeLessThan(8)
    expect(await journal.load()).toHaveLength(3)
  })

  test('nothing is accepted after a failure', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    disk.cutAtStep = disk.steps + 1
    await expect(journal.write(FIVE[0]!)).rejects.toMatchObject({ code: 'store_failed' })
    disk.cutAtStep = Infinity
    await expect(journal.write(FIVE[1]!)).rejects.toMatchObject({ code: 'store_failed' })
  })
})
