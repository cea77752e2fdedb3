/**
 * Reports the results of a soak: one row per minute, and whether the last minute still performs like the second one.
 */

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
  /** The latencies under the same load before the soak, without a backlog. */
  readonly aloneMs: Percentiles
  /** The p99 with the backlog divided by the p99 without it. */
  readonly p99Ratio: number
}

export interface Drained
  extends Pick<Verdict, 'delivered' | 'lost' | 'timedOut' | 'duplicates' | 'misdelivered' | 'outOfOrder'> {
  readonly messages: number
  readonly storedPerSecond: number
  readonly drainedPerSecond: number
  /** How the backlog drained; null if it is too small. */
  readonly tenths: DrainTenths | null
}

/** One sample per second. */
export interface SoakSample {
  readonly atMs: number
  readonly relations: readonly RelationFacts[]
  /** The number of queued deliveries in all meshes. */
  readonly queued: number
  /** The highest value of any broker. */
  readonly brokerRssMb: number | null
}

export interface SoakRow {
  readonly fromSeconds: number
  readonly delivered: number
  readonly p50: number
  readonly p99: number
  /** The largest size of each table and index during this span, by name. */
  readonly bytes: Readonly<Record<string, number>>
  /** The highest number of dead rows in all hot tables during this span. */
  readonly dead: number
  readonly queued: number
  readonly brokerRssMb: number | null
}

export interface SoakVerdict {
  readonly isMet: boolean
  /** False if there were too few samples. */
  readonly isJudged?: boolean
  readonly sentence: string
}

const MINUTE_S = 60
/** The minimum number of spans: the second one, the last one, and some between them. */
const SPANS_MIN = 5

/** Returns the length of a span: one minute, or less if the soak is shorter than five minutes. */
export const spanSecondsOf = (soakSeconds: number): number => Math.min(MINUTE_S, soakSeconds / SPANS_MIN)

interface SoakRecord {
  readonly seconds: number
  readonly startMs: number
  readonly samples: readonly SoakSample[]
  readonly spans: readonly SpanLatencies[]
}

/** Returns the rows. Omits an incomplete last span, because it can't be compared with a complete one. */
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

/** The maximum ratio of the latency in the last span to that in the second. */
const SLOWER_MAX = 1.5
/** The maximum ratio of the broker's memory in the last span to that in the second. The runtime returns memory late. */
const FATTER_MAX = 1.25
const MEMORY_SLACK_MB = 32
/** In a span of seconds, one slow fsync affects more than one percent of the messages. */
const SHORT_SLACK_MS = 50
/** In a short soak, the runtime is still warming up during the second span. */
const SHORT_SLACK_MB = 64
/**
 * The bytes that each message may leave behind in a short soak: there is no vacuum, so dead rows and index entries
 * remain.
 */
const SHORT_BYTES_EACH = 2_000
const SHORT_DEAD_EACH = 5
/** The maximum growth of a table. It allows for a vacuum that starts a little later than the last one. */
const LARGER_MAX = 1.25
const BYTES_SLACK = 1024 * 1024
/** The maximum growth of the number of dead rows, which accumulate between two vacuums. */
const DEADER_MAX = 2
const DEAD_SLACK = 10_000

export function soakVerdicts(rows: readonly SoakRow[], hold: Hold | null): SoakVerdict[] {
  const [second, last] = [rows[1]!, rows.at(-1)!]
  // The queue reuses but never returns the space that it took while a snapshot was held. Afterwards, it must not grow
  // any more.
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

/** Returns whether spans are shorter than a minute. The second span begins where the first one ends. */
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

/** Reports the growth of the ledger without judging it, because the ledger grows for a day by design. */
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

/** The minimum size of a tenth. The rate of a smaller one would be meaningless. */
const TENTH_MIN = 1_000
/** The minimum ratio of the rate in a drain's slowest tenth to that in its fastest. */
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
