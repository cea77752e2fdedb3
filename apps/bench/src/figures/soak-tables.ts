/** The tables of soaks. */

import { markdownTable } from '@sealpost/harness/report/markdown'
import { count, figure, orDash } from '@sealpost/harness/report/text'
import type { SoakFigures } from '@sealpost/loadtest/soak/soak'
import type { Measured, Results } from './results.ts'

/** The part's name, and what to call it. */
export const SOAKS = [
  ['soak', 'soak'],
  ['soak-held', 'snapshot held'],
  ['soak-backlog', 'beside backlog'],
] as const

export function soakTable(results: Results): string | null {
  const rows = SOAKS.flatMap(([part, name]) => {
    const measured = results[part]?.[part]
    const soak = measured?.result.soak
    return soak ? [[name, ...cellsOf(measured, soak)]] : []
  })
  if (rows.length === 0) return null
  const ends = 'second → last minute'
  const head = [
    '',
    'minutes',
    'messages',
    `p99 ms, ${ends}`,
    `queue MB, ${ends}`,
    `dead rows, ${ends}`,
    'broker RSS MB',
  ]
  return markdownTable([...head, 'held'], rows)
}

function cellsOf({ result }: Measured, { seconds, rows, verdicts }: SoakFigures): string[] {
  const ends = [rows[1]!, rows.at(-1)!]
  const both = (values: number[], format: (value: number) => string) => values.map(format).join(' → ')
  const isHeld = verdicts.every(({ isMet }) => isMet)
  return [
    figure(seconds / 60),
    count(result.total ?? 0),
    both(
      ends.map(({ p99 }) => p99),
      figure,
    ),
    both(
      ends.map(({ bytes }) => (bytes.message_queue ?? 0) / 1e6),
      figure,
    ),
    both(
      ends.map(({ dead }) => dead),
      count,
    ),
    orDash(ends[1]!.brokerRssMb),
    isHeld ? 'all' : verdicts.flatMap(({ isMet, sentence }) => (isMet ? [] : [`not: ${sentence}`])).join('; '),
  ]
}

export function backlogTable(measured: Measured | undefined): string | null {
  const backlog = measured?.result.soak?.backlog
  if (!backlog) return null
  const { messages, storedPerSecond, drainedPerSecond, p99Ratio, delivered, lost, duplicates, outOfOrder } = backlog
  const speed = [storedPerSecond, drainedPerSecond].map(count)
  const faults = count(lost + duplicates + outOfOrder + messages - delivered)
  return markdownTable(
    ['messages waiting', 'stored/s', 'drained/s', 'p99 beside it, times that without', 'lost, twice or misplaced'],
    [[count(messages), ...speed, figure(p99Ratio), faults]],
  )
}
