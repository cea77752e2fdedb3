/** Renders a run's report for a terminal and as a chapter of the page. */
import { arch, cpus, platform } from 'node:os'
import type { Percentiles } from '@sealpost/harness/report/latencies'
import {
  type Colors,
  count,
  type Fact,
  factList,
  figure,
  orDash,
  percent,
  plural,
  sum,
  tableText,
} from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import { YARDSTICK_NAMES } from '../environment/environment.ts'
import { CALLS_OPEN_MAX } from '../generators/plan.ts'
import { isClean, type LoadResult } from '../run/result.ts'
import type { SpanLatencies } from '../run/verdict.ts'
import {
  type Graph,
  generatorCheck,
  type HistogramChart,
  mailCheck,
  percentilesGraph,
  type Sheet,
  spectrumGraph,
  usageGraphs,
} from '../scenarios/scenario.ts'
import type { Chapter } from './page.ts'

export interface ReportOptions {
  readonly isColored: boolean
}

export function printReport(result: LoadResult, { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const parts = [
    headline(result, paint),
    latencies(result, paint),
    resources(result, paint),
    shards(result, paint),
    facts(result, paint),
    remarks(result, paint),
  ]
  return `\n${parts.filter(Boolean).join('\n\n')}\n`
}

/** Prints a sweep as one table. */
export function printSweep(results: readonly LoadResult[], { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const hasBaseline = results.some(({ baselineRatio }) => baselineRatio !== undefined)
  const latencyHead = ['call → push p50', 'p99', 'send → push p50', 'p95', 'p99', 'max ms']
  const head = ['peers', 'messages', 'msg/s', ...latencyHead, 'lost', 'dupl.', 'order']
  const rows = results.map((result) => {
    const { callToPushMs, e2eMs, lost, duplicates, outOfOrder, timedOut, baselineRatio } = result
    const cells = [callToPushMs.p50, callToPushMs.p99, e2eMs.p50, e2eMs.p95, e2eMs.p99, e2eMs.max].map(figure)
    const faults = [lost + timedOut, duplicates, outOfOrder].map((n) => (n === 0 ? '0' : paint.red(count(n))))
    const ratio = baselineRatio === undefined ? [] : [figure(baselineRatio)]
    return [...[result.peers, result.total, result.messagesPerSecond].map(count), ...cells, ...faults, ...ratio]
  })
  const table = tableText(hasBaseline ? [...head, 'of other'] : head, rows, paint)
  const last = results.at(-1)!
  const lines: Fact[] = [['keys', keysText(last)], ...environmentFacts({ ...last, machineCoresBusy: null })]
  return `\n  ${verdictLine(results, paint)}\n\n${withNotes(table, last, paint)}\n\n${factList(lines, paint)}\n`
}

function headline(result: LoadResult, paint: Colors): string {
  const { wallMs, messagesPerSecond, peers, payloadBytes, rate, baselineRatio } = result
  const speed = `${count(messagesPerSecond)} messages/s · ${figure(wallMs / 1000)} s`
  const pace = rate === null ? `${count(result.messagesPerPeer)} each` : `${count(rate)}/s in total, open loop`
  const shape = `${count(peers)} peers, ${pace}, ${plural(payloadBytes, 'byte')}, sealed, stored, opened and compared`
  const ratio = baselineRatio === undefined ? '' : `\n  ${baselineLine(result)}`
  return `  ${verdictLine([result], paint)}   ${paint.bold(speed)}\n  ${paint.dim(shape)}${ratio}`
}

function verdictLine(results: readonly LoadResult[], paint: Colors): string {
  const total = sum(results.map((result) => result.total))
  const delivered = sum(results.map((result) => result.delivered))
  if (results.every(isClean)) return paint.green(`✔ ${paint.bold(`${count(total)} messages, nothing lost`)}`)
  const sentence = delivered < total ? `${count(delivered)} of ${count(total)} messages arrived` : 'The run failed'
  return paint.red(`✘ ${paint.bold(sentence)}`)
}

function baselineLine({
  baselineMessagesPerSecond = 0,
  baselineRatio = 0,
  baselineKind = 'relay',
}: LoadResult): string {
  const than = `${YARDSTICK_NAMES[baselineKind]} (${count(baselineMessagesPerSecond)}/s)`
  return `${figure(baselineRatio)} of the same client's speed against ${than}`
}

function latencies(result: LoadResult, paint: Colors): string {
  const { rate, baseline, baselineKind } = result
  const rows = latencyRows(result)
  if (baseline && rate === null) rows.push([`call → push, ${baselineKind}`, baseline.callToPushMs])
  if (baseline) rows.push([`${rate === null ? 'send' : 'due'} → push, ${baselineKind}`, baseline.e2eMs])
  const table = tableText(['milliseconds', 'p50', 'p95', 'p99', 'max'], rows.map(latencyCells), paint)
  return withNotes(table, result, paint)
}

const latencyCells = ([name, of]: readonly [string, Percentiles]): string[] => [
  ...[name, ...[of.p50, of.p95, of.p99, of.max].map(figure)],
]

const withNotes = (table: string, result: LoadResult, paint: Colors): string =>
  `${table}${clockNotes(result)
    .map((note) => `\n  ${paint.dim(note)}`)
    .join('')}`

function resources(result: LoadResult, paint: Colors): string {
  const names = {
    broker: result.shards.length === 1 ? 'broker' : `${result.shards.length} brokers`,
    generator: result.generators === 1 ? 'load generator' : `${result.generators} load generators`,
  }
  const head = ['', 'CPU s', 'µs/message', 'cores', 'peak RSS MB', 'descriptors']
  return tableText(head, costRows(result, names), paint)
}

/** Returns rows of program, CPU seconds, microseconds per message, cores, peak memory and descriptors. */
function costRows(result: LoadResult, names: { broker: string; generator: string }): string[][] {
  const { acked, wallMs } = result
  const row = (name: string, cpuSeconds: number | null, rssMb: number | null, descriptors: number | null) => {
    const perMessage = cpuSeconds === null ? null : (cpuSeconds * 1e6) / Math.max(1, acked)
    const used = [cpuSeconds, perMessage, coresOf(cpuSeconds, wallMs), rssMb].map((value) => orDash(value))
    return [name, ...used, orDash(descriptors, count)]
  }
  return [
    row(names.broker, result.brokerCpuSeconds, result.brokerRssMbPeak, result.brokerFdMax),
    row('Postgres', result.postgresCpuSeconds, result.postgresRssMbPeak, null),
    row(names.generator, result.loadgenCpuSeconds, null, null),
  ]
}

const coresOf = (cpuSeconds: number | null, wallMs: number): number | null =>
  cpuSeconds === null ? null : (cpuSeconds * 1000) / Math.max(1, wallMs)

/** Returns one row per broker if there are several. */
function shards(result: LoadResult, paint: Colors): string {
  if (result.shards.length === 1) return ''
  const perCell = result.shards.length / result.cells
  const head = ['shard', 'peers', 'accepted', 'pushed', 'CPU s', 'cores', 'peak RSS MB', 'descriptors']
  const rows = result.shards.map(({ peers, accepted, pushed, cpuSeconds, rssMbPeak, fdMax }, i) => {
    const name = `${result.cells === 1 ? '' : `cell ${Math.floor(i / perCell) + 1}, `}${(i % perCell) + 1}`
    const counts = [accepted ?? null, pushed ?? null].map((value) => orDash(value, count))
    const used = [cpuSeconds, coresOf(cpuSeconds, result.wallMs), rssMbPeak].map((value) => orDash(value))
    return [name, count(peers), ...counts, ...used, orDash(fdMax, count)]
  })
  return tableText(head, rows, paint)
}

function facts(result: LoadResult, paint: Colors): string {
  const own: Fact[] = [
    ['checked', checked(result, paint)],
    ['database', databaseText(result)],
    ['delivered', deliveriesText(result)],
    ['frames', framesText(result)],
    ['keys', keysText(result)],
    ...spreadFacts(result),
  ]
  return factList([...own, ...environmentFacts(result)], paint)
}

const databaseText = ({ transactionsPerMessage, walBytesPerMessage }: LoadResult): string =>
  `${orDash(transactionsPerMessage)} transactions and ${orDash(walBytesPerMessage)} bytes of WAL a message`

function spreadFacts({ meshes, cells, shards, crossShare }: LoadResult): Fact[] {
  if (meshes === 1 && shards.length === 1) return []
  const brokers = `${plural(shards.length, 'shard')}${cells === 1 ? '' : ` in ${cells} cells`}`
  const crossing = shards.length === 1 ? '' : `, ${percent(crossShare)} of the messages from shard to shard`
  return [['spread', `${plural(meshes, 'mesh', 'meshes')} over ${brokers}${crossing}`]]
}

function environmentFacts(result: LoadResult): Fact[] {
  const { durability, postgresVersion, gitSha, limits, form, window, seed, machineCoresBusy, isRatcheted } = result
  const { fsync, synchronousCommit } = durability
  const busy = machineCoresBusy === null ? '' : `, ${figure(machineCoresBusy)} busy`
  return [
    ['durable', `PostgreSQL ${postgresVersion}, fsync=${fsync}, synchronous_commit=${synchronousCommit}`],
    [
      'setting',
      `rate limits ${limits} · ${form} frames · window ${window} · seed ${seed}${isRatcheted ? ' · ratchets' : ''}`,
    ],
    ['machine', `${cpus().length} cores${busy} · ${platform()} ${arch()} · Bun ${Bun.version} · git ${gitSha}`],
  ]
}

function checked(result: LoadResult, paint: Colors): string {
  const { sent, acked, delivered, timedOut, lost, duplicates, duplicatesHidden, misdelivered, outOfOrder } = result
  const fault = (n: number, name: string) => (n === 0 ? `0 ${name}` : paint.red(`${count(n)} ${name}`))
  const twice = `${fault(duplicates - duplicatesHidden, 'duplicates')} (${count(duplicatesHidden)} more hidden by the SDK)`
  const placed = `${fault(misdelivered, 'misdelivered')}, ${fault(outOfOrder, 'out of order')}`
  const faults = `${fault(lost, 'lost')}, ${fault(timedOut, 'timed out')}, ${twice}, ${placed}`
  return `${count(sent)} sent, ${count(acked)} acked, ${count(delivered)} delivered: ${faults}`
}

function remarks(result: LoadResult, paint: Colors): string {
  const lines: string[] = []
  if (result.loadgenWasLimit) {
    const share = percent(result.loadgenCpuShareMax)
    lines.push(`The load generator was the limit: it used ${share} of a core. The broker may be faster.`)
  }
  if (result.limits === 'on') lines.push('The rate limits were on. They may have limited the rate.')
  for (const [code, times] of Object.entries(result.refused)) lines.push(`${plural(times, 'send')} refused: ${code}.`)
  if (result.leftInQueue) lines.push(`The queue still held ${plural(result.leftInQueue, 'envelope')} at the end.`)
  if (result.reconnects > 0) lines.push(`Connections were lost and restored ${plural(result.reconnects, 'time')}.`)
  return lines.map((line) => `  ${paint.yellow('!')} ${line}`).join('\n')
}

type Timed = Pick<LoadResult, 'rate' | 'ackMs' | 'e2eMs' | 'sendCallMs' | 'callToPushMs' | 'callLateMs'>

/** Returns a row per latency measure: two for a burst, one for the open loop. */
export function latencyRows({ rate, ackMs, e2eMs, sendCallMs, callToPushMs, callLateMs }: Timed) {
  const rows: [name: string, of: Percentiles][] =
    rate === null
      ? [
          ['call → ack', sendCallMs],
          ['call → push', callToPushMs],
          ['send → ack', ackMs],
          ['send → push', e2eMs],
        ]
      : [
          ['due → ack', ackMs],
          ['due → push', e2eMs],
        ]
  if (rate !== null && callLateMs) rows.push(['due → call', callLateMs])
  return rows
}

/** Returns the application's latency: from its call to `send()`, or from when the message was due. */
export function wholeLatency({ rate, callToPushMs, e2eMs }: Pick<LoadResult, 'rate' | 'callToPushMs' | 'e2eMs'>) {
  return rate === null ? { name: 'call → push', of: callToPushMs } : { name: 'due → push', of: e2eMs }
}

type Calling = Pick<LoadResult, 'rate' | 'window' | 'messagesPerPeer' | 'isPacking'>

/** Explains each latency in a sentence. */
export function clockNotes({ rate, window, messagesPerPeer, isPacking }: Calling) {
  if (rate !== null) return ['"due" counts from the time at which a message was due, even if it was sent later.']
  const isAll = messagesPerPeer <= CALLS_OPEN_MAX
  const packed = isAll
    ? `makes all ${plural(messagesPerPeer, 'call')} at once`
    : `keeps ${count(CALLS_OPEN_MAX)} calls open`
  const calls = isPacking ? packed : `starts one call in a turn of its event loop and keeps ${count(window)} open`
  return [
    `"call" counts from the application's call of send() and includes the wait for the window; each peer ${calls}.`,
    `"send" counts from the time at which the window of ${count(window)} admits a message, before it is sealed.`,
  ]
}

export function framesText({
  isPacking,
  framesPerMessage,
}: Pick<LoadResult, 'isPacking' | 'framesPerMessage'>): string {
  const measured = `${figure(framesPerMessage)} frames a message`
  return isPacking ? measured : `one send per turn (--pack off): ${measured}`
}

export function keysText({ keyExchange }: Pick<LoadResult, 'keyExchange'>): string {
  if (!keyExchange)
    return 'not exchanged before the clock starts (--cold): the first message of each pair includes the exchange'
  const { messages, ms } = keyExchange
  return `exchanged before the clock starts: ${plural(messages, 'message')} in ${figure(ms / 1000)} s, not counted; --cold counts it`
}

export function deliveriesText({ deliveries }: Pick<LoadResult, 'deliveries'>): string {
  if (!deliveries) return "unknown: the broker's /metrics is not accessible"
  const { leasedOnInsert, claimed, collected } = deliveries
  return `${count(leasedOnInsert)} leased on insert, ${count(claimed)} claimed, ${count(collected)} collected from another broker`
}

/** Renders a run as a chapter. @param spans - the latencies of each second, if any */
export function loadChapter(result: LoadResult, spans: readonly SpanLatencies[]): Chapter {
  const { total, peers, rate, messagesPerPeer, payloadBytes, messagesPerSecond, wallMs, delivered } = result
  const pace =
    rate === null
      ? `${count(messagesPerPeer)} each, as fast as the window admits`
      : `${count(rate)} per second in total`
  const whole = wholeLatency(result)
  const all = delivered === total ? 'nothing lost' : `${count(delivered)} arrived`
  const latencyName = `${rate === null ? 'send' : 'due'} → push`
  const names = { broker: 'broker', generator: 'load generator' }
  const costHead = ['CPU', 'seconds', 'µs a message', 'cores', 'peak RSS MB', 'descriptors']
  return {
    title: rate === null ? 'burst' : 'open loop',
    summary: `${count(peers)} peers, ${pace}, ${plural(payloadBytes, 'byte')}: sealed, stored, opened and compared.`,
    reported: null,
    bar: null,
    isGood: isClean(result),
    headline: `${count(total)} messages, ${all}: ${count(messagesPerSecond)} per second over ${figure(wallMs / 1000)} s`,
    shown: `${count(messagesPerSecond)}/s, ${whole.name} p99 ${figure(whole.of.p99)} ms`,
    sheets: [
      { head: ['milliseconds', 'p50', 'p95', 'p99', 'max'], rows: latencyRows(result).map(latencyCells) },
      { head: costHead, rows: costRows(result, names) },
      ...(result.shards.length > 1 ? [shardSheet(result)] : []),
    ],
    facts: chapterFacts(result),
    checks: chapterChecks(result),
    graphs: [
      histogram(result, latencyName),
      spectrumGraph([[latencyName, result.e2eSpectrum]]),
      ...overTime(spans),
      ...usageGraphs(result.samples),
    ],
    figures: { generatorShare: result.loadgenCpuShareMax },
  }
}

function shardSheet({ shards, wallMs }: LoadResult): Sheet {
  const rows = shards.map(({ peers, accepted, pushed, cpuSeconds, rssMbPeak, fdMax }, i) => {
    const counts = [peers, accepted ?? null, pushed ?? null].map((value) => orDash(value, count))
    return [String(i + 1), ...counts, orDash(coresOf(cpuSeconds, wallMs)), orDash(rssMbPeak), orDash(fdMax, count)]
  })
  return { head: ['shard', 'peers', 'accepted', 'pushed', 'cores', 'peak RSS MB', 'descriptors'], rows }
}

function chapterChecks(result: LoadResult): Chapter['checks'] {
  const { lost, timedOut, duplicates, misdelivered, outOfOrder, refused } = result
  const none = (n: number, claim: string) => mailCheck(n === 0, `${claim} (${count(n)}).`)
  return [
    none(lost + timedOut, 'No message was lost or timed out'),
    none(misdelivered + outOfOrder, 'No message was misdelivered, damaged or out of order'),
    none(sum(Object.values(refused)), 'No send was refused'),
    mailCheck(true, `${count(duplicates)} arrived twice; the SDK hid ${count(result.duplicatesHidden)} of them.`),
    generatorCheck(result.loadgenCpuShareMax),
  ]
}

function chapterFacts(result: LoadResult): Chapter['facts'] {
  const { form, window, seed, generators, meshes, shards, cells, crossShare } = result
  const spread = `${plural(meshes, 'mesh', 'meshes')}, ${plural(shards.length, 'broker')}, ${plural(cells, 'database')}`
  return [
    ...clockNotes(result).map((note) => ['clock', note] as const),
    ['delivered', deliveriesText(result)],
    ['frames', framesText(result)],
    ['keys', keysText(result)],
    ['database', databaseText(result)],
    ['spread', `${spread}; ${percent(crossShare)} of the messages went from shard to shard`],
    ['setting', `${form} frames, window ${window}, seed ${seed}, ${plural(generators, 'load generator')}`],
  ]
}

const histogram = ({ e2eBins }: LoadResult, latencyName: string): HistogramChart => ({
  title: 'Messages by latency',
  x: `${latencyName}, in milliseconds, up to`,
  y: 'messages',
  bars: e2eBins.map(([upToMs, messages]) => [figure(upToMs), messages] as const),
})

function overTime(spans: readonly SpanLatencies[]): Graph[] {
  if (spans.length < 2) return []
  const latencies = spans.map(({ e2eMs }, second) => [second, e2eMs] as const)
  const sent = spans.map(({ delivered }, second) => [second, delivered] as const)
  return [
    percentilesGraph('Latency by second', 'seconds', latencies),
    { title: 'Messages by second', x: 'seconds', y: 'messages', lines: [{ name: 'delivered', points: sent }] },
  ]
}
