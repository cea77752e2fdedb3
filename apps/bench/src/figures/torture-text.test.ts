import type { VerdictLine } from '@sealpost/torture/verdict'
import { expect, test } from 'vitest'
import { tortureCell, tortureClause } from './pages.ts'
import type { Measured } from './results.ts'
import { tortureFigures } from './results.ts'

const breaches = { lost: 0, duplicated: 0, misordered: 0, misdelivered: 0, tampered: 0, struck: 0, unanswered: 0 }
const line = (rounds: number) => ({ rounds, breaches, acked: 100 }) as unknown as VerdictLine
const report = { seed: 13, lines: [line(2), line(7), line(0)], total: { ...line(9), acked: 5_300 } }
const measured = (torture = tortureFigures(report)): Measured => ({
  command: 'bun scripts/torture.ts --minutes 5 --seed 13',
  exitCode: 0,
  machine: {} as never,
  result: { torture },
})

test('the kinds are the scenarios with at least one fault', () => {
  expect(tortureFigures(report)).toEqual({
    ...{ seed: 13, faults: 9, kinds: 2, acked: 5_300 },
    ...{ lost: 0, misdelivered: 0, misordered: 0 },
  })
})

test('one run fills the sentence and the cell', () => {
  expect(tortureClause(measured())).toBe(
    'In 9 faults of 2 kinds (`--minutes 5 --seed 13`), none of 5,300 acknowledged messages was lost, misdelivered or out of order',
  )
  expect(tortureCell(measured())).toBe(
    '0 of 5,300 lost, in 9 faults of 2 kinds (`bun scripts/torture.ts --minutes 5 --seed 13`)',
  )
})

test('a run that lost a message reports it', () => {
  const lossy = measured({ ...tortureFigures(report), lost: 3, misordered: 1 })
  expect(tortureClause(lossy)).toContain(
    'of 5,300 acknowledged messages, 3 were lost, 0 were misdelivered and 1 were out of order',
  )
  expect(tortureCell(lossy)).toContain('3 of 5,300 lost')
})

test('without a measurement there is no sentence', () => {
  expect([tortureClause(undefined), tortureCell(undefined)]).toEqual([null, null])
})
