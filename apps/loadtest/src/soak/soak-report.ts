/** What a soak adds to the report: a row a minute, and its verdicts. */

import { type Colors, count, type Fact, factList, figure, orDash, plainTable } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import type { ReportOptions } from '../report/report.ts'
import type { Sheet } from '../scenarios/scenario.ts'
import { STEP } from './backlog.ts'
import type { BacklogFigures, SoakFigures } from './soak.ts'
import { megabytes, type SoakRow } from './soak-judge.ts'

const HEAD = ['from', 'messages', 'p50', 'p99 ms', 'queue', 'indexes', 'ledger', 'dead rows', 'queued', 'broker RSS']

export function printSoak(figures: SoakFigures, { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const parts = [minutes(figures, paint), verdicts(figures, paint), figures.backlog && backlog(figures.backlog, paint)]
  return `${parts.filter(Boolean).join('\n\n')}\n\n`
}

function minutes(figures: SoakFigures, paint: Colors): string {
  const { head, rows } = soakSheet(figures)
  const table = plainTable([...head], paint)
  for (const row of rows) table.push([...row])
  const note = figures.hold ? `\n${paint.dim('  * another session held a snapshot')}` : ''
  return `${table.toString()}${note}`
}

/** A row for each span. */
export function soakSheet({ rows, hold }: SoakFigures): Sheet {
  const cells = rows.map((row) => {
    const isHeld = hold !== null && row.fromSeconds < hold.toSeconds && rowEnd(row, rows) > hold.fromSeconds
    return [
      `${clock(row.fromSeconds)}${isHeld ? ' *' : ''}`,
      count(row.delivered),
      ...[row.p50, row.p99].map(figure),
      megabytes(row.bytes.message_queue ?? 0),
      megabytes(indexBytes(row)),
      megabytes(row.bytes.dedupe_ledger ?? 0),
      ...[row.dead, row.queued].map(count),
      `${orDash(row.brokerRssMb)} MB`,
    ]
  })
  return { head: HEAD, rows: cells }
}

const rowEnd = (row: SoakRow, rows: readonly SoakRow[]): number => row.fromSeconds + (rows[1]?.fromSeconds ?? 0)

const indexBytes = ({ bytes }: SoakRow): number =>
  Object.entries(bytes).reduce((sum, [name, size]) => sum + (/^message_queue_/.test(name) ? size : 0), 0)

function clock(seconds: number): string {
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`
}

function verdicts({ verdicts }: SoakFigures, paint: Colors): string {
  return verdicts
    .map(({ isMet, sentence }) => (isMet ? `  ${paint.green('✔')} ${sentence}` : `  ${paint.red(`✘ ${sentence}`)}`))
    .join('\n')
}

function backlog(figures: BacklogFigures, paint: Colors): string {
  const { messages, storedPerSecond, drainedPerSecond, delivered, lost, timedOut, duplicates, outOfOrder } = figures
  const faults = `${count(lost)} lost, ${count(timedOut)} timed out, ${count(duplicates)} duplicates, ${count(outOfOrder)} out of order`
  const facts: Fact[] = [
    [
      'backlog',
      `${count(messages)} messages, stored at ${count(storedPerSecond)}/s, drained at ${count(drainedPerSecond)}/s`,
    ],
    ...stepsOf(figures),
    ['checked', `${count(delivered)} of them arrived: ${faults}`],
    ['beside it', `p99 ${figure(figures.p99Ratio)} times that of a run without it (${figure(figures.aloneMs.p99)} ms)`],
  ]
  return factList(facts, paint)
}

/** What is drained late is drained more slowly. */
function stepsOf({ stepsPerSecond }: BacklogFigures): Fact[] {
  if (stepsPerSecond.length < 2) return []
  return [['drain', `each ${count(STEP)} at ${stepsPerSecond.map((rate) => count(rate)).join(' · ')}/s`]]
}
