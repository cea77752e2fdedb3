/** Tests that a store erases former versions of secret records, also after a power loss at any step. */
import { seededRandom } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { PowerCut, TestingDisk } from '../../test/disk.ts'
import {
  gone,
  put,
  secret,
  stolenFrom,
  stolenVersions,
  unsealed,
  versionOf,
  versionsIn,
} from '../../test/secret-records.ts'
import { SECRET_PREFIX, type StoreChange } from '../store.ts'
import { StoreJournal } from './journal.ts'
import { SecretSegments } from './secret-segments.ts'

const PATH = '/peer.store'
const KEYS_PATH = `${PATH}.secrets`
const ERASE = 'erase'

type Step = readonly StoreChange[] | typeof ERASE

/** Records that are replaced, deleted and created, beside public ones. */
const STEPS: readonly Step[] = [
  [secret('a', 1), put('out 1', 2)],
  [secret('a', 3), secret('b', 4)],
  ERASE,
  [secret('a', 5), put('out 2', 6)],
  [secret('b', 7), { key: 'out 1', record: null }],
  ERASE,
  [gone('a'), secret('c', 8)],
  ERASE,
  [secret('c', 9), secret('c', 10), secret('a', 11)],
]

/** Returns the versions of all records after this number of steps, in ascending order. */
function versionsAfter(count: number, steps = STEPS): number[] {
  const versions = new Map<string, number>()
  for (const { key, record } of steps.slice(0, count).flatMap((step) => (step === ERASE ? [] : step)))
    if (record) versions.set(key, versionOf({ record }))
    else versions.delete(key)
  return [...versions.values()].sort((a, b) => a - b)
}

/** Runs steps until the power fails. Returns how many were begun and confirmed. */
async function live(
  disk: TestingDisk,
  erasures: 'awaited' | 'overlapping',
  steps = STEPS,
): Promise<{ confirmed: number; begun: number }> {
  let [confirmed, begun] = [0, 0]
  const overlapping: Promise<void>[] = []
  try {
    const journal = await StoreJournal.open(disk, PATH)
    for (const step of steps) {
      begun += 1
      if (step !== ERASE) await journal.write(step)
      else if (erasures === 'awaited') await journal.eraseObsoleteSecrets()
      else overlapping.push(journal.eraseObsoleteSecrets())
      confirmed += 1
    }
    await journal.close()
  } catch (error) {
    expect((error as Error).cause).toBeInstanceOf(PowerCut)
  }
  await Promise.allSettled(overlapping)
  return { confirmed, begun }
}

const SECRETS_OF_STEPS = new Set(
  STEPS.flatMap((step) => (step === ERASE ? [] : step))
    .filter(({ key, record }) => key.startsWith(SECRET_PREFIX) && record)
    .map(versionOf),
)

describe('former versions of secret records', () => {
  test('are readable before the erasure, and not after it', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([secret('a', 1), secret('b', 2)])
    await journal.write([secret('a', 3), gone('b')])
    expect(stolenFrom(disk.everyContent())).toEqual([1, 2, 3])
    expect(journal.hasObsoleteSecrets).toBe(true)
    await journal.eraseObsoleteSecrets()
    expect(stolenFrom(disk.everyContent())).toEqual([3])
    expect(journal.hasObsoleteSecrets).toBe(false)
  })

  test('stay erased after a power loss, before anyone opens the store', async () => {
    for (let seed = 0; seed < 30; seed++) {
      const disk = new TestingDisk()
      const journal = await StoreJournal.open(disk, PATH)
      await journal.write([secret('a', 1)])
      await journal.write([secret('a', 2)])
      await journal.eraseObsoleteSecrets()
      disk.restart(seededRandom(seed).next)
      expect(stolenFrom(disk.everyContent()), `seed ${seed}`).toEqual([2])
    }
  })

  test('are erased when the store is closed, and when it is opened after a crash', async () => {
    const disk = new TestingDisk()
    const first = await StoreJournal.open(disk, PATH)
    await first.write([secret('a', 1)])
    await first.write([secret('a', 2)])
    await first.close()
    expect(stolenFrom(disk.everyContent())).toEqual([2])
    const second = await StoreJournal.open(disk, PATH)
    await second.write([secret('a', 3)])
    expect(stolenFrom(disk.everyContent())).toEqual([2, 3])
    const third = await StoreJournal.open(disk, PATH)
    expect(stolenFrom(disk.everyContent())).toEqual([3])
    expect(await versionsIn(third)).toEqual([3])
  })

  test('are nowhere on the disk in plain text', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    for (let version = 1; version <= 9; version++)
      await journal.write([secret('a', version), put(`out ${version}`, 100)])
    const text = disk
      .everyContent()
      .map((bytes) => Buffer.from(bytes).toString('latin1'))
      .join()
    for (let version = 1; version <= 9; version++) expect(text).not.toContain(String.fromCharCode(version).repeat(20))
    expect(text).toContain(String.fromCharCode(100).repeat(20))
  })

  test('are gone after a power loss at any step once the store is opened, and nothing confirmed is lost', async () => {
    const whole = new TestingDisk()
    await live(whole, 'awaited')
    expect(whole.steps).toBeGreaterThan(40)
    for (let step = 1; step <= whole.steps; step++)
      for (let seed = 0; seed < 20; seed++) {
        const disk = new TestingDisk()
        disk.cutAtStep = step
        const { confirmed, begun } = await live(disk, seed % 2 === 0 ? 'awaited' : 'overlapping')
        disk.restart(seededRandom(seed).next)
        const found = await versionsIn(await StoreJournal.open(disk, PATH))
        const possible = Array.from({ length: begun - confirmed + 1 }, (_, i) => versionsAfter(confirmed + i))
        expect(possible, `step ${step}, seed ${seed}`).toContainEqual(found)
        const secrets = found.filter((version) => SECRETS_OF_STEPS.has(version))
        expect(stolenFrom(disk.everyContent()), `step ${step}, seed ${seed}`).toEqual(secrets)
      }
  })

  test('are also gone after a second power loss during the next opening', async () => {
    for (let cut = 1; cut <= 12; cut++)
      for (let seed = 0; seed < 20; seed++) {
        const { next } = seededRandom(seed)
        const disk = new TestingDisk()
        disk.cutAtStep = 30 + (seed % 25)
        await live(disk, 'awaited')
        disk.restart(next)
        disk.cutAtStep = disk.steps + cut
        await StoreJournal.open(disk, PATH).catch(() => null)
        disk.restart(next)
        const found = await versionsIn(await StoreJournal.open(disk, PATH))
        const secrets = found.filter((version) => SECRETS_OF_STEPS.has(version))
        expect(stolenFrom(disk.everyContent()), `cut ${cut}, seed ${seed}`).toEqual(secrets)
      }
  })
})

describe('random batches', () => {
  /** Each change has its own version. Large records fill segments, and small ones are moved between them. */
  function randomSteps(random: () => number): Step[] {
    const below = (bound: number) => Math.floor(random() * bound)
    let version = 0
    const change = (): StoreChange => {
      version += 1
      const name = 'abcde'[below(5)]!
      if (random() < 0.2) return gone(name)
      return random() < 0.7 ? secret(name, version, random() < 0.05 ? 600_000 : 20) : unsealed(`out ${name}`, version)
    }
    return Array.from({ length: 20 }, () => (random() < 0.3 ? ERASE : Array.from({ length: 1 + below(4) }, change)))
  }

  test('with overlapping erasures lose nothing in a power loss, and leave no former version after the next opening', async () => {
    const seen = { cuts: 0, secrets: 0 }
    for (let seed = 0; seed < 120; seed++) {
      const { next } = seededRandom(seed)
      const steps = randomSteps(next)
      const disk = new TestingDisk()
      if (next() < 0.8) disk.cutAtStep = 1 + Math.floor(next() * 90)
      const { confirmed, begun } = await live(disk, 'overlapping', steps)
      if (disk.steps >= disk.cutAtStep) seen.cuts += 1
      disk.restart(next)
      const found = await versionsIn(await StoreJournal.open(disk, PATH))
      const possible = Array.from({ length: begun - confirmed + 1 }, (_, i) => versionsAfter(confirmed + i, steps))
      expect(possible, `seed ${seed}`).toContainEqual(found)
      const secrets = stolenFrom(disk.everyContent())
      expect(found, `seed ${seed}`).toEqual(expect.arrayContaining(secrets))
      seen.secrets += secrets.length
    }
    expect(seen.cuts).toBeGreaterThan(40)
    expect(seen.secrets).toBeGreaterThan(150)
  })
})

describe('messages that are not sealed yet', () => {
  const plainText = (disk: TestingDisk) =>
    disk
      .everyContent()
      .map((bytes) => Buffer.from(bytes).toString('latin1'))
      .join()
  const textOf = (version: number) => String.fromCharCode(version).repeat(20)
  const stolen = (disk: TestingDisk) =>
    stolenVersions(disk.everyContent()).flatMap(({ record }) => (record ? [versionOf({ record })] : []))

  test('are secret in a store with secret records, and erased once they are sealed', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([secret('a', 1), unsealed('out 1', 65), unsealed('out 2', 66)])
    await journal.write([put('out 1', 67)])
    expect(plainText(disk)).not.toMatch(new RegExp(`${textOf(65)}|${textOf(66)}`))
    expect(stolen(disk)).toContain(65)
    await journal.eraseObsoleteSecrets()
    expect(stolen(disk)).not.toContain(65)
    await journal.close()
    expect(await versionsIn(await StoreJournal.open(disk, PATH))).toEqual([1, 66, 67])
  })

  test('are stored in plain text in a store without', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([unsealed('out 1', 65)])
    expect(plainText(disk)).toContain(textOf(65))
    expect(await disk.read(KEYS_PATH)).toBeNull()
  })
})

describe('the keys of secret records', () => {
  test('do not exist in a store without secret records', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([put('out 1', 1)])
    await journal.close()
    expect(await disk.read(KEYS_PATH)).toBeNull()
  })

  test('that are missing are reported, and the journal is left unchanged', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([secret('a', 1)])
    await journal.close()
    const before = disk.contentOf(PATH).slice()
    await disk.remove(KEYS_PATH)
    const error = await StoreJournal.open(disk, PATH).catch((error) => error)
    expect(error).toMatchObject({ code: 'store_corrupt' })
    expect(error.message).toContain(KEYS_PATH)
    expect(disk.contentOf(PATH)).toEqual(before)
  })

  test('use free blocks again, so that their file stays small', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    for (let version = 1; version <= 50; version++) {
      await journal.write([secret('a', version), secret(`b${version}`, 100)])
      await journal.eraseObsoleteSecrets()
    }
    expect(disk.contentOf(KEYS_PATH).length).toBeLessThan(6 * 4096)
  })

  test('separate resting records from changing ones, so that an erasure does not store them again', async () => {
    const disk = new TestingDisk()
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write(Array.from({ length: 100 }, (_, i) => secret(`resting ${i}`, 1, 2_000)))
    const lengths: number[] = []
    for (let version = 1; version <= 5; version++) {
      await journal.write([secret('changing', version, 2_000)])
      await journal.eraseObsoleteSecrets()
      lengths.push(disk.contentOf(PATH).length)
    }
    expect(lengths[2]! - lengths[1]!).toBeGreaterThan(200_000)
    expect(lengths[4]! - lengths[3]!).toBeLessThan(10_000)
    expect(await journal.load()).toHaveLength(101)
  })
})

test('a store that does not overwrite the keys is found by the thief', async () => {
  const disk = new TestingDisk()
  const { destroy } = SecretSegments.prototype
  SecretSegments.prototype.destroy = async () => undefined
  try {
    const journal = await StoreJournal.open(disk, PATH)
    await journal.write([secret('a', 1)])
    await journal.write([secret('a', 2)])
    await journal.eraseObsoleteSecrets()
    expect(stolenFrom(disk.everyContent())).toEqual([1, 2])
  } finally {
    SecretSegments.prototype.destroy = destroy
  }
})
