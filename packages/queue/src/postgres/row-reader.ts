/**
 * Rows in Postgres' binary form, as its messages bring them, one behind the other: a byte for the kind, an int32 that
 * counts itself, the number of columns as an int16, then each column's length (-1: null) and bytes.
 */
import type { Delivery } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import { EPOCH_2000_MS } from './binary.ts'

/** Reads a row after the other, and its columns in their order; what is left of a row is passed by. */
export class RowReader {
  private readonly rows: Buffer
  private at = 0
  private end = 0

  constructor(rows: Buffer) {
    this.rows = rows
  }

  /** Steps to the next row, if there is one. */
  next(): boolean {
    const start = this.end
    if (start >= this.rows.length) return false
    this.end = start + 1 + this.rows.readInt32BE(start + 1)
    this.at = start + 7
    return true
  }

  /** Columns, of which none is null. */
  int2(): number {
    return this.rows.readInt16BE(this.column() - 2)
  }
  int4(): number {
    return this.rows.readInt32BE(this.column() - 4)
  }
  /** A safe integer. */
  int8(): number {
    const end = this.column()
    return this.rows.readInt32BE(end - 8) * 0x100000000 + this.rows.readUInt32BE(end - 4)
  }
  /** A `timestamptz`. */
  ms(): number {
    return Math.floor(this.int8() / 1000) + EPOCH_2000_MS
  }
  hex(): string {
    const from = this.at + 4
    return this.rows.toString('hex', from, this.column())
  }

  text(): string | null {
    const from = this.at + 4
    const end = this.column()
    return end < from ? null : this.rows.toString('latin1', from, end)
  }
  bool(): boolean | null {
    const from = this.at + 4
    const end = this.column()
    return end < from ? null : this.rows[from] === 1
  }
  /** Shares the memory of all of them. */
  bytes(): Uint8Array | null {
    const from = this.at + 4
    const end = this.column()
    return end < from ? null : this.rows.subarray(from, end)
  }

  /** Steps over a column; answers where it ends: before its start, when it is null. */
  private column(): number {
    const length = this.rows.readInt32BE(this.at)
    this.at += 4 + Math.max(length, 0)
    return length < 0 ? this.at - 1 : this.at
  }
}

/** What `deliveryColumns` of `sql-parts.ts` say. */
export function readDelivery(row: RowReader, attempt: number): Delivery {
  return {
    id: row.int8() as DeliveryId,
    priority: row.int2(),
    enqueuedAtMs: row.ms(),
    envelopeId: row.hex() as EnvelopeId,
    sender: row.hex() as PeerKey,
    terms: row.bytes(),
    body: row.bytes(),
    envelope: row.bytes()!,
    attempt,
  }
}
