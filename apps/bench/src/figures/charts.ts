/** Which charts there are, by the name of their file. One of which nothing was measured is not drawn. */

import { type Chart, drawChart, PERCENTILE_AXIS, spectrumLine } from '@sealpost/harness/report/chart'
import { count } from '@sealpost/harness/report/text'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import type { Results } from './results.ts'
import { SOAKS } from './soak-tables.ts'
import { byNumber } from './tables.ts'

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
