import type { Swept } from '@sealpost/queue'
import { beforeEach, expect, test } from 'vitest'
import { Failures } from './background.ts'
import { Sweeps } from './releases.ts'
import { ManualClock } from './test/manual-clock.ts'

const NOTHING: Swept = { expired: 0, dead: 0, forgotten: 0, isRound: true }
const SOMETHING: Swept = { ...NOTHING, forgotten: 1 }

let clock: ManualClock
let begun: PromiseWithResolvers<Swept>[]
let sweeps: Sweeps
beforeEach(() => {
  clock = new ManualClock()
  begun = []
  const report = { failed: () => undefined, fault: () => undefined, swept: () => undefined }
  const sweep = () => {
    const next = Promise.withResolvers<Swept>()
    begun.push(next)
    return next.promise
  }
  sweeps = new Sweeps({ queue: { sweep }, report, failures: new Failures(clock, report) })
})

/** Returns how many sweeps these ticks start, if each completes with `found` before the next tick. */
async function sweepsOf(ticks: number, found: Swept): Promise<number> {
  const before = begun.length
  for (let i = 0; i < ticks; i++) {
    sweeps.tick()
    begun.at(-1)?.resolve(found)
    await clock.turn()
  }
  return begun.length - before
}

test('each of three shards sweeps every third time', async () => {
  expect(await sweepsOf(6, SOMETHING)).toBe(6)
  sweeps.shardCount = 3
  expect(await sweepsOf(6, SOMETHING)).toBe(2)
  sweeps.shardCount = 1
  expect(await sweepsOf(6, SOMETHING)).toBe(6)
})

test('a long sweep does not overlap another', () => {
  sweeps.tick()
  sweeps.tick()
  expect(begun.length).toBe(1)
})

test('sweeps that find nothing become rarer, and those that find something run at the full rate', async () => {
  expect(await sweepsOf(1 + 2 + 4 + 4, NOTHING)).toBe(4)
  expect(await sweepsOf(4, SOMETHING)).toBe(1)
  expect(await sweepsOf(3, SOMETHING)).toBe(3)
  expect(await sweepsOf(3, { ...NOTHING, isRound: false })).toBe(3)
})
