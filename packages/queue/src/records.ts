/**
 * Deliveries as `COLLECT` sends them: records in Postgres' binary form, one behind the other. A record is the number of its
 * columns, then for each its type, its length (-1: null) and its bytes.
 */
import type { Delivery } from '@sealpost/protocol'
import { assert, type DeliveryId, type EnvelopeId, type PeerKey } from '@sealpost/std'
import { EPOCH_2000_MS } from './binary.ts'

const COLUMNS = 8

export function deliveriesOf(bytes: Uint8Array): Delivery[] {
  const reader = new RecordReader(bytes)
  const deliveries: Delivery[] = []
  while (!reader.isAtEnd) deliveries.push(deliveryOf(reader))
  return deliveries
}

function deliveryOf(reader: RecordReader): Delivery {
  reader.begin()
  const id = reader.int8() as DeliveryId
  const priority = reader.int2()
  const enqueuedAtMs = Math.floor(reader.int8() / 1000) + EPOCH_2000_MS
  const envelopeId = reader.hex() as EnvelopeId
  const sender = reader.hex() as PeerKey
  const terms = reader.bytes()
  const body = reader.bytes()
  return { id, envelopeId, sender, priority, attempt: 1, enqueuedAtMs, envelope: reader.bytes()!, terms, body }
}

class RecordReader {
  private readonly buffer: Buffer
  private at = 0

  constructor(bytes: Uint8Array) {
    this.buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  }

  get isAtEnd(): boolean {
    return this.at >= this.buffer.length
  }

  begin(): void {
    assert(this.buffer.readInt32BE(this.at) === COLUMNS, 'a record has its columns')
    this.at += 4
  }

  int2(): number {
    const end = this.column()
    return this.buffer.readInt16BE(end - 2)
  }
  /** A safe integer. */
  int8(): number {
    const end = this.column()
    return this.buffer.readInt32BE(end - 8) * 0x100000000 + this.buffer.readUInt32BE(end - 4)
  }
  hex(): string {
    const from = this.at + 8
    return this.buffer.toString('hex', from, this.column())
  }
  /** Shares the memory of all of them. */
  bytes(): Uint8Array | null {
    const from = this.at + 8
    const end = this.column()
    return end < from ? null : this.buffer.subarray(from, end)
  }

  /** Steps over a column; answers where it ends. */
  private column(): number {
    const length = this.buffer.readInt32BE(this.at + 4)
    this.at += 8 + Math.max(length, 0)
    return length < 0 ? this.at - 1 : this.at
  }
}
