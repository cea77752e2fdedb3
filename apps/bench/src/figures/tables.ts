/** Renders the generated parts of README.md and docs/BENCHMARKS.md; null without measurements. */
import { count, figure, markdownTable, median, orDash } from '@sealpost/harness/report/text'
import { YARDSTICK_NAMES } from '@sealpost/loadtest/environment/environment'
import { comparisonRows, phaseName } from '@sealpost/loadtest/rivals/result'
import type { BaselineResult, LoadResult } from '@sealpost/loadtest/run/result'
import { type EarlierRun, PUBLISHED, RERUN, RERUN_PER_SECOND } from '@sealpost/loadtest/scenarios/messages/burst'
import type { ScenarioFigures } from '@sealpost/loadtest/scenarios/scenario'
import type { SoakFigures } from '@sealpost/loadtest/soak/soak-report'
import type { Measured, Results } from './results.ts'

export function tablesOf(results: Results): Record<string, string | null> {
  return {
    machine: machineText(results),
    burst: burstTable(results),
    time: timeTable(results),
    pairs: pairsTable(results.pairs),
    rivals: rivalsTable(results.rivals?.rivals),
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

const FAULTS = 'lost, duplicated, out of order or misdelivered'

const withChart = (table: string | null, chart: string, words: string): string | null =>
  table && `${table}\n\n![${words}](benchmarks/${chart}.svg)`

type Runs = Results[string] | undefined

/** Returns the result of a load test. */
const loadOf = (measured: Measured): LoadResult => measured.result as LoadResult
/** Earlier versions' results lack some latencies. */
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

/** Lists the commits; each part is measured at one. */
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
    ['Sealpost, all messages claimed', results.drain?.drain],
    ['Sealpost, 800,000 messages', results['burst-800k']?.['burst-800k']],
  ] as const
  for (const [name, measured] of others) if (measured) rows.push([name, ...burstCells(loadOf(measured))])
  const head = ['', 'messages', 'messages/s', 'call → push p50 / p99 ms', 'send → ack p50 / p99 ms']
  const rest = ['send → push p50 / p99 ms', 'broker RSS MB', 'transactions per message']
  return markdownTable([...head, ...rest, 'leased on insert / claimed', FAULTS], rows)
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
    ['CPU per message, µs', 'burst, window 64', 'all messages claimed'],
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
    const own = median(results.map(({ messagesPerSecond }) => messagesPerSecond))
    const theirs = median(results.map(({ baselineMessagesPerSecond }) => baselineMessagesPerSecond ?? 0))
    const cells = [count(theirs), count(own), figure(median(ratios)), ratios.map(figure).join(', ')]
    return pairs.length === 0 ? [] : [[YARDSTICK_NAMES[against], ...cells]]
  })
  return markdownTable(
    ['compared with', 'its messages/s', "Sealpost's messages/s", 'median ratio', 'ratio of each pair'],
    rows,
  )
}

/** Renders a row per phase and server, with ratios for others. */
function rivalsTable(measured: Measured | undefined): string | null {
  const { comparison } = measured?.result ?? {}
  if (!comparison) return null
  const rows = comparisonRows(comparison.runs).map(({ rate, name, medians, ratios }) => {
    const { perSecond, p50, p99, serverMicros, rssMb } = medians
    const cells = [count(perSecond), latency({ p50, p99 }), figure(serverMicros), count(rssMb)]
    const times = ratios ? `${orDash(ratios.p50)} / ${orDash(ratios.p99)}` : '–'
    const [speed, cpu] = [ratios?.perSecond, ratios?.serverMicros].map((ratio) => orDash(ratio ?? null))
    return [`${phaseName(rate)}: ${name}`, ...cells, speed!, times, cpu!]
  })
  const head = ['', 'messages/s', 'p50 / p99 ms', 'server CPU per message, µs', 'server RSS MB']
  const ratioHead = ['ratio Sealpost / other: messages/s', 'ratio p50 / p99', 'ratio CPU']
  const versions = Object.values(comparison.versions).join('; ')
  return `${markdownTable([...head, ...ratioHead], rows)}\n\n${versions}.`
}

function smallTable(measured: Measured | undefined, cold: Measured | undefined): string | null {
  if (!measured?.result.sweep) return null
  const row = (of: LoadResult, name = count(of.peers)) => {
    const { p50, p95, p99 } = of.e2eMs
    const times = [latency(of.callToPushMs), [p50, p95, p99].map(figure).join(' / ')]
    return [name, count(of.messagesPerSecond), ...times, faultsOf(of)]
  }
  const rows = measured.result.sweep.map((of) => row(of))
  if (cold)
    rows.push(row(loadOf(cold), `${count(loadOf(cold).peers)}, keys exchanged during the measurement (\`--cold\`)`))
  const head = ['peers, 100 messages each', 'messages/s', 'call → push p50 / p99 ms', 'send → push p50 / p95 / p99 ms']
  return markdownTable([...head, FAULTS], rows)
}

function peersTable(runs: Runs): string | null {
  if (!runs) return null
  const rows = byNumber(runs).map(([, measured]) => {
    const of = loadOf(measured)
    return [count(of.peers), count(of.total), count(of.messagesPerSecond), latency(of.e2eMs), faultsOf(of)]
  })
  const head = ['peers', 'messages', 'messages/s', 'send → push p50 / p99 ms', FAULTS]
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
    'target messages/s',
    'due → ack p50 / p95 / p99 ms',
    'due → push p50 / p95 / p99 ms',
    'due → push of a relay',
  ]
  return markdownTable([...head, 'CPU per message: broker, Postgres, µs', 'transactions per message', FAULTS], rows)
}

export const byNumber = (runs: NonNullable<Runs>): [string, Measured][] =>
  Object.entries(runs).toSorted(([a], [b]) => Number(a) - Number(b))

function idleTable(measured: Measured | undefined): string | null {
  const { sessions, cpuShare, rssKbPerSession, rssMbAfter } = measured?.result ?? {}
  if (sessions === undefined || cpuShare === undefined) return null
  return markdownTable(
    ['idle sessions', 'broker CPU, % of a core', 'RSS per session, kB', 'broker RSS MB'],
    [[count(sessions), figure(cpuShare * 100), figure(rssKbPerSession!), figure(rssMbAfter!)]],
  )
}

const ROWS = [
  ['one', 'one broker, maximum rate'],
  ['two', 'two brokers, maximum rate'],
  ['one-paced', 'one broker, 1,000 messages/s'],
  ['two-paced', 'two brokers, 1,000 messages/s'],
] as const

export function shardsTable(runs: Results[string] | undefined): string | null {
  if (!runs) return null
  const rows = ROWS.flatMap(([key, name]) => {
    const measured = runs[key]
    return measured ? [[name, ...shardCells(measured.result as LoadResult)]] : []
  })
  const head = ['', 'messages between shards, %', 'messages/s', 'send or due → push p50 / p99 ms']
  return markdownTable([...head, 'CPU per message: brokers, Postgres, µs', FAULTS], rows)
}

function shardCells(result: LoadResult): string[] {
  const { crossShare, messagesPerSecond, e2eMs, acked, brokerCpuSeconds, postgresCpuSeconds } = result
  const { lost, timedOut, duplicates, outOfOrder, misdelivered } = result
  const cpu = [brokerCpuSeconds, postgresCpuSeconds].map((seconds) => orDash(seconds && (seconds * 1e6) / acked))
  const faults = lost + timedOut + duplicates + outOfOrder + misdelivered
  const speed = [figure(crossShare * 100), count(messagesPerSecond), `${figure(e2eMs.p50)} / ${figure(e2eMs.p99)}`]
  return [...speed, cpu.join(', '), count(faults)]
}

/** Renders a row per step, and facts. */
export function connectionsTable(measured: Measured | undefined): string | null {
  const [scenario] = measured?.result.scenarios ?? []
  const [sheet] = scenario?.sheets ?? []
  if (!scenario || !sheet) return null
  const facts = scenario.facts.map(([name, text]) => `- ${name}: ${text}`)
  return `${markdownTable(sheet.head, sheet.rows)}\n\n${facts.join('\n')}`
}

/** The parts, with their names in the table. */
export const SOAKS = [
  ['soak', 'soak'],
  ['soak-held', 'with a held snapshot'],
  ['soak-backlog', 'with a backlog'],
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
  return markdownTable([...head, 'targets met'], rows)
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
    ['messages waiting', 'stored/s', 'drained/s', 'p99 with the backlog / without it', FAULTS],
    [[count(messages), ...speed, figure(p99Ratio), faults]],
  )
}

/** The numbers of peers in both sources. */
const SIZES = [10, 50, 100]

type Row = readonly [name: string, published: string, rerun: string, own: string | null]

/** Renders the README's table: v0.1.0 of the earlier project, published and rerun, and the current figures. */
export function comparedTable(results: Results): string | null {
  const burst = loadIfRun(results.burst?.burst)
  if (!burst) return null
  const rows = [...burstRows(burst, loadIfRun(results['burst-800k']?.['burst-800k'])), ...otherRows(results)]
  const measured = rows.flatMap(([name, published, rerun, own]) =>
    own === null ? [] : [[name, published, rerun, own]],
  )
  return markdownTable(['', 'v0.1.0, published', 'v0.1.0, our rerun', 'Sealpost'], measured)
}

function burstRows(burst: LoadResult, long: LoadResult | null): Row[] {
  const { total, delivered, wallMs, messagesPerSecond, callToPushMs, e2eMs, brokerRssMbPeak } = burst
  const { lost, timedOut, outOfOrder, duplicates } = burst
  const share = (of: EarlierRun) => `${count(of.burst.delivered)} in ${figure(of.burst.seconds)} s`
  const speed = `${count(delivered)} in ${figure(wallMs / 1000)} s, ${count(messagesPerSecond)}/s`
  const longer = long ? `; ${count(long.total)} at ${count(long.messagesPerSecond)}/s` : ''
  const faults = [lost + timedOut, duplicates, outOfOrder].map(count).join(' / ')
  const earlier = (of: EarlierRun) => both({ p50: of.burst.p50Ms, p99: of.burst.p99Ms })
  const order = (of: EarlierRun) => (of.burst.outOfOrder === null ? '–' : `0 / – / ${count(of.burst.outOfOrder)}`)
  const memory = (of: EarlierRun) => `${count(of.burst.brokerRssMb)} MB`
  const name = `${count(burst.peers)} peers × ${count(total / burst.peers)} messages, all sent at once: messages delivered`
  return [
    [name, share(PUBLISHED), `${share(RERUN)}, ${count(RERUN_PER_SECOND)}/s`, `**${speed}**${longer}`],
    ['call → push, p50 / p99', earlier(PUBLISHED), earlier(RERUN), callToPushMs ? `**${both(callToPushMs)}**` : '–'],
    ['send → push (after the window admits the message), p50 / p99', '–', '–', `**${both(e2eMs)}**`],
    ['messages lost / delivered twice / out of order', order(PUBLISHED), order(RERUN), `**${faults}**`],
    ['peak memory use of the broker', memory(PUBLISHED), memory(RERUN), `**${figure(brokerRssMbPeak ?? 0)} MB**`],
  ]
}

function otherRows(results: Results): Row[] {
  const sizes = SIZES.join(', ')
  const kill = RERUN.lostInKill!
  return [
    ['acknowledged messages lost when the broker is killed', '–', `${count(kill.lost)} of ${count(kill.of)}`, '**0**'],
    [`${sizes} peers × 100 messages: call → push, p99`, smallCell(PUBLISHED), smallCell(RERUN), ownSmallCell(results)],
    ['100 peers × 100 messages, including the key exchange (`--cold`)', '–', '–', coldCell(results)],
    ['1,000 messages/s: scheduled time → push, p50 / p99', '–', '–', pacedCell(results)],
    ['1,000 messages/s with 10,000 open connections: p99; memory per connection', '–', '–', crowdCell(results)],
    ['the same burst through a relay that stores nothing', '–', '–', relayCell(results)],
  ]
}

const smallCell = ({ sweepP99Ms }: EarlierRun): string => inOne(SIZES.map((size) => sweepP99Ms[size]!))

function ownSmallCell(results: Results): string | null {
  const sweep = results.small?.small?.result.sweep ?? []
  const found = SIZES.map((size) => sweep.find(({ peers }) => peers === size)?.callToPushMs?.p99)
  return found.every((ms) => ms !== undefined) ? `**${inOne(found)}**` : null
}

function coldCell(results: Results): string | null {
  const cold = loadIfRun(results.cold?.cold)
  return cold && `**${figure(cold.wallMs / 1000)} s, ${count(cold.messagesPerSecond)}/s**`
}

function pacedCell(results: Results): string | null {
  const paced = loadIfRun(results.paced?.['1000'])
  return paced && `**${both(paced.e2eMs)}**`
}

function crowdCell(results: Results): string | null {
  const [scenario] = results.connections?.connections?.result.scenarios ?? []
  const { e2eMsP99, kbPerSession }: Partial<ScenarioFigures> = scenario?.figures ?? {}
  return e2eMsP99 === undefined || kbPerSession === undefined
    ? null
    : `**${figure(e2eMsP99)} ms**; ${figure(kbPerSession)} kB`
}

function relayCell(results: Results): string | null {
  const burst = loadIfRun(results.burst?.burst)
  const { baselineMessagesPerSecond, baselineRatio } = burst ?? {}
  if (baselineMessagesPerSecond === undefined || baselineRatio === undefined) return null
  return `${count(baselineMessagesPerSecond)}/s; storage reduces throughput by ${count((1 - baselineRatio) * 100)} %`
}

const loadIfRun = (measured: Measured | undefined): LoadResult | null => (measured ? loadOf(measured) : null)

/** Formats all times in seconds if one is that long, otherwise in milliseconds. */
function inOne(times: readonly number[]): string {
  const isLong = times.some((ms) => ms >= 1000)
  return `${times.map((ms) => figure(isLong ? ms / 1000 : ms)).join(' / ')} ${isLong ? 's' : 'ms'}`
}

const both = ({ p50, p99 }: { readonly p50: number; readonly p99: number }): string => inOne([p50, p99])
