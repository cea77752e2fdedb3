/**
 * Records each message of a generator, as a row of plain numbers in one buffer that is written to a file whenever it is
 * full. A run of any length therefore takes the same few megabytes, and the garbage collector has no work. One file
 * contains the sends, another one the receipts, each in the order of events.
 *
 * Times are the SDK's `clockMs`: milliseconds since 1970 with fractions. Processes on the same machine can compare
 * them: the runtime derives `timeOrigin` from the wall clock with an error below a microsecond (measured against
 * CLOCK_MONOTONIC in eight processes), and it never jumps afterwards.
 */

import { closeSync, openSync, readSync } from 'node:fs'
import { appendFile } from 'node:fs/promises'
import type { EnvelopeId } from '@sealpost/std'

const recordFiles = (prefix: string) => [`${prefix}.sends`, `${prefix}.receipts`] as const

/** Bits of `faults`. */
export const FAULTS = { body: 1, recipient: 2, sender: 4 } as const
export const ID_BYTES = 16

/** Each file's row: the fields' offsets and the length. */
const SEND = { calledAtMs: 0, admittedAtMs: 8, answeredAtMs: 16, id: 24, number: 40, isAcked: 44, bytes: 48 }
const RECEIPT = { atMs: 0, id: 8, number: 24, recipient: 28, faults: 32, bytes: 40 }

interface SendRow {
  readonly number: number
  readonly calledAtMs: number
  readonly answeredAtMs: number
  /** Null for a refused message. */
  readonly ack: { readonly envelopeId: EnvelopeId; readonly admittedAtMs: number } | null
}

interface ReceiptRow {
  readonly number: number
  readonly recipient: number
  readonly faults: number
  readonly atMs: number
  readonly envelopeId: EnvelopeId
}

export class RecordLog {
  readonly #sends: RowWriter
  readonly #receipts: RowWriter

  constructor(prefix: string) {
    const [sends, receipts] = recordFiles(prefix)
    this.#sends = new RowWriter(sends, SEND.bytes)
    this.#receipts = new RowWriter(receipts, RECEIPT.bytes)
  }

  answered({ number, calledAtMs, answeredAtMs, ack }: SendRow): void {
    const rows = this.#sends
    const at = rows.next()
    rows.setTime(at + SEND.calledAtMs, calledAtMs)
    rows.setTime(at + SEND.answeredAtMs, answeredAtMs)
    rows.setTime(at + SEND.admittedAtMs, ack ? ack.admittedAtMs : Number.NaN)
    rows.setCount(at + SEND.number, number)
    rows.setCount(at + SEND.isAcked, ack ? 1 : 0)
    if (ack) rows.setId(at + SEND.id, ack.envelopeId)
  }

  received({ number, recipient, faults, atMs, envelopeId }: ReceiptRow): void {
    const rows = this.#receipts
    const at = rows.next()
    rows.setTime(at + RECEIPT.atMs, atMs)
    rows.setId(at + RECEIPT.id, envelopeId)
    rows.setCount(at + RECEIPT.number, number)
    rows.setCount(at + RECEIPT.recipient, recipient)
    rows.setCount(at + RECEIPT.faults, faults)
  }

  /** Resolves when the files are complete. */
  async close(): Promise<void> {
    await Promise.all([this.#sends.close(), this.#receipts.close()])
  }
}

/** The buffer's size: 170,000 rows, so that a burst writes to disk only at its end. */
const BUFFER_BYTES = 8 * 1024 * 1024

/** An untyped method that takes half the time of `write(text, at, length, 'hex')`. */
type HexBuffer = Buffer & { hexWrite(text: string, at: number, length: number): number }

class RowWriter {
  readonly #file: string
  readonly #rowBytes: number
  #bytes!: HexBuffer
  #times!: Float64Array
  #counts!: Uint32Array
  #used = 0
  #written: Promise<void>

  constructor(file: string, rowBytes: number) {
    this.#file = file
    this.#rowBytes = rowBytes
    this.#written = appendFile(file, '') // creates the file even without rows
    this.#allocate()
  }

  /** Begins a row. @returns the offset of the new row */
  next(): number {
    if (this.#used + this.#rowBytes > BUFFER_BYTES) this.#flush()
    const at = this.#used
    this.#used += this.#rowBytes
    return at
  }

  setTime(at: number, ms: number): void {
    this.#times[at >>> 3] = ms
  }

  setCount(at: number, count: number): void {
    this.#counts[at >>> 2] = count
  }

  setId(at: number, id: string): void {
    this.#bytes.hexWrite(id, at, ID_BYTES)
  }

  close(): Promise<void> {
    this.#flush()
    return this.#written
  }

  /** Writes the full buffer while the next one fills. */
  #flush(): void {
    const full = this.#bytes.subarray(0, this.#used)
    this.#written = this.#written.then(() => appendFile(this.#file, full))
    this.#written.catch(() => undefined) // `close` reports the error
    this.#allocate()
  }

  #allocate(): void {
    this.#bytes = Buffer.alloc(BUFFER_BYTES) as HexBuffer
    this.#times = new Float64Array(this.#bytes.buffer)
    this.#counts = new Uint32Array(this.#bytes.buffer)
    this.#used = 0
  }
}

const ROWS_AT_ONCE = 20_000

/** Reads a file by rows, with only a part in memory. */
class Cursor {
  readonly #file: number
  readonly #rowBytes: number
  readonly #bytes: Buffer
  readonly #times: Float64Array
  readonly #counts: Uint32Array
  #at: number
  #end = 0

  constructor(path: string, rowBytes: number) {
    this.#file = openSync(path, 'r')
    this.#rowBytes = rowBytes
    this.#bytes = Buffer.alloc(ROWS_AT_ONCE * rowBytes)
    this.#times = new Float64Array(this.#bytes.buffer)
    this.#counts = new Uint32Array(this.#bytes.buffer)
    this.#at = -rowBytes
  }

  /** Advances to the next row. @returns false at the end */
  next(): boolean {
    this.#at += this.#rowBytes
    if (this.#at < this.#end) return true
    this.#at = 0
    this.#end = readSync(this.#file, this.#bytes, 0, this.#bytes.length, null)
    return this.#end > 0
  }

  close(): void {
    closeSync(this.#file)
  }

  protected time(offset: number): number {
    return this.#times[(this.#at + offset) >>> 3]!
  }

  protected count(offset: number): number {
    return this.#counts[(this.#at + offset) >>> 2]!
  }

  /** Returns a view that the next read overwrites. */
  protected bytes(offset: number): Buffer {
    return this.#bytes.subarray(this.#at + offset, this.#at + offset + ID_BYTES)
  }
}

export class SendCursor extends Cursor {
  readonly kind = 'send'

  constructor(prefix: string) {
    super(recordFiles(prefix)[0], SEND.bytes)
  }
  /** The time of the reply, by which rows are ordered. */
  get atMs(): number {
    return this.time(SEND.answeredAtMs)
  }
  get calledAtMs(): number {
    return this.time(SEND.calledAtMs)
  }
  /** When the window admitted the message; NaN for a refusal. */
  get admittedAtMs(): number {
    return this.time(SEND.admittedAtMs)
  }
  get isAcked(): boolean {
    return this.count(SEND.isAcked) === 1
  }
  get number(): number {
    return this.count(SEND.number)
  }
  get id(): Buffer {
    return this.bytes(SEND.id)
  }
}

export class ReceiptCursor extends Cursor {
  readonly kind = 'receipt'

  constructor(prefix: string) {
    super(recordFiles(prefix)[1], RECEIPT.bytes)
  }
  get atMs(): number {
    return this.time(RECEIPT.atMs)
  }
  get number(): number {
    return this.count(RECEIPT.number)
  }
  get recipient(): number {
    return this.count(RECEIPT.recipient)
  }
  get faults(): number {
    return this.count(RECEIPT.faults)
  }
  get id(): Buffer {
    return this.bytes(RECEIPT.id)
  }
}

/** Yields all rows by time; each file's keep their order. */
export function* inTime(cursors: readonly (SendCursor | ReceiptCursor)[]): Generator<SendCursor | ReceiptCursor> {
  const open = cursors.filter((cursor) => cursor.next())
  while (open.length > 0) {
    const first = open.reduce((a, b) => (b.atMs < a.atMs ? b : a))
    yield first
    if (!first.next()) open.splice(open.indexOf(first), 1)
  }
}
