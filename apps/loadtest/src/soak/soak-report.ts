/** Reports a soak: a row per minute, and whether the last performs like the second. */

import type { Percentiles } from '@sealpost/harness/report/latencies'
import {
  type Colors,
  checkMark,
  count,
  type Fact,
  factList,
  figure,
  orDash,
  tableText,
} from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import type { RelationFacts } from '../environment/database.ts'
import type { ReportOptions } from '../report/report.ts'
import type { DrainTimes, SpanLatencies, Verdict } from '../run/verdict.ts'
import { type Sheet, samplesFor } from '../scenarios/scenario.ts'

export interface SoakFigures {
  readonly seconds: number
  readonly spanSeconds: number
  readonly rows: readonly SoakRow[]
  readonly verdicts: readonly SoakVerdict[]
  readonly hold: Hold | null
  readonly backlog: BacklogFigures | null
  readonly startMs: number
  readonly series: readonly SoakSample[]
}

/** When the snapshot is held, in seconds after the start. */
export interface Hold {
  readonly fromSeconds: number
  readonly toSeconds: number
}

export interface BacklogFigures extends Drained {
  /** The latencies without a backlog, before the soak. */
  readonly aloneMs: Percentiles
  /** The p99 with the backlog divided by that without. */
  readonly p99Ratio: number
}

export interface Drained
  extends Pick<Verdict, 'delivered' | 'lost' | 'timedOut' | 'duplicates' | 'misdelivered' | 'outOfOrder'> {
  readonly messages: number
  readonly storedPerSecond: number
  readonly drainedPerSecond: number
  /** The backlog's drain; null if it is too small. */
  readonly tenths: DrainTenths | null
}

/** One sample per second. */
export interface SoakSample {
  readonly atMs: number
  readonly relations: readonly RelationFacts[]
  /** The number of queued deliveries. */
  readonly queued: number
  /** The highest value of any broker. */
  readonly brokerRssMb: number | null
}

export interface SoakRow {
  readonly fromSeconds: number
  readonly delivered: number
  readonly p50: number
  readonly p99: number
  /** The largest size of each table and index in this span. */
  readonly bytes: Readonly<Record<string, number>>
  /** The highest number of dead rows in this span. */
  readonly dead: number
  readonly queued: number
  readonly brokerRssMb: number | null
}

export interface SoakVerdict {
  readonly isMet: boolean
  /** False with too few samples. */
  readonly isJudged?: boolean
  readonly sentence: string
}

const MINUTE_S = 60
/** The minimum number of spans: the second, the last, and some in between. */
const SPANS_MIN = 5

/** Returns a span's length: a minute, or a fifth of a short soak. */
export const spanSecondsOf = (soakSeconds: number): number => Math.min(MINUTE_S, soakSeconds / SPANS_MIN)

interface SoakRecord {
  readonly seconds: number
  readonly startMs: number
  readonly samples: readonly SoakSample[]
  readonly spans: readonly SpanLatencies[]
}

/** Returns the rows, without an incomplete last one. */
export function rowsOf({ seconds, startMs, samples, spans }: SoakRecord): SoakRow[] {
  const spanSeconds = spanSecondsOf(seconds)
  return Array.from({ length: Math.floor(seconds / spanSeconds) }, (_, i) => {
    const fromSeconds = i * spanSeconds
    const fromMs = startMs + fromSeconds * 1000
    const within = samples.filter(({ atMs }) => atMs >= fromMs && atMs < fromMs + spanSeconds * 1000)
    const rss = within.flatMap(({ brokerRssMb }) => brokerRssMb ?? [])
    return {
      fromSeconds,
      delivered: spans[i]?.delivered ?? 0,
      p50: spans[i]?.e2eMs.p50 ?? 0,
      p99: spans[i]?.e2eMs.p99 ?? 0,
      bytes: mostBytes(within),
      dead: most(within.map(({ relations }) => relations.reduce((sum, { dead }) => sum + dead, 0))),
      queued: most(within.map(({ queued }) => queued)),
      brokerRssMb: rss.length === 0 ? null : most(rss),
    }
  })
}

const most = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), 0)

function mostBytes(samples: readonly SoakSample[]): Record<string, number> {
  const bytes: Record<string, number> = {}
  for (const { relations } of samples)
    for (const { name, bytes: now } of relations) bytes[name] = Math.max(bytes[name] ?? 0, now)
  return bytes
}

/** The maximum ratio of the last span's latency to the second's. */
const SLOWER_MAX = 1.5
/** The maximum ratio of the last span's memory to the second's. The runtime returns memory late. */
const FATTER_MAX = 1.25
const MEMORY_SLACK_MB = 32
/** The latency that one slow fsync may add to a span of seconds. */
const SHORT_SLACK_MS = 50
/** The memory that a runtime's warm-up may add in a short soak. */
const SHORT_SLACK_MB = 64
/** The size in bytes that a message may leave in a short soak without a vacuum. */
const SHORT_BYTES_EACH = 2_000
const SHORT_DEAD_EACH = 5
/** The maximum growth of a table, for a vacuum that is a little late. */
const LARGER_MAX = 1.25
const BYTES_SLACK = 1024 * 1024
/** The maximum growth of dead rows between two vacuums. */
const DEADER_MAX = 2
const DEAD_SLACK = 10_000

export function soakVerdicts(rows: readonly SoakRow[], hold: Hold | null): SoakVerdict[] {
  const [second, last] = [rows[1]!, rows.at(-1)!]
  // Space taken under a snapshot is reused but never returned, so compare with the first span afterwards.
  const settled = hold ? (rows.find(({ fromSeconds }) => fromSeconds >= hold.toSeconds) ?? last) : second
  return [
    latencyVerdict(second, last),
    memoryVerdict(second, last),
    sizeVerdict(settled, last),
    deadVerdict(second, last),
    ledgerNote(second, last),
  ]
}

function latencyVerdict(second: SoakRow, last: SoakRow): SoakVerdict {
  const slackMs = isShort(second) ? SHORT_SLACK_MS : 0
  const isMet = last.delivered > 0 && last.p99 <= SLOWER_MAX * second.p99 + slackMs
  const sentence = `p99 of the last ${spanOf(second)} ${figure(last.p99)} ms, of the second ${figure(second.p99)} ms`
  const samples = Math.min(second.delivered, last.delivered)
  if (last.delivered > 0 && samples < samplesFor(99)) {
    const few = `${sentence}: not judged, ${count(samples)} messages of the required ${count(samplesFor(99))}`
    return { isMet: true, isJudged: false, sentence: few }
  }
  const more = slackMs > 0 ? ` and ${slackMs} ms` : ''
  return { isMet, sentence: `${sentence} (at most ${SLOWER_MAX} times as much${more})` }
}

function memoryVerdict(second: SoakRow, last: SoakRow): SoakVerdict {
  if (second.brokerRssMb === null || last.brokerRssMb === null)
    return { isMet: true, sentence: "the broker's memory is unknown" }
  const slackMb = isShort(second) ? SHORT_SLACK_MB : MEMORY_SLACK_MB
  const isMet = last.brokerRssMb <= FATTER_MAX * second.brokerRssMb + slackMb
  const sentence = `the broker took ${figure(last.brokerRssMb)} MB in the last ${spanOf(second)}, ${figure(second.brokerRssMb)} in the second`
  return { isMet, sentence: `${sentence} (at most ${FATTER_MAX} times as much and ${slackMb} MB)` }
}

/** Returns whether spans are shorter than a minute. */
const isShort = ({ fromSeconds }: SoakRow): boolean => fromSeconds < MINUTE_S
const spanOf = (second: SoakRow): string => (isShort(second) ? `${figure(second.fromSeconds)} s` : 'minute')

/** Returns the number of messages delivered between the two spans. */
const messagesBetween = (second: SoakRow, last: SoakRow): number =>
  last.delivered * ((last.fromSeconds - second.fromSeconds) / (second.fromSeconds || 1))

function sizeVerdict(first: SoakRow, last: SoakRow): SoakVerdict {
  const slack = BYTES_SLACK + (isShort(first) ? SHORT_BYTES_EACH * messagesBetween(first, last) : 0)
  const grown = Object.keys(last.bytes).filter((name) => {
    return !isLedger(name) && last.bytes[name]! > LARGER_MAX * (first.bytes[name] ?? 0) + slack
  })
  const much = isShort(first) ? ` by more than a vacuum removes (${megabytes(slack)})` : ''
  if (grown.length === 0) return { isMet: true, sentence: `tables and indexes did not grow${much}` }
  const each = grown.map((name) => `${name} ${megabytes(first.bytes[name] ?? 0)} → ${megabytes(last.bytes[name]!)}`)
  return { isMet: false, sentence: `grew: ${each.join(', ')}` }
}

function deadVerdict(second: SoakRow, last: SoakRow): SoakVerdict {
  const slack = DEAD_SLACK + (isShort(second) ? SHORT_DEAD_EACH * messagesBetween(second, last) : 0)
  const isMet = last.dead <= DEADER_MAX * second.dead + slack
  const sentence = `dead rows at most ${count(last.dead)} in the last ${spanOf(second)}, ${count(second.dead)} in the second`
  return { isMet, sentence }
}

/** Reports the ledger's growth without judging it, because it grows for a day by design. */
function ledgerNote(second: SoakRow, last: SoakRow): SoakVerdict {
  const sizeIn = (row: SoakRow) =>
    Object.entries(row.bytes).reduce((sum, [name, bytes]) => sum + (isLedger(name) ? bytes : 0), 0)
  const messages = messagesBetween(second, last)
  const each = messages > 0 ? (sizeIn(last) - sizeIn(second)) / messages : 0
  const sizes = `${megabytes(sizeIn(second))} → ${megabytes(sizeIn(last))}`
  return { isMet: true, sentence: `the ledger, which keeps one day: ${sizes}, ${figure(each)} bytes per message` }
}

const isLedger = (name: string): boolean => name.startsWith('dedupe_ledger')

const megabytes = (bytes: number): string => `${figure(bytes / 1e6)} MB`

/** The minimum size of a tenth, below which its rate means nothing. */
const TENTH_MIN = 1_000
/** The minimum ratio of a drain's slowest tenth to its fastest. */
const TENTHS_RATIO_MIN = 0.85

/** The rates of a drain after its warm-up. */
export interface DrainTenths extends Pick<DrainTimes, 'warmUp' | 'tenthMessages'> {
  readonly perSecond: readonly number[]
  /** The slowest rate divided by the fastest. */
  readonly ratio: number
}

export function tenthsOf({ warmUp, tenthMessages, tenthsMs }: DrainTimes): DrainTenths | null {
  if (tenthMessages < TENTH_MIN || tenthsMs.length === 0) return null
  const perSecond = tenthsMs.map((ms) => (tenthMessages * 1000) / ms)
  return { warmUp, tenthMessages, perSecond, ratio: Math.min(...perSecond) / Math.max(...perSecond) }
}

const HEAD = ['from', 'messages', 'p50', 'p99 ms', 'queue', 'indexes', 'ledger', 'dead rows', 'queued', 'broker RSS']

export function printSoak(figures: SoakFigures, { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const { head, rows } = soakSheet(figures)
  const note = figures.hold ? `\n${paint.dim('  * another session held a snapshot')}` : ''
  const verdicts = figures.verdicts.map(({ isMet, sentence }) => {
    const line = `${checkMark(isMet)} ${sentence}`
    return isMet ? `  ${paint.green('✔')} ${sentence}` : `  ${paint.red(line)}`
  })
  const parts = [`${tableText(head, rows, paint)}${note}`, verdicts.join('\n')]
  if (figures.backlog) parts.push(backlogText(figures.backlog, paint))
  return `${parts.join('\n\n')}\n\n`
}

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

const clock = (seconds: number): string =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`

function backlogText(figures: BacklogFigures, paint: Colors): string {
  const { messages, storedPerSecond, drainedPerSecond, delivered, lost, timedOut, duplicates, outOfOrder } = figures
  const speed = `stored at ${count(storedPerSecond)}/s, drained at ${count(drainedPerSecond)}/s`
  const faults = `${count(lost)} lost, ${count(timedOut)} timed out, ${count(duplicates)} duplicates, ${count(outOfOrder)} out of order`
  const facts: Fact[] = [
    ['backlog', `${count(messages)} messages, ${speed}`],
    ...tenthFacts(figures),
    ['checked', `${count(delivered)} of them arrived: ${faults}`],
    ['beside it', `p99 ${figure(figures.p99Ratio)} times that of a run without it (${figure(figures.aloneMs.p99)} ms)`],
  ]
  return factList(facts, paint)
}

function tenthFacts({ tenths }: BacklogFigures): Fact[] {
  if (!tenths) return []
  const { warmUp, tenthMessages, perSecond, ratio } = tenths
  const bar = `${checkMark(ratio >= TENTHS_RATIO_MIN)} slowest by fastest ${ratio.toFixed(2)} (at least ${TENTHS_RATIO_MIN})`
  return [
    [
      'warm-up',
      `${count(warmUp.messages)} messages at ${count((warmUp.messages * 1000) / warmUp.ms)}/s, until nine tenths of the pairs had one`,
    ],
    ['drain', `then each ${count(tenthMessages)} at ${perSecond.map((rate) => count(rate)).join(' · ')}/s`],
    ['', bar],
  ]
}
