import { expect, test } from 'vitest'
import { Sweeps } from './sweeps.ts'

const NOTHING = { expired: 0, dead: 0, forgotten: 0, isRound: true }
const SOMETHING = { ...NOTHING, forgotten: 1 }
const NEVER = 2 ** 30

function newSweeps() {
  const found = { last: SOMETHING }
  const begun: (() => void)[] = []
  const sweeps = new Sweeps(
    {
      sweep: () => new Promise((resolve) => begun.push(() => resolve(found.last))),
      swept: () => undefined,
      failed: () => undefined,
    },
    NEVER,
  )
  sweeps.stop()
  /** How many looks so many ticks begin, each of which ends before the next tick. */
  const looksOf = async (ticks: number) => {
    const before = begun.length
    for (let i = 0; i < ticks; i++) {
      sweeps.tick()
      begun.at(-1)?.()
      await new Promise(setImmediate)
    }
    return begun.length - before
  }
  return { sweeps, begun, found, looksOf }
}

test('of three shards each looks every third time', async () => {
  const { sweeps, looksOf } = newSweeps()
  expect(await looksOf(6)).toBe(6)
  sweeps.shardCount = 3
  expect(await looksOf(6)).toBe(2)
  sweeps.shardCount = 1
  expect(await looksOf(6)).toBe(6)
})

test('a look that takes long is not begun twice', () => {
  const { sweeps, begun } = newSweeps()
  sweeps.tick()
  sweeps.tick()
  expect(begun.length).toBe(1)
})

test('where nothing is over it looks less and less, and where something is as often as it can', async () => {
  const { found, looksOf } = newSweeps()
  found.last = NOTHING
  expect(await looksOf(1 + 2 + 4 + 4)).toBe(4)
  found.last = SOMETHING
  expect(await looksOf(4)).toBe(1)
  expect(await looksOf(3)).toBe(3)
  found.last = { ...NOTHING, isRound: false } // there is more to walk
  expect(await looksOf(3)).toBe(3)
})
