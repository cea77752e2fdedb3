import { expect, test } from 'vitest'
import { budgetOf, minutesText } from './torture.ts'

const MINUTE = 60_000

test('the faults of all parts end early enough for the drain and the check', () => {
  let nowMs = 1000
  const budget = budgetOf(5 * MINUTE, 4, () => nowMs)
  const mixedEndMs = budget.partEndMs({ isAlone: false, aloneAfter: 4 })
  expect(mixedEndMs).toBe(1000 + 3 * MINUTE)
  expect(budget.faultsEndMs(mixedEndMs)).toBe(1000 + 0.85 * 3 * MINUTE)
  nowMs = mixedEndMs + 20_000 // if the mixed part took too long
  for (let aloneAfter = 3; aloneAfter >= 0; aloneAfter--) {
    const endMs = budget.partEndMs({ isAlone: true, aloneAfter })
    expect(budget.hasRoom(endMs)).toBe(true)
    expect(budget.faultsEndMs(endMs)).toBeLessThan(endMs)
    nowMs = endMs
  }
  expect(nowMs).toBeLessThanOrEqual(1000 + 5 * MINUTE)
  expect(budget.hasRoom(budget.partEndMs({ isAlone: true, aloneAfter: 0 }))).toBe(false)
})

test('each part that runs alone gets at most a minute, and the mixed part the rest', () => {
  const budget = budgetOf(60 * MINUTE, 5, () => 0)
  expect(budget.partEndMs({ isAlone: false, aloneAfter: 5 })).toBe(55 * MINUTE)
  expect(budget.partEndMs({ isAlone: true, aloneAfter: 4 })).toBe(MINUTE)
})

test('a short run has no time for parts that run alone', () => {
  const budget = budgetOf(12_000, 5, () => 0)
  expect(budget.hasRoom(budget.partEndMs({ isAlone: true, aloneAfter: 4 }))).toBe(false)
})

test('a duration is shown in minutes and seconds', () => {
  expect([0, 65_000, 600_400, -5].map(minutesText)).toEqual(['0:00', '1:05', '10:00', '0:00'])
})
