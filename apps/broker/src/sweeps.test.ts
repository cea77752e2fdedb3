import { expect, test } from 'vitest'
import { Sweeps } from './sweeps.ts'

const NOTHING = { expired: 0, dead: 0, forgotten: 0, isRound: true }
const NEVER = 2 ** 30

function newSweeps() {
  const begun: (() => void)[] = []
  const sweeps = new Sweeps(
    {
      sweep: () => new Promise((resolve) => begun.push(() => resolve(NOTHING))),
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
  return { sweeps, begun, looksOf }
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
