/**
 * Encodes and decodes Postgres' binary formats: arrays, `COPY` rows and result rows. Postgres parses binary arrays
 * three times as fast as text.
 */
import { arrayLiteral } from '@sealpost/pg'
import type { Delivery, DeliveryRef } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'

/** OIDs of the element types. */
const ELEMENT = { int2: 21, int4: 23, int8: 20, tid: 27, uuid: 2950 } as const

export const int2s = (values: readonly number[]): Uint8Array => array('int2', 2, values, putInt2)
export const int4s = (values: readonly number[]): Uint8Array => array('int4', 4, values, putInt4)
export const int8s = (values: readonly number[]): Uint8Array => array('int8', 8, values, putInt8)
export const uuids = (values: readonly string[]): Uint8Array => array('uuid', 16, values, putUuid)

/** Writes bytes into a reused buffer that grows as needed. */
export class BinaryWriter {
  private buffer = Buffer.allocUnsafeSlow(64 * 1024)
  private at = 0
  private cutAt = 0

  /** Returns the bytes written since the last call. They are valid until the next write. */
  finish(): Uint8Array {
    const written = this.buffer.subarray(0, this.at)
    this.at = 0
    return written
  }

  /** Starts a request of several parts, each returned by `cut`. */
  begin(): void {
    this.at = 0
    this.cutAt = 0
  }
  /** Returns the bytes since the last `cut` or `begin`. They are valid until the next `begin`. */
  cut(): Uint8Array {
    const from = this.cutAt
    this.cutAt = this.at
    return this.buffer.subarray(from, this.at)
  }

  int16(value: number): void {
    this.at = this.room(2).writeInt16BE(value, this.at)
  }
  int32(value: number): void {
    this.at = this.room(4).writeInt32BE(value, this.at)
  }
  bytes(value: Uint8Array): void {
    this.room(value.length).set(value, this.at)
    this.at += value.length
  }

  /** Writes a column, like the methods below: its length, then its bytes. */
  int2(value: number): void {
    this.int32(2)
    this.int16(value)
  }
  int4(value: number): void {
    this.int32(4)
    this.int32(value)
  }
  int8(value: number): void {
    this.int32(8)
    putInt8(this.room(8), value, this.at)
    this.at += 8
  }
  bigint(value: bigint): void {
    this.int32(8)
    this.at = this.room(8).writeBigInt64BE(value, this.at)
  }
  float8(value: number): void {
    this.int32(8)
    this.at = this.room(8).writeDoubleBE(value, this.at)
  }
  /** Writes a `tid` from its text form, such as '(3,14)'. */
  tid(text: string): void {
    const comma = text.indexOf(',')
    this.int32(6)
    this.int32(Number(text.slice(1, comma)) | 0)
    this.at = this.room(2).writeUInt16BE(Number(text.slice(comma + 1, -1)), this.at)
  }
  hex(digits: string): void {
    this.int32(digits.length / 2)
    this.at += this.room(digits.length / 2).write(digits, this.at, 'hex')
  }
  uuid(hex: string): void {
    this.int32(16)
    putUuid(this.room(16), hex, this.at)
    this.at += 16
  }
  /** Writes a `timestamptz` from milliseconds since 1970. */
  instant(ms: number): void {
    this.int8(Math.round((ms - EPOCH_2000_MS) * 1000))
  }
  bytea(value: Uint8Array): void {
    this.int32(value.length)
    this.bytes(value)
  }
  null(): void {
    this.int32(-1)
  }
  array<T>(type: keyof typeof ELEMENT, items: readonly T[], write: (item: T) => void): void {
    const lengthAt = this.at
    this.int32(0)
    this.int32(1) // dimensions
    this.int32(0) // has no nulls
    this.int32(ELEMENT[type])
    this.int32(items.length)
    this.int32(1) // lower bound
    for (const item of items) write(item)
    this.buffer.writeInt32BE(this.at - lengthAt - 4, lengthAt)
  }

  beginCopy(): void {
    this.at = 0
    this.bytes(COPY_HEADER)
  }
  endCopy(): void {
    this.int16(-1)
  }

  private room(length: number): Buffer {
    if (this.at + length > this.buffer.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(this.at + length, this.buffer.length * 2))
      grown.set(this.buffer)
      this.buffer = grown
    }
    return this.buffer
  }
}

const COPY_HEADER = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')
const EPOCH_2000_MS = 946_684_800_000

type Put<T> = (into: Buffer, value: T, at: number) => void

function array<T>(type: keyof typeof ELEMENT, size: number, values: readonly T[], put: Put<T>): Uint8Array {
  const into = Buffer.allocUnsafe(values.length === 0 ? 12 : 20 + values.length * (4 + size))
  into.writeInt32BE(values.length === 0 ? 0 : 1, 0) // dimensions
  into.writeInt32BE(0, 4) // has no nulls
  into.writeInt32BE(ELEMENT[type], 8)
  if (values.length === 0) return into
  into.writeInt32BE(values.length, 12)
  into.writeInt32BE(1, 16) // lower bound
  let at = 20
  for (const value of values) {
    into.writeInt32BE(size, at)
    put(into, value, at + 4)
    at += 4 + size
  }
  return into
}

function putInt2(into: Buffer, value: number, at: number): void {
  into.writeInt16BE(value, at)
}
function putInt4(into: Buffer, value: number, at: number): void {
  into.writeInt32BE(value, at)
}
function putInt8(into: Buffer, value: number, at: number): void {
  into.writeInt32BE(Math.floor(value / 0x100000000), at)
  into.writeUInt32BE(value >>> 0, at + 4)
}
function putUuid(into: Buffer, hex: string, at: number): void {
  into.write(hex, at, 'hex')
}

/**
 * Reads the columns of each row in order, and skips unread ones. A row's message is a type byte, an int32 length that
 * includes itself, an int16 number of columns, and for each its length (-1 for null) and bytes.
 */
export class RowReader {
  private readonly rows: Buffer
  private at = 0
  private end = 0

  constructor(rows: Buffer) {
    this.rows = rows
  }

  /** Moves to the next row. Returns whether there is one. */
  next(): boolean {
    const start = this.end
    if (start >= this.rows.length) return false
    this.end = start + 1 + this.rows.readInt32BE(start + 1)
    this.at = start + 7
    return true
  }

  /** Reads a column that is not null. */
  int2(): number {
    return this.rows.readInt16BE(this.column() - 2)
  }
  int4(): number {
    return this.rows.readInt32BE(this.column() - 4)
  }
  int8(): number {
    const end = this.column()
    return this.rows.readInt32BE(end - 8) * 0x100000000 + this.rows.readUInt32BE(end - 4)
  }
  /** Reads a `timestamptz`. */
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
  /** Returns a view of the rows' buffer. */
  bytes(): Uint8Array | null {
    const from = this.at + 4
    const end = this.column()
    return end < from ? null : this.rows.subarray(from, end)
  }

  /** Skips a column. Returns its end, or for null one less than its start. */
  private column(): number {
    const length = this.rows.readInt32BE(this.at)
    this.at += 4 + Math.max(length, 0)
    return length < 0 ? this.at - 1 : this.at
  }
}

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

/** Formats an array of numbers or hex ids, which need no quotes. */
export const arrayOf = (items: readonly (string | number | bigint | boolean)[]): string => `{${items.join()}}`

/** Returns values for `DELIVERIES`, in text format. */
export const keysOf = (deliveries: readonly DeliveryRef[]) => ({
  meshes: arrayOf(deliveries.map(({ meshId }) => meshId)),
  recipients: arrayOf(deliveries.map(({ recipient }) => recipient)),
  priorities: arrayOf(deliveries.map(({ priority }) => priority)),
  ids: arrayOf(deliveries.map(({ id }) => id)),
})

/** Returns values for `HELD`, in text format. */
export const heldBy = (all: readonly { delivery: DeliveryRef; epoch: number }[]) => ({
  ...keysOf(all.map(({ delivery }) => delivery)),
  epochs: arrayOf(all.map(({ epoch }) => epoch)),
  holders: arrayLiteral(all.map(({ delivery }) => delivery.holder ?? null)),
})
