/** Long answers as bytes: rows as they come from Postgres, as lines of JSON or as they are. */
import type { CopyLanes } from '@sealpost/db'
import { CopyRows, lineOf, otherLine } from '@sealpost/replay'
import { OperatingError } from '@sealpost/std'

export type ReplayForm = 'lines' | 'records'

export interface LongAnswer {
  readonly copies: CopyLanes
  readonly query: string
  readonly form: ReplayForm
  readonly start: Readonly<Record<string, unknown>>
  /** The last line's cursor, where no row came. */
  readonly cursor: number
  readonly signal: AbortSignal
}

export function longAnswer(answer: LongAnswer): AsyncGenerator<Uint8Array> {
  return answer.form === 'lines' ? asLines(answer) : asRecords(answer)
}

async function* asLines({ copies, query, start, cursor, signal }: LongAnswer): AsyncGenerator<Uint8Array> {
  const reader = new CopyRows()
  let seq = cursor
  let text = otherLine({ start: true, ...start })
  for await (const bytes of copies.read(copied(query), signal)) {
    for (const row of reader.take(bytes)) {
      text += lineOf(row)
      seq = Math.max(seq, row.seq)
    }
    if (text === '') continue
    yield Buffer.from(text, 'latin1')
    text = ''
  }
  if (!reader.isAtEnd) throw cut()
  yield Buffer.from(text + otherLine({ end: true, seq }), 'latin1')
}

/** Of the file that a binary `COPY` makes. */
const HEADER_BYTES = 19

/** Nobody looks at a row: what is left of the file behind its header are the records and their end. */
async function* asRecords({ copies, query, signal }: LongAnswer): AsyncGenerator<Uint8Array> {
  let unread = HEADER_BYTES
  for await (const bytes of copies.read(copied(query), signal)) {
    const skipped = Math.min(unread, bytes.length)
    unread -= skipped
    if (bytes.length > skipped) yield bytes.subarray(skipped)
  }
}

const copied = (query: string): string => `copy (${query}) to stdout (format binary)`

const cut = () => new OperatingError('db_unavailable', 'An answer of the database came to an end too early')
