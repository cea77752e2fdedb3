import { expect, test } from 'vitest'
import type { Attack } from './attack.ts'
import { type AttackTurn, outcomeOf, type TurnPair } from './measure.ts'

const attack: Attack = { name: 'a', does: 'x', run: () => Promise.resolve() }
const turn = (changed: Partial<AttackTurn>): AttackTurn => ({ p50Ms: 1, p99Ms: 10, tries: 5, succeeded: 5, cpuShare: 0.1, answers: {}, ...changed }) // biome-ignore format: one thing
const pairs = (...under: Partial<AttackTurn>[]): TurnPair[] =>
  under.map((each) => ({ without: turn({}), under: turn(each) }))

test('the median of the pairs counts, not one bad pair', () => {
  const outcome = outcomeOf(attack, pairs({ p99Ms: 20 }, { p99Ms: 5000 }, { p99Ms: 30 }))
  expect(outcome).toMatchObject({ p99MsMore: 20, isWithinBars: true })
})

test('an attack fails the bars if it delays messages or keeps an honest peer out', () => {
  expect(outcomeOf(attack, pairs({ p99Ms: 61 })).isWithinBars).toBe(false)
  expect(outcomeOf(attack, pairs({ succeeded: 4 })).isWithinBars).toBe(false)
})

test('the CPU bar applies only to one unproven address', () => {
  const busy = pairs({ cpuShare: 0.16 })
  expect(outcomeOf(attack, busy).isWithinBars).toBe(true)
  expect(outcomeOf({ ...attack, isOneUnprovenAddress: true }, busy).isWithinBars).toBe(false)
})
