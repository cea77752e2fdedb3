/** Latencies as the scenarios show them: a table, a graph of their percentiles, and one over time. */
import { PERCENTILE_AXIS, spectrumLine } from '@sealpost/harness/report/chart'
import type { Latencies, Quantile } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import type { Ledger } from './http/ledger.ts'
import type { Graph, Sheet } from './scenario.ts'

export function latencySheet(rows: readonly (readonly [name: string, of: Latencies])[]): Sheet {
  return {
    head: ['milliseconds', 'messages', 'p50', 'p95', 'p99', 'max'],
    rows: rows.map(([name, of]) => [
      name,
      count(of.count),
      ...[50, 95, 99, 100].map((percent) => figure(of.at(percent))),
    ]),
  }
}

/** From the median on; a line for each. */
export function spectrumGraph(rows: readonly (readonly [name: string, spectrum: readonly Quantile[]])[]): Graph {
  const lines = rows.map(([name, spectrum]) => spectrumLine(name, spectrum))
  const title = lines.length === 1 ? `Latency by percentile: ${lines[0]!.name}` : 'Latency by percentile'
  return { title, x: PERCENTILE_AXIS, y: 'ms', lines }
}

export function graphOf({ seconds }: Ledger): Graph {
  return {
    title: 'Due → push, by the second',
    x: 'seconds',
    y: 'ms',
    lines: [
      { name: 'p50', points: seconds.map(({ second, p50 }) => [second, p50] as const) },
      { name: 'p99', points: seconds.map(({ second, p99 }) => [second, p99] as const) },
    ],
  }
}

/** Codes and how often. */
export function failuresOf({ failures }: Ledger): string {
  return (
    Object.entries(failures)
      .map(([code, times]) => `${code} ${count(times)}`)
      .join(', ') || 'none'
  )
}
