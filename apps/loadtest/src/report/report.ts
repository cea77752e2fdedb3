/** The report a person reads. */
import { arch, cpus, platform } from 'node:os'
import type { Percentiles } from '@sealpost/harness/report/latencies'
import {
  type Colors,
  count,
  type Fact,
  factList,
  figure,
  orDash,
  plainTable,
  plural,
} from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import { YARDSTICK_NAMES } from '../command/command.ts'
import { isClean, type LoadResult } from '../run/result.ts'
import { clockNotes, deliveriesText, keysText, latencyRows } from './clocks.ts'

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

/** The rows of a sweep beside each other. */
export function printSweep(results: readonly LoadResult[], { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const total = results.reduce((sum, result) => sum + result.total, 0)
  const hasBaseline = results.some(({ baselineRatio }) => baselineRatio !== undefined)
  const head = [
    'peers',
    'messages',
    'msg/s',
    'call → push p50',
    'p99',
    'send → push p50',
    'p95',
    'p99',
    'max ms',
    'lost',
    'dupl.',
    'order',
  ]
  const table = plainTable(hasBaseline ? [...head, 'of other'] : head, paint)
  for (const result of results) {
    const { callToPushMs, e2eMs, lost, duplicates, outOfOrder, timedOut, baselineRatio } = result
    const cells = [callToPushMs.p50, callToPushMs.p99, e2eMs.p50, e2eMs.p95, e2eMs.p99, e2eMs.max].map(figure)
    const faults = [lost + timedOut, duplicates, outOfOrder].map((n) => (n === 0 ? '0' : paint.red(count(n))))
    const ratio = baselineRatio === undefined ? [] : [figure(baselineRatio)]
    const shape = [result.peers, result.total, result.messagesPerSecond].map(count)
    table.push([...shape, ...cells, ...faults, ...ratio])
  }
  const last = results.at(-1)!
  const notes = clockNotes(last).map((note) => `\n  ${paint.dim(note)}`)
  const lines: Fact[] = [['keys', keysText(last)], ...environmentFacts({ ...last, machineCoresBusy: null })]
  const shown = `${table.toString()}${notes.join('')}\n\n${factList(lines, paint)}`
  return `\n  ${verdictLine(total, results, paint)}\n\n${shown}\n`
}

function headline(result: LoadResult, paint: Colors): string {
  const { total, wallMs, messagesPerSecond, peers, payloadBytes, rate, baselineRatio } = result
  const speed = `${count(messagesPerSecond)} messages/s · ${figure(wallMs / 1000)} s`
  const pace = rate === null ? `${count(result.messagesPerPeer)} each` : `${count(rate)}/s in all, open loop`
  const shape = `${count(peers)} peers, ${pace}, ${plural(payloadBytes, 'byte')}, sealed, stored, opened and compared`
  const ratio = baselineRatio === undefined ? '' : `\n  ${baselineLine(result)}`
  return `  ${verdictLine(total, [result], paint)}   ${paint.bold(speed)}\n  ${paint.dim(shape)}${ratio}`
}

function verdictLine(total: number, results: readonly LoadResult[], paint: Colors): string {
  const delivered = results.reduce((sum, result) => sum + result.delivered, 0)
  if (results.every(isClean)) return paint.green(`✔ ${paint.bold(`${count(total)} messages, nothing lost`)}`)
  const sentence = delivered < total ? `${count(delivered)} of ${count(total)} messages arrived` : 'Not as it should be'
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
  const table = plainTable(['milliseconds', 'p50', 'p95', 'p99', 'max'], paint)
  const row = (name: string, of: Percentiles) => table.push([name, ...[of.p50, of.p95, of.p99, of.max].map(figure)])
  for (const [name, of] of latencyRows(result)) row(name, of)
  if (baseline && rate === null) row(`call → push, ${baselineKind}`, baseline.callToPushMs)
  if (baseline) row(`${rate === null ? 'send' : 'due'} → push, ${baselineKind}`, baseline.e2eMs)
  const notes = clockNotes(result).map((note) => `\n  ${paint.dim(note)}`)
  return `${table.toString()}${notes.join('')}`
}

function resources(result: LoadResult, paint: Colors): string {
  const { acked, brokerCpuSeconds, postgresCpuSeconds, loadgenCpuSeconds, wallMs } = result
  const table = plainTable(['', 'CPU s', 'µs/message', 'cores', 'peak RSS MB', 'descriptors'], paint)
  const row = (name: string, cpuSeconds: number | null, rssMb: number | null, descriptors: number | null) => {
    const perMessage = cpuSeconds === null ? null : (cpuSeconds * 1e6) / Math.max(1, acked)
    const cores = cpuSeconds === null ? null : (cpuSeconds * 1000) / Math.max(1, wallMs)
    const figures = [cpuSeconds, perMessage, cores, rssMb].map((value) => orDash(value))
    table.push([name, ...figures, orDash(descriptors, count)])
  }
  row(
    result.shards.length === 1 ? 'broker' : `${result.shards.length} brokers`,
    brokerCpuSeconds,
    result.brokerRssMbPeak,
    result.brokerFdMax,
  )
  row('Postgres', postgresCpuSeconds, result.postgresRssMbPeak, null)
  row(
    result.generators === 1 ? 'load generator' : `${result.generators} load generators`,
    loadgenCpuSeconds,
    null,
    null,
  )
  return table.toString()
}

/** A row for each broker, where there are several. */
function shards(result: LoadResult, paint: Colors): string {
  if (result.shards.length === 1) return ''
  const perCell = result.shards.length / result.cells
  const head = ['shard', 'peers', 'accepted', 'pushed', 'CPU s', 'cores', 'peak RSS MB', 'descriptors']
  const table = plainTable(head, paint)
  for (const [i, { peers, accepted, pushed, cpuSeconds, rssMbPeak, fdMax }] of result.shards.entries()) {
    const place = `${result.cells === 1 ? '' : `cell ${Math.floor(i / perCell) + 1}, `}${(i % perCell) + 1}`
    const cores = cpuSeconds === null ? null : (cpuSeconds * 1000) / Math.max(1, result.wallMs)
    const counts = [accepted ?? null, pushed ?? null].map((value) => orDash(value, count))
    const used = [cpuSeconds, cores, rssMbPeak].map((value) => orDash(value))
    table.push([place, count(peers), ...counts, ...used, orDash(fdMax, count)])
  }
  return table.toString()
}

function facts(result: LoadResult, paint: Colors): string {
  const { transactionsPerMessage, walBytesPerMessage } = result
  const database = `${orDash(transactionsPerMessage)} transactions and ${orDash(walBytesPerMessage)} bytes of WAL a message`
  const own: Fact[] = [
    ['checked', checked(result, paint)],
    ['database', database],
    ['delivered', deliveriesText(result)],
    ['keys', keysText(result)],
    ...spreadFacts(result),
  ]
  return factList([...own, ...environmentFacts(result)], paint)
}

function spreadFacts({ meshes, cells, shards, crossShare }: LoadResult): Fact[] {
  if (meshes === 1 && shards.length === 1) return []
  const brokers = `${plural(shards.length, 'shard')}${cells === 1 ? '' : ` in ${cells} cells`}`
  const crossing = shards.length === 1 ? '' : `, ${figure(crossShare * 100)} % of the messages from shard to shard`
  return [['spread', `${plural(meshes, 'mesh', 'meshes')} over ${brokers}${crossing}`]]
}

function environmentFacts(result: LoadResult): Fact[] {
  const { durability, postgresVersion, gitSha, limits, form, window, seed, machineCoresBusy } = result
  const { fsync, synchronousCommit } = durability
  const busy = machineCoresBusy === null ? '' : `, ${figure(machineCoresBusy)} busy`
  return [
    ['durable', `PostgreSQL ${postgresVersion}, fsync=${fsync}, synchronous_commit=${synchronousCommit}`],
    ['setting', `rate limits ${limits} · ${form} frames · window ${window} · seed ${seed}`],
    ['machine', `${cpus().length} cores${busy} · ${platform()} ${arch()} · Bun ${Bun.version} · git ${gitSha}`],
  ]
}

function checked(result: LoadResult, paint: Colors): string {
  const { sent, acked, delivered, timedOut, lost, duplicates, duplicatesHidden, misdelivered, outOfOrder } = result
  const say = (n: number, name: string) => (n === 0 ? `0 ${name}` : paint.red(`${count(n)} ${name}`))
  const twice = `${say(duplicates - duplicatesHidden, 'duplicates')} (${count(duplicatesHidden)} more hidden by the SDK)`
  const placed = `${say(misdelivered, 'misdelivered')}, ${say(outOfOrder, 'out of order')}`
  const faults = `${say(lost, 'lost')}, ${say(timedOut, 'timed out')}, ${twice}, ${placed}`
  return `${count(sent)} sent, ${count(acked)} acked, ${count(delivered)} delivered: ${faults}`
}

function remarks(result: LoadResult, paint: Colors): string {
  const said: string[] = []
  if (result.loadgenWasLimit) {
    const share = `${figure(result.loadgenCpuShareMax * 100)} %`
    said.push(`The load generator was the limit: it used ${share} of a core. The broker may be faster than this.`)
  }
  if (result.limits === 'on') said.push('The rate limits were on: they, not the broker, may have set the pace.')
  for (const [code, times] of Object.entries(result.refused)) said.push(`${plural(times, 'send')} refused: ${code}.`)
  if (result.leftInQueue) said.push(`The queue still held ${plural(result.leftInQueue, 'envelope')} at the end.`)
  if (result.reconnects > 0) said.push(`Connections were lost and came back ${plural(result.reconnects, 'time')}.`)
  return said.map((line) => `  ${paint.yellow('!')} ${line}`).join('\n')
}
