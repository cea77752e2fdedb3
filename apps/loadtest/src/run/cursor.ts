/** Walks over a generator's file row by row, a piece of it in memory at a time. */
import { closeSync, openSync, readSync } from 'node:fs'
import { ID_BYTES, RECEIPT, receiptsFile, SEND, sendsFile } from '../generators/journal.ts'
import type { Records } from '../generators/link.ts'

const ROWS_AT_ONCE = 20_000

/** Stands on a row from the first `next` on that answers true. */
class Cursor {
  readonly #file: number
  readonly #rowBytes: number
  readonly #piece: Buffer
  readonly #times: Float64Array
  readonly #counts: Uint32Array
  readonly #aheadMs: number
  #at: number
  #end = 0

  constructor(path: string, { rowBytes, aheadMs }: { rowBytes: number; aheadMs: number }) {
    this.#file = openSync(path, 'r')
    this.#aheadMs = aheadMs
    this.#rowBytes = rowBytes
    this.#piece = Buffer.alloc(ROWS_AT_ONCE * rowBytes)
    this.#times = new Float64Array(this.#piece.buffer)
    this.#counts = new Uint32Array(this.#piece.buffer)
    this.#at = -rowBytes
  }

  /** @returns false at the end */
  next(): boolean {
    this.#at += this.#rowBytes
    if (this.#at < this.#end) return true
    this.#at = 0
    this.#end = readSync(this.#file, this.#piece, 0, this.#piece.length, null)
    return this.#end > 0
  }

  close(): void {
    closeSync(this.#file)
  }

  /** By the clock of the script. */
  protected time(offset: number): number {
    return this.#times[(this.#at + offset) >>> 3]! - this.#aheadMs
  }

  protected count(offset: number): number {
    return this.#counts[(this.#at + offset) >>> 2]!
  }

  /** A view of it, which the next piece overwrites. */
  protected bytes(offset: number): Buffer {
    return this.#piece.subarray(this.#at + offset, this.#at + offset + ID_BYTES)
  }
}

export class SendCursor extends Cursor {
  readonly kind = 'send'

  constructor({ prefix, aheadMs }: Records) {
    super(sendsFile(prefix), { rowBytes: SEND.bytes, aheadMs })
  }
  /** When it happened: what the rows of a file are in order of. */
  get atMs(): number {
    return this.time(SEND.answeredAtMs)
  }
  get calledAtMs(): number {
    return this.time(SEND.calledAtMs)
  }
  /** NaN when refused. */
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

  constructor({ prefix, aheadMs }: Records) {
    super(receiptsFile(prefix), { rowBytes: RECEIPT.bytes, aheadMs })
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

/** All rows in the order in which they happened; those of one file keep their own. */
export function* inTime(cursors: readonly (SendCursor | ReceiptCursor)[]): Generator<SendCursor | ReceiptCursor> {
  const open = cursors.filter((cursor) => cursor.next())
  while (open.length > 0) {
    const first = open.reduce((a, b) => (b.atMs < a.atMs ? b : a))
    yield first
    if (!first.next()) open.splice(open.indexOf(first), 1)
  }
}
