/** The generated parts of docs/BENCHMARKS.md, by the names of their markers. Null: nothing of it was measured yet. */

import { markdownTable } from '@sealpost/harness/report/markdown'
import { count, figure, orDash } from '@sealpost/harness/report/text'
import { YARDSTICK_NAMES } from '@sealpost/loadtest/command/command'
import type { BaselineResult, LoadResult } from '@sealpost/loadtest/run/result'
import type { Measured, Results } from './results.ts'
import { connectionsTable, shardsTable } from './shard-tables.ts'
import { backlogTable, soakTable } from './soak-tables.ts'

export function tablesOf(results: Results): Record<string, string | null> {
  return {
    machine: machineText(results),
    burst: burstTable(results),
    time: timeTable(results),
    pairs: pairsTable(results.pairs),
    small: smallTable(results.small?.small, results.cold?.cold),
    peers: withChart(peersTable(results.peers), 'peers', 'Throughput against peers'),
    paced: withChart(pacedTable(results.paced), 'latency', 'Latency by percentile, a line for each rate'),
    shards: shardsTable(results.shards),
    connections: connectionsTable(results.connections?.connections),
    idle: idleTable(results.idle?.idle),
    soak: withChart(soakTable(results), 'soak', 'p99 of each minute of the soaks'),
    backlog: backlogTable(results['soak-backlog']?.['soak-backlog']),
  }
}

const withChart = (table: string | null, chart: string, words: string): string | null =>
  table && `${table}\n\n![${words}](benchmarks/${chart}.svg)`

type Runs = Results[string] | undefined

/** A load test's own result; the kind of run tells that it is one. */
const loadOf = (measured: Measured): LoadResult => measured.result as LoadResult
/** Results from before a clock existed do not have it. */
const latency = (of: { p50: number; p99: number } | undefined): string =>
  of ? `${figure(of.p50)} / ${figure(of.p99)}` : '–'
const faultsOf = ({ lost, timedOut, duplicates, outOfOrder, misdelivered }: LoadResult): string =>
  count(lost + timedOut + duplicates + outOfOrder + misdelivered)

function machineText(results: Results): string | null {
  const all = Object.values(results).flatMap((runs) => Object.values(runs))
  const latest = all.toSorted((a, b) => a.machine.date.localeCompare(b.machine.date)).at(-1)
  const load = all.find(({ result }) => result.postgresVersion !== undefined)
  if (!latest || !load) return null
  const { cores, cpu, memoryGb, system, bun, date } = latest.machine
  const { postgresVersion, durability } = loadOf(load)
  const hardware = `${count(cores)} cores (${cpu}), ${count(memoryGb)} GB of memory, ${system}`
  const software = `PostgreSQL ${postgresVersion} with \`fsync=${durability.fsync}\` and \`synchronous_commit=${durability.synchronousCommit}\``
  return `Measured on ${date}: ${hardware}; ${software}; Bun ${bun}; ${commitsText(results)}.`
}

/** Parts are measured again one by one, each as a whole. */
function commitsText(results: Results): string {
  const shaOf = ([, runs]: [string, Results[string]]) => Object.values(runs)[0]?.machine.gitSha ?? 'unknown'
  const parts = Map.groupBy(Object.entries(results), shaOf)
  if (parts.size === 1) return `commit ${[...parts.keys()][0]}`
  const texts = [...parts].map(([sha, of]) => `${sha} (${of.map(([part]) => part).join(', ')})`)
  return `commits ${texts.join(', ')}`
}

function burstTable(results: Results): string | null {
  const burst = results.burst?.burst
  if (!burst) return null
  const rows = [['Sealpost, window 64', ...burstCells(loadOf(burst))]]
  const { baseline } = loadOf(burst)
  if (baseline) rows.push([YARDSTICK_NAMES.relay, ...relayCells(baseline)])
  const others = [
    ['Sealpost, window 8', results.window8?.window8],
    ['Sealpost, all through the drain', results.drain?.drain],
    ['Sealpost, 800,000 messages', results['burst-800k']?.['burst-800k']],
  ] as const
  for (const [name, measured] of others) if (measured) rows.push([name, ...burstCells(loadOf(measured))])
  const head = ['', 'messages', 'messages/s', 'call → push p50 / p99 ms', 'send → ack p50 / p99 ms']
  const rest = ['send → push p50 / p99 ms', 'broker RSS MB', 'transactions a message']
  return markdownTable([...head, ...rest, 'leased on insert / claimed', 'lost, twice or misplaced'], rows)
}

function burstCells(result: LoadResult): string[] {
  const { total, messagesPerSecond, brokerRssMbPeak, transactionsPerMessage, deliveries } = result
  const ways = deliveries ? `${count(deliveries.leasedOnInsert)} / ${count(deliveries.claimed)}` : '–'
  const cost = [orDash(brokerRssMbPeak), orDash(transactionsPerMessage), ways]
  return [count(total), count(messagesPerSecond), ...latencyCells(result), ...cost, faultsOf(result)]
}

function relayCells(result: BaselineResult): string[] {
  const { delivered, messagesPerSecond, relayRssMbPeak, lost } = result
  const cost = [orDash(relayRssMbPeak), '–', '–']
  return [count(delivered), count(messagesPerSecond), ...latencyCells(result), ...cost, count(lost)]
}

const latencyCells = ({ callToPushMs, ackMs, e2eMs }: Pick<LoadResult, 'callToPushMs' | 'ackMs' | 'e2eMs'>): string[] =>
  [callToPushMs, ackMs, e2eMs].map(latency)

function timeTable(results: Results): string | null {
  const [burst, drain] = [results.burst?.burst, results.drain?.drain]
  if (!burst || !drain) return null
  const perMessage = (seconds: number | null, of: LoadResult) => orDash(seconds && (seconds * 1e6) / of.acked)
  const row = (name: string, pick: (of: LoadResult) => number | null) => [
    name,
    ...[burst, drain].map(loadOf).map((of) => perMessage(pick(of), of)),
  ]
  return markdownTable(
    ['CPU of a message, µs', 'burst, window 64', 'all through the drain'],
    [
      row('load generator: seal, frame, open, compare', (of) => of.loadgenCpuSeconds),
      row('broker: decode, decide, batch, encode, push', (of) => of.brokerCpuSeconds),
      row('Postgres: insert, mark, ledger, delete, WAL', (of) => of.postgresCpuSeconds),
    ],
  )
}

function pairsTable(runs: Runs): string | null {
  if (!runs) return null
  const rows = (['relay', 'plain-sql'] as const).flatMap((against) => {
    const pairs = Object.entries(runs).filter(([key]) => key.startsWith(against))
    const results = pairs.map(([, measured]) => loadOf(measured))
    const ratios = results.map(({ baselineRatio }) => baselineRatio ?? 0)
    const own = middle(results.map(({ messagesPerSecond }) => messagesPerSecond))
    const theirs = middle(results.map(({ baselineMessagesPerSecond }) => baselineMessagesPerSecond ?? 0))
    const cells = [count(theirs), count(own), figure(middle(ratios)), ratios.map(figure).join(', ')]
    return pairs.length === 0 ? [] : [[YARDSTICK_NAMES[against], ...cells]]
  })
  return markdownTable(['against', 'its messages/s', "Sealpost's", 'ratio, the middle one', 'ratio of each pair'], rows)
}

function middle(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0
}

function smallTable(measured: Measured | undefined, cold: Measured | undefined): string | null {
  if (!measured?.result.sweep) return null
  const row = (of: LoadResult, name = count(of.peers)) => {
    const { p50, p95, p99 } = of.e2eMs
    const times = [latency(of.callToPushMs), [p50, p95, p99].map(figure).join(' / ')]
    return [name, count(of.messagesPerSecond), ...times, faultsOf(of)]
  }
  const rows = measured.result.sweep.map((of) => row(of))
  if (cold) rows.push(row(loadOf(cold), `${count(loadOf(cold).peers)}, keys exchanged inside the clock (\`--cold\`)`))
  const head = ['peers, 100 messages each', 'messages/s', 'call → push p50 / p99 ms', 'send → push p50 / p95 / p99 ms']
  return markdownTable([...head, 'lost, twice or misplaced'], rows)
}

function peersTable(runs: Runs): string | null {
  if (!runs) return null
  const rows = byNumber(runs).map(([, measured]) => {
    const of = loadOf(measured)
    return [count(of.peers), count(of.total), count(of.messagesPerSecond), latency(of.e2eMs), faultsOf(of)]
  })
  const head = ['peers', 'messages', 'messages/s', 'send → push p50 / p99 ms', 'lost, twice or misplaced']
  return markdownTable(head, rows)
}

function pacedTable(runs: Runs): string | null {
  if (!runs) return null
  const rows = byNumber(runs).map(([, measured]) => {
    const of = loadOf(measured)
    const all = ({ p50, p95, p99 }: LoadResult['e2eMs']) => [p50, p95, p99].map(figure).join(' / ')
    const cpu = [of.brokerCpuSeconds, of.postgresCpuSeconds].map((s) => orDash(s && (s * 1e6) / of.acked)).join(', ')
    const rate = count(of.rate ?? 0)
    const relayed = of.baseline ? all(of.baseline.e2eMs) : '–'
    return [rate, all(of.ackMs), all(of.e2eMs), relayed, cpu, orDash(of.transactionsPerMessage), faultsOf(of)]
  })
  const head = [
    'messages/s asked',
    'due → ack p50 / p95 / p99 ms',
    'due → push p50 / p95 / p99 ms',
    'the same at a relay',
  ]
  return markdownTable(
    [...head, 'CPU a message: broker, Postgres µs', 'transactions a message', 'lost, twice or misplaced'],
    rows,
  )
}

export const byNumber = (runs: NonNullable<Runs>): [string, Measured][] =>
  Object.entries(runs).toSorted(([a], [b]) => Number(a) - Number(b))

function idleTable(measured: Measured | undefined): string | null {
  const { sessions, cpuShare, rssKbPerSession, rssMbAfter } = measured?.result ?? {}
  if (sessions === undefined || cpuShare === undefined) return null
  return markdownTable(
    ['silent sessions', 'broker CPU, % of a core', 'RSS a session kB', 'broker RSS MB'],
    [[count(sessions), figure(cpuShare * 100), figure(rssKbPerSession!), figure(rssMbAfter!)]],
  )
}
