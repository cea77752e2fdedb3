/** Defines the pages with generated figures, sentences and charts. */

import { type Chart, drawChart, PERCENTILE_AXIS, spectrumLine } from '@sealpost/harness/report/chart'
import { count, plural } from '@sealpost/harness/report/text'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import type { Measured, Results, TortureFigures } from './results.ts'
import { byNumber, comparedTable, SOAKS, tablesOf } from './tables.ts'

export interface GeneratedPage {
  readonly path: string
  /** Returns texts by marker; null if not measured. */
  textsOf(results: Results): Readonly<Record<string, string | null>>
}

export const PAGES: readonly GeneratedPage[] = [
  {
    path: 'README.md',
    textsOf: (results) => ({
      compared: comparedTable(results),
      torture: tortureClause(results.torture?.torture),
    }),
  },
  { path: 'docs/BENCHMARKS.md', textsOf: tablesOf },
  { path: 'docs/PROMISES.md', textsOf: (results) => ({ torture: tortureCell(results.torture?.torture) }) },
]

/** Returns "In 9 faults of 3 kinds (`…`), none of 100 acknowledged messages was lost, misdelivered or out of order". */
export function tortureClause(measured: Measured | undefined): string | null {
  const figures = measured?.result.torture
  if (!figures) return null
  const { acked, lost, misdelivered, misordered } = figures
  const how = `In ${faultsText(figures)} (\`${wordsOf(measured)}\`), `
  if (lost + misdelivered + misordered === 0)
    return `${how}none of ${count(acked)} acknowledged messages was lost, misdelivered or out of order`
  const broken = `${count(lost)} were lost, ${count(misdelivered)} were misdelivered and ${count(misordered)} were out of order`
  return `${how}of ${count(acked)} acknowledged messages, ${broken}`
}

/** Returns the figures of the torture test for a table cell. */
export function tortureCell(measured: Measured | undefined): string | null {
  const figures = measured?.result.torture
  if (!figures) return null
  const { acked, lost } = figures
  return `${count(lost)} of ${count(acked)} lost, in ${faultsText(figures)} (\`${measured.command}\`)`
}

const faultsText = ({ faults, kinds }: TortureFigures): string =>
  `${plural(faults, 'fault')} of ${plural(kinds, 'kind')}`

/** Returns the command's arguments. */
const wordsOf = ({ command }: Measured): string => command.replace('bun scripts/torture.ts ', '')

export function chartsOf(results: Results): Record<string, string> {
  const charts = { peers: peersChart(results), latency: latencyChart(results), soak: soakChart(results) }
  return Object.fromEntries(
    Object.entries(charts).flatMap(([name, chart]) => (chart ? [[name, drawChart(chart)]] : [])),
  )
}

function peersChart({ peers }: Results): Chart | null {
  if (!peers) return null
  const points = byNumber(peers).map(([, { result }]) => [result.peers!, result.messagesPerSecond!] as const)
  const labels = points.map(([at]) => [at, count(at)] as const)
  return {
    title: 'Throughput against peers, window 64',
    x: { name: 'peers', min: 0, labels },
    y: { name: 'messages/s', min: 0 },
    lines: [{ name: 'Sealpost', points }],
  }
}

function latencyChart({ paced }: Results): Chart | null {
  if (!paced) return null
  const lines = byNumber(paced).map(([, { result }]) =>
    spectrumLine(`${count(result.rate ?? 0)}/s`, (result as LoadResult).e2eSpectrum),
  )
  return {
    title: 'Due → push',
    x: PERCENTILE_AXIS,
    y: { name: 'ms', isLog: true },
    lines,
  }
}

function soakChart(results: Results): Chart | null {
  const lines = SOAKS.flatMap(([part, name]) => {
    const soak = results[part]?.[part]?.result.soak
    if (!soak) return []
    const points = soak.rows.map(({ fromSeconds, p99 }) => [fromSeconds / 60, p99] as const)
    const tinted = soak.hold && ([soak.hold.fromSeconds / 60, soak.hold.toSeconds / 60] as const)
    return [{ name, points, tinted: tinted ?? undefined }]
  })
  if (lines.length === 0) return null
  return {
    title: 'Soak: p99 of each minute, due → push',
    x: { name: 'minutes (tinted: the snapshot is held)', min: 0 },
    y: { name: 'ms', min: 0 },
    lines,
  }
}
