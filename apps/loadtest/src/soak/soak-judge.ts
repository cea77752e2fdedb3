/** Rows of a soak, one for each minute, and whether the last is still like the second. */

import { count, figure } from '@sealpost/harness/report/text'
import type { SpanLatencies } from '../run/verdict.ts'
import { samplesFor } from '../scenarios/percentiles.ts'
import type { SoakSample } from './soak-watch.ts'

export interface SoakRow {
  readonly fromSeconds: number
  readonly delivered: number
  readonly p50: number
  readonly p99: number
  /** By name, tables and indexes: the most in this span. */
  readonly bytes: Readonly<Record<string, number>>
  /** Of all hot tables together: the most in this span. */
  readonly dead: number
  readonly queued: number
  readonly brokerRssMb: number | null
}

export interface SoakVerdict {
  readonly isMet: boolean
  /** False: there were too few samples to say. */
  readonly isJudged?: boolean
  readonly sentence: string
}

/** Seconds after the start. */
export interface Hold {
  readonly fromSeconds: number
  readonly toSeconds: number
}

const MINUTE_S = 60
/** So that there is a second and a last span, and something between them. */
const SPANS_MIN = 5

/** A minute, or less in a soak of less than five. */
export const spanSecondsOf = (soakSeconds: number): number => Math.min(MINUTE_S, soakSeconds / SPANS_MIN)

export interface SoakRecord {
  readonly seconds: number
  readonly startMs: number
  readonly samples: readonly SoakSample[]
  readonly spans: readonly SpanLatencies[]
}

/** Whole spans only: half a minute would be compared with a minute. */
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

/** Of latencies. */
const SLOWER_MAX = 1.5
/** Of the broker's memory; the platform gives back late what it took. */
const FATTER_MAX = 1.25
const MEMORY_SLACK_MB = 32
/** In a span of seconds one slow sync of the disk is the slowest percent of all messages. */
const SHORT_SLACK_MS = 50
/** The platform is still warming up in a short soak's second span. */
const SHORT_SLACK_MB = 64
/** No vacuum comes in a short soak: each message leaves its dead rows and index entries behind. */
const SHORT_BYTES_EACH = 2_000
const SHORT_DEAD_EACH = 5
/** A vacuum that comes a little later than the one before leaves this much more behind. */
const LARGER_MAX = 1.25
const BYTES_SLACK = 1024 * 1024
/** Between two vacuums dead rows pile up; what counts is that each takes them away. */
const DEADER_MAX = 2
const DEAD_SLACK = 10_000

export function soakVerdicts(rows: readonly SoakRow[], hold: Hold | null): SoakVerdict[] {
  const [second, last] = [rows[1]!, rows.at(-1)!]
  // Space that a held snapshot made the queue take is used again, not given back: it must not grow on from there.
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
    const few = `${sentence}: not judged, of ${count(samples)} messages; it takes ${count(samplesFor(99))}`
    return { isMet: true, isJudged: false, sentence: few }
  }
  const more = slackMs > 0 ? ` and ${slackMs} ms` : ''
  return { isMet, sentence: `${sentence} (at most ${SLOWER_MAX} times as much${more})` }
}

function memoryVerdict(second: SoakRow, last: SoakRow): SoakVerdict {
  if (second.brokerRssMb === null || last.brokerRssMb === null)
    return { isMet: true, sentence: "the broker's memory is not known" }
  const slackMb = isShort(second) ? SHORT_SLACK_MB : MEMORY_SLACK_MB
  const isMet = last.brokerRssMb <= FATTER_MAX * second.brokerRssMb + slackMb
  const sentence = `the broker took ${figure(last.brokerRssMb)} MB in the last ${spanOf(second)}, ${figure(second.brokerRssMb)} in the second`
  return { isMet, sentence: `${sentence} (at most ${FATTER_MAX} times as much and ${slackMb} MB)` }
}

/** The second begins where the first ends. */
const isShort = ({ fromSeconds }: SoakRow): boolean => fromSeconds < MINUTE_S
const spanOf = (second: SoakRow): string => (isShort(second) ? `${figure(second.fromSeconds)} s` : 'minute')

/** Between the two. */
const messagesBetween = (second: SoakRow, last: SoakRow): number =>
  last.delivered * ((last.fromSeconds - second.fromSeconds) / (second.fromSeconds || 1))

function sizeVerdict(first: SoakRow, last: SoakRow): SoakVerdict {
  const slack = BYTES_SLACK + (isShort(first) ? SHORT_BYTES_EACH * messagesBetween(first, last) : 0)
  const grown = Object.keys(last.bytes).filter((name) => {
    return !isLedger(name) && last.bytes[name]! > LARGER_MAX * (first.bytes[name] ?? 0) + slack
  })
  const much = isShort(first) ? ` by more than a vacuum takes away (${megabytes(slack)})` : ''
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

/** It grows by design until the first of it is a day old, so it is told and not judged. */
function ledgerNote(second: SoakRow, last: SoakRow): SoakVerdict {
  const sizeIn = (row: SoakRow) =>
    Object.entries(row.bytes).reduce((sum, [name, bytes]) => sum + (isLedger(name) ? bytes : 0), 0)
  const messages = messagesBetween(second, last)
  const each = messages > 0 ? (sizeIn(last) - sizeIn(second)) / messages : 0
  const sizes = `${megabytes(sizeIn(second))} → ${megabytes(sizeIn(last))}`
  return { isMet: true, sentence: `the ledger, which keeps a day: ${sizes}, ${figure(each)} bytes a message` }
}

const isLedger = (name: string): boolean => name.startsWith('dedupe_ledger')

export const megabytes = (bytes: number): string => `${figure(bytes / 1e6)} MB`
