/** Long responses as bytes: rows from Postgres as lines of JSON, or unchanged. */
import type { CopyOutPool } from '@sealpost/pg'
import { CopyRowReader, HeaderStrip, JsonLineWriter, jsonLine, type ReplayRow } from '@sealpost/replay'
import { OperatingError } from '@sealpost/std'

export type ReplayForm = 'lines' | 'records'

export interface ReplayStream {
  readonly copies: CopyOutPool
  readonly query: string
  readonly form: ReplayForm
  readonly start: Readonly<Record<string, unknown>>
  readonly cursor: number
  readonly signal: AbortSignal
}

const PIECE_BYTES = 64 * 1024

export function replayStream(answer: ReplayStream): AsyncGenerator<Uint8Array> {
  return answer.form === 'lines' ? asLines(answer) : asRecords(answer)
}

async function* asLines({ copies, query, start, cursor, signal }: ReplayStream): AsyncGenerator<Uint8Array> {
  const reader = new CopyRowReader()
  const lines = new JsonLineWriter(PIECE_BYTES)
  let seq = cursor
  const write = (row: ReplayRow) => {
    lines.row(row)
    seq = Math.max(seq, row.seq)
  }
  let text = jsonLine({ start: true, ...start })
  for await (const bytes of copies.read(copied(query), signal)) {
    reader.take(bytes, write)
    const piece = lines.take()
    if (piece.length > 0) yield text === '' ? piece : Buffer.concat([Buffer.from(text, 'latin1'), piece])
    if (piece.length > 0) text = ''
  }
  if (!reader.isAtEnd) throw cut()
  yield Buffer.from(text + jsonLine({ end: true, seq }), 'latin1')
}

/**
 * Forwards rows unread: after the header of the first, the messages of a binary `COPY` are the records and their end.
 */
async function* asRecords({ copies, query, signal }: ReplayStream): AsyncGenerator<Uint8Array> {
  const strip = new HeaderStrip()
  for await (const bytes of copies.read(copied(query), signal)) {
    const records = strip.take(bytes)
    if (records.length > 0) yield records
  }
}

const copied = (query: string): string => `copy (${query}) to stdout (format binary)`

const cut = () => new OperatingError('db_unavailable', 'A response of the database ended early')
