/** Reads the lines of a streamed response as they arrive. */

import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf } from '../http/access.ts'

/** A line with a change or a current value. */
export interface EventLine {
  readonly seq: number
  readonly atUs: number
  readonly kind: 1 | 2 | 3
  /** The entry, or the record of a message. */
  readonly value: Uint8Array
  /** The sealed body of a message. */
  readonly body: Uint8Array | null
}

export type StreamLine =
  | { readonly type: 'start'; readonly atUs: number | null; readonly lastSeq: number }
  | ({ readonly type: 'event' } & EventLine)
  | { readonly type: 'alive' }
  /** `hasMore`: whether another page follows. */
  | { readonly type: 'end'; readonly hasMore: boolean }

export interface StreamQuery {
  readonly of: 'state' | 'history'
  readonly query: Readonly<Record<string, string | number | undefined>>
  readonly signal?: AbortSignal | undefined
}

/**
 * The maximum length of a line. An entry has up to 68 KiB, a body up to 64 KiB, and base64 makes them a third longer.
 */
const LINE_CHARS_MAX = 512 * 1024

/** Yields the lines of a response. The caller expects `end` last. @throws SealpostError `answer_malformed` */
export async function* linesOf(answer: Response): AsyncGenerator<StreamLine> {
  if (!answer.body) throw answerMalformed()
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
    rest += decoder.decode(chunk, { stream: true })
    if (rest.length > LINE_CHARS_MAX && !rest.includes('\n')) throw answerMalformed()
    const lines = rest.split('\n')
    rest = lines.pop()!
    for (const line of lines) if (line !== '') yield parseLine(line)
  }
}

function parseLine(text: string): StreamLine {
  const line = parsed(text)
  if (line.alive === true) return { type: 'alive' }
  if (line.end === true) return { type: 'end', hasMore: line.more === true }
  if (line.start === true) {
    const atUs = line.at === undefined || line.at === null ? null : microseconds(line.at)
    return { type: 'start', atUs, lastSeq: whole(line.lastSeq) }
  }
  const { kind } = line
  if (kind !== 1 && kind !== 2 && kind !== 3) throw answerMalformed()
  const body = kind === 3 ? bytesOf(line.body) : null
  return { type: 'event', seq: whole(line.seq), atUs: microseconds(line.at), kind, value: bytesOf(line.value), body }
}

function parsed(text: string): Record<string, unknown> {
  try {
    const line: unknown = JSON.parse(text)
    if (typeof line === 'object' && line !== null) return line as Record<string, unknown>
  } catch {
    // invalid JSON is reported below
  }
  throw answerMalformed()
}

export function whole(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw answerMalformed()
}

const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/

/** Reads a time: a number of microseconds since 1970, or an RFC 3339 timestamp in UTC. */
export function microseconds(value: unknown): number {
  if (typeof value === 'number') return whole(value)
  const [, seconds, fraction = ''] = TIME.exec(typeof value === 'string' ? value : '') ?? []
  const ms = seconds === undefined ? Number.NaN : Date.parse(`${seconds}Z`)
  return whole(ms * 1000 + Number(fraction.padEnd(6, '0')))
}

/** Formats an RFC 3339 timestamp in UTC with six fractional digits. */
export function timeText(us: number): string {
  const ms = Math.floor(us / 1000)
  return `${new Date(ms).toISOString().slice(0, -1)}${String(us - ms * 1000).padStart(3, '0')}Z`
}

/** The dependencies of `eventLines`. */
export interface EventStreamPorts {
  readonly calls: { stream(question: StreamQuery): Promise<AsyncIterable<StreamLine>> }
  readonly pause: (tries: number, signal?: AbortSignal) => Promise<void>
}

/** The maximum number of consecutive cuts without a line between them. */
const CUTS_MAX = 8

interface Progress {
  query: StreamQuery['query']
  cuts: number
  isOver: boolean
  hasMore: boolean
}

/**
 * Yields the lines of a reply, and resumes it after a cut. @throws SealpostError `connection_lost` if it is cut
 * repeatedly, and the broker's refusals
 */
export async function* eventLines(parts: EventStreamPorts, question: StreamQuery): AsyncGenerator<EventLine> {
  const progress: Progress = { query: question.query, cuts: 0, isOver: false, hasMore: false }
  const { signal } = question
  for (;;) {
    yield* oneAnswer(parts, { ...question, query: progress.query }, progress)
    if (progress.isOver || progress.query.limit === 0 || signal?.aborted) return
    if (progress.hasMore) continue
    progress.cuts += 1
    if (progress.cuts > CUTS_MAX) throw cutOff()
    await parts.pause(progress.cuts, signal)
  }
}

/** Reads one page, and reads it again after a cut. @throws the errors of `eventLines`, and the signal's reason */
export async function pageOf(
  parts: EventStreamPorts,
  question: StreamQuery,
): Promise<{ lines: EventLine[]; hasMore: boolean }> {
  const { query, signal } = question
  for (let cuts = 1; cuts <= CUTS_MAX; cuts++) {
    const progress: Progress = { query, cuts: 0, isOver: false, hasMore: false }
    const lines: EventLine[] = []
    for await (const line of oneAnswer(parts, question, progress)) lines.push(line)
    if (progress.isOver || progress.hasMore) return { lines, hasMore: progress.hasMore }
    signal?.throwIfAborted()
    await parts.pause(cuts, signal)
  }
  throw cutOff()
}

async function* oneAnswer(
  { calls }: EventStreamPorts,
  question: StreamQuery,
  progress: Progress,
): AsyncGenerator<EventLine> {
  progress.hasMore = false
  try {
    for await (const line of await calls.stream(question)) {
      progress.cuts = 0
      progress.query = resumed(progress.query, line)
      if (line.type === 'event') yield line
      if (line.type !== 'end') continue
      progress.hasMore = line.hasMore
      progress.isOver = !line.hasMore && question.query.follow === undefined
    }
  } catch (error) {
    // A reader that follows the events waits for longer than the time limit of one request.
    const isFollowed = question.query.follow !== undefined
    const isFinal = error instanceof SealpostError && !(isFollowed && error.code === 'connection_lost')
    if (isFinal && !question.signal?.aborted) throw error
  }
}

function resumed(query: StreamQuery['query'], line: StreamLine): StreamQuery['query'] {
  if (line.type !== 'event') return query
  const rest = typeof query.limit === 'number' ? { limit: query.limit - 1 } : {}
  return { ...query, ...rest, after: line.seq }
}

const cutOff = (): SealpostError =>
  new SealpostError('connection_lost', 'The response was interrupted repeatedly.', { isRetryable: true })

/**
 * The media type of records, which are lines without base64. A record consists of the byte 100, its length, the number
 * of fields, and five length-prefixed fields. The last record has no fields, and -1 as their number.
 */
export const RECORDS = 'application/octet-stream'

const FRONT_BYTES = 5
const RECORD = 100
const FIELDS = 5
const END = -1
/** The maximum length of a record: a value and a body have up to 68 KiB each. */
const RECORD_BYTES_MAX = 256 * 1024

/** Yields the records of a response. The caller expects `end` last. @throws SealpostError `answer_malformed` */
export async function* recordsOf(answer: Response): AsyncGenerator<StreamLine> {
  if (!answer.body) throw answerMalformed()
  let rest: Uint8Array = new Uint8Array()
  for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
    const bytes = joined(rest, chunk)
    let at = 0
    for (let end = endOf(bytes, at); end !== null; end = endOf(bytes, at)) {
      yield recordIn(bytes.subarray(at + FRONT_BYTES, end))
      at = end
    }
    rest = bytes.slice(at)
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  if (first.length === 0) return second
  const both = new Uint8Array(first.length + second.length)
  both.set(first)
  both.set(second, first.length)
  return both
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** Returns where the record at `at` ends; null if it is incomplete. */
function endOf(bytes: Uint8Array, at: number): number | null {
  if (bytes.length - at < FRONT_BYTES) return null
  const length = viewOf(bytes).getInt32(at + 1)
  if (bytes[at] !== RECORD || length < FRONT_BYTES + 1 || length > RECORD_BYTES_MAX) throw answerMalformed()
  const end = at + 1 + length
  return end > bytes.length ? null : end
}

function recordIn(bytes: Uint8Array): StreamLine {
  const view = viewOf(bytes)
  const count = view.getInt16(0)
  if (count === END) return { type: 'end', hasMore: false }
  if (count !== FIELDS) throw answerMalformed()
  const fields = fieldsIn(bytes, view)
  const [seq, at, kindField, value, body] = fields
  const kind = kindField?.byteLength === 2 ? viewOf(kindField).getInt16(0) : 0
  if (!value || (kind !== 1 && kind !== 2 && kind !== 3) || (kind === 3 && !body)) throw answerMalformed()
  return { type: 'event', seq: wholeIn(seq), atUs: wholeIn(at), kind, value, body: kind === 3 ? body! : null }
}

/** Returns the fields of a record. Copies each, because a view would keep the others in memory. */
function fieldsIn(bytes: Uint8Array, view: DataView): (Uint8Array | null)[] {
  const fields: (Uint8Array | null)[] = []
  let at = 2
  for (let i = 0; i < FIELDS; i++) {
    const length = at + 4 <= bytes.length ? view.getInt32(at) : Number.NaN
    if (!(length >= -1) || at + 4 + length > bytes.length) throw answerMalformed()
    fields.push(length < 0 ? null : bytes.slice(at + 4, at + 4 + length))
    at += 4 + Math.max(0, length)
  }
  if (at !== bytes.length) throw answerMalformed()
  return fields
}

function wholeIn(bytes: Uint8Array | null | undefined): number {
  if (bytes?.byteLength !== 8) throw answerMalformed()
  return whole(Number(viewOf(bytes).getBigInt64(0)))
}
