/** The tables of several brokers, and of many connections on one. */

import { markdownTable } from '@sealpost/harness/report/markdown'
import { count, figure, orDash } from '@sealpost/harness/report/text'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import type { Measured, Results } from './results.ts'

const ROWS = [
  ['one', 'one broker, as fast as it goes'],
  ['two', 'two brokers'],
  ['one-paced', 'one broker, 1,000 messages/s'],
  ['two-paced', 'two brokers, 1,000 messages/s'],
] as const

export function shardsTable(runs: Results[string] | undefined): string | null {
  if (!runs) return null
  const rows = ROWS.flatMap(([key, name]) => {
    const measured = runs[key]
    return measured ? [[name, ...shardCells(measured.result as LoadResult)]] : []
  })
  const head = ['', 'from shard to shard, %', 'messages/s', 'send or due → push p50 / p99 ms']
  return markdownTable([...head, 'CPU a message: brokers, Postgres µs', 'lost, twice or misplaced'], rows)
}

function shardCells(result: LoadResult): string[] {
  const { crossShare, messagesPerSecond, e2eMs, acked, brokerCpuSeconds, postgresCpuSeconds } = result
  const { lost, timedOut, duplicates, outOfOrder, misdelivered } = result
  const cpu = [brokerCpuSeconds, postgresCpuSeconds].map((seconds) => orDash(seconds && (seconds * 1e6) / acked))
  const faults = lost + timedOut + duplicates + outOfOrder + misdelivered
  const speed = [figure(crossShare * 100), count(messagesPerSecond), `${figure(e2eMs.p50)} / ${figure(e2eMs.p99)}`]
  return [...speed, cpu.join(', '), count(faults)]
}

/** The scenario's own table, a row for each step, and what it found besides. */
export function connectionsTable(measured: Measured | undefined): string | null {
  const [scenario] = measured?.result.scenarios ?? []
  const [sheet] = scenario?.sheets ?? []
  if (!scenario || !sheet) return null
  const facts = scenario.facts.map(([name, text]) => `- ${name}: ${text}`)
  return `${markdownTable(sheet.head, sheet.rows)}\n\n${facts.join('\n')}`
}
