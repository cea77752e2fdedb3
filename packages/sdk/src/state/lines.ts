/** The lines of a streamed answer, read as they come; the last one says that it is the last. */
import { answerMalformed, bytesOf } from '../http/http-token.ts'

/** A change, or a value that stands. */
export interface EventLine {
  readonly seq: number
  readonly atUs: number
  readonly kind: 1 | 2 | 3
  /** The entry, or the record of a message. */
  readonly value: Uint8Array
  /** The sealed body of a message. */
  readonly body: Uint8Array | null
}

export type Line =
  | { readonly type: 'start'; readonly atUs: number | null; readonly lastSeq: number }
  | ({ readonly type: 'event' } & EventLine)
  | { readonly type: 'alive' }
  /** `hasMore`: it was a page, and not the last one. */
  | { readonly type: 'end'; readonly hasMore: boolean }

/** An entry is 68 KiB, a body 64 KiB; in base64 a third longer. */
const LINE_CHARS_MAX = 512 * 1024

/** Ends where the answer ends; whether that was its `end`, the caller sees. @throws SealpostError `answer_malformed` */
export async function* linesOf(answer: Response): AsyncGenerator<Line> {
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

function parseLine(text: string): Line {
  const said = parsed(text)
  if (said.alive === true) return { type: 'alive' }
  if (said.end === true) return { type: 'end', hasMore: said.more === true }
  if (said.start === true) {
    const atUs = said.at === undefined || said.at === null ? null : microseconds(said.at)
    return { type: 'start', atUs, lastSeq: whole(said.lastSeq) }
  }
  const { kind } = said
  if (kind !== 1 && kind !== 2 && kind !== 3) throw answerMalformed()
  const body = kind === 3 ? bytesOf(said.body) : null
  return { type: 'event', seq: whole(said.seq), atUs: microseconds(said.at), kind, value: bytesOf(said.value), body }
}

function parsed(text: string): Record<string, unknown> {
  try {
    const said: unknown = JSON.parse(text)
    if (typeof said === 'object' && said !== null) return said as Record<string, unknown>
  } catch {
    // refused below
  }
  throw answerMalformed()
}

export function whole(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw answerMalformed()
}

const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/

/** Microseconds since 1970, from a number of them or from RFC 3339 in UTC. */
export function microseconds(value: unknown): number {
  if (typeof value === 'number') return whole(value)
  const [, seconds, fraction = ''] = TIME.exec(typeof value === 'string' ? value : '') ?? []
  const ms = seconds === undefined ? Number.NaN : Date.parse(`${seconds}Z`)
  return whole(ms * 1000 + Number(fraction.padEnd(6, '0')))
}

/** RFC 3339 in UTC with six digits. */
export function timeText(us: number): string {
  const ms = Math.floor(us / 1000)
  return `${new Date(ms).toISOString().slice(0, -1)}${String(us - ms * 1000).padStart(3, '0')}Z`
}
