/**
 * The records of a long answer, which are lines without their base64: a byte 100, the length (which counts itself), five
 * fields behind their number; the last one has no fields and says so with -1.
 */
import { answerMalformed } from '../http/http-token.ts'
import { type Line, whole } from './lines.ts'

export const RECORDS = 'application/octet-stream'

const FRONT_BYTES = 5
const RECORD = 100
const FIELDS = 5
const END = -1
/** A value and a body are 68 KiB each at most. */
const RECORD_BYTES_MAX = 256 * 1024

/** Ends where the answer ends; whether that was its `end`, the caller sees. @throws SealpostError `answer_malformed` */
export async function* recordsOf(answer: Response): AsyncGenerator<Line> {
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

/** Of the record that begins there; null when not all of it has come. */
function endOf(bytes: Uint8Array, at: number): number | null {
  if (bytes.length - at < FRONT_BYTES) return null
  const length = viewOf(bytes).getInt32(at + 1)
  if (bytes[at] !== RECORD || length < FRONT_BYTES + 1 || length > RECORD_BYTES_MAX) throw answerMalformed()
  const end = at + 1 + length
  return end > bytes.length ? null : end
}

function recordIn(bytes: Uint8Array): Line {
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

/** Copies: what an application keeps of one holds no others. */
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
