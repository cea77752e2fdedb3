/**
 * What a generator writes down, message by message: rows of plain numbers in one piece of memory that goes to a file
 * whenever it is full, so that a run of any length needs the same few megabytes and the garbage collector has nothing
 * to do with it. One file for what was sent, one for what was received, each in the order of events.
 *
 * Times are the SDK's `clockMs`: milliseconds since 1970 with fractions. It is comparable between the processes of one
 * machine (of others see `remote.ts`): the platform derives `timeOrigin` from the wall clock with less than a microsecond of error (measured against
 * CLOCK_MONOTONIC in eight processes), and nothing jumps afterwards.
 */
import { appendFile } from 'node:fs/promises'
import type { EnvelopeId } from '@sealpost/std'

/** Bits of `faults`: the recipient looked at it and something was not as it should be. */
export const FAULTS = { body: 1, recipient: 2, sender: 4 } as const
export const ID_BYTES = 16

/** In bytes, of a row of each file: where its numbers stand. */
export const SEND = { calledAtMs: 0, admittedAtMs: 8, answeredAtMs: 16, id: 24, number: 40, isAcked: 44, bytes: 48 }
export const RECEIPT = { atMs: 0, id: 8, number: 24, recipient: 28, faults: 32, bytes: 40 }

export const sendsFile = (prefix: string): string => `${prefix}.sends`
export const receiptsFile = (prefix: string): string => `${prefix}.receipts`

export interface SendRow {
  readonly number: number
  readonly calledAtMs: number
  readonly answeredAtMs: number
  /** Null: refused. */
  readonly ack: { readonly envelopeId: EnvelopeId; readonly admittedAtMs: number } | null
}

export interface ReceiptRow {
  readonly number: number
  readonly recipient: number
  readonly faults: number
  readonly atMs: number
  readonly envelopeId: EnvelopeId
}

export class Journal {
  readonly #sends: Rows
  readonly #receipts: Rows

  constructor(prefix: string) {
    this.#sends = new Rows(sendsFile(prefix), SEND.bytes)
    this.#receipts = new Rows(receiptsFile(prefix), RECEIPT.bytes)
  }

  /** One call of `send` and how it was answered. */
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

  /** One message handed to an application. */
  received({ number, recipient, faults, atMs, envelopeId }: ReceiptRow): void {
    const rows = this.#receipts
    const at = rows.next()
    rows.setTime(at + RECEIPT.atMs, atMs)
    rows.setId(at + RECEIPT.id, envelopeId)
    rows.setCount(at + RECEIPT.number, number)
    rows.setCount(at + RECEIPT.recipient, recipient)
    rows.setCount(at + RECEIPT.faults, faults)
  }

  /** Resolves when all of it is in the files. */
  async close(): Promise<void> {
    await Promise.all([this.#sends.close(), this.#receipts.close()])
  }
}

/** 170,000 rows: a burst of 100,000 messages touches no disk before it is over, a soak of 2,000/s every 85 seconds. */
const PIECE_BYTES = 8 * 1024 * 1024

/** Of Node's and Bun's buffers, not in their types: half the time of `write(text, at, length, 'hex')`. */
type HexBuffer = Buffer & { hexWrite(text: string, at: number, length: number): number }

class Rows {
  readonly #file: string
  readonly #rowBytes: number
  #bytes: HexBuffer
  #times: Float64Array
  #counts: Uint32Array
  #used = 0
  #written: Promise<void>

  constructor(file: string, rowBytes: number) {
    this.#file = file
    this.#rowBytes = rowBytes
    this.#written = appendFile(file, '') // there is a file of nothing too
    this.#bytes = Buffer.alloc(PIECE_BYTES) as HexBuffer
    this.#times = new Float64Array(this.#bytes.buffer)
    this.#counts = new Uint32Array(this.#bytes.buffer)
  }

  /** @returns where the new row begins */
  next(): number {
    if (this.#used + this.#rowBytes > PIECE_BYTES) this.#flush()
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

  /** Beside the run: the full piece is written while the next one fills. */
  #flush(): void {
    const full = this.#bytes.subarray(0, this.#used)
    this.#written = this.#written.then(() => appendFile(this.#file, full))
    this.#written.catch(() => undefined) // `close` tells
    this.#bytes = Buffer.alloc(PIECE_BYTES) as HexBuffer
    this.#times = new Float64Array(this.#bytes.buffer)
    this.#counts = new Uint32Array(this.#bytes.buffer)
    this.#used = 0
  }
}
