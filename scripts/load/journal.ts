/**
 * What a generator writes down, message by message, in arrays of plain numbers: nothing here is an object, so the
 * measuring costs little and leaves the garbage collector alone. Each array becomes one file at the end.
 *
 * Times are the SDK's `clockMs`: milliseconds since 1970 with fractions. It is comparable between the processes of one
 * machine: the platform derives `timeOrigin` from the wall clock with less than a microsecond of error (measured against
 * CLOCK_MONOTONIC in eight processes), and nothing jumps afterwards.
 */
import type { Receipt } from '@sealpost/sdk'
import { type Plan, type Share, senderOf } from './plan.ts'

/** Bits of `faults`: the recipient looked at it and something was not as it should be. */
export const FAULTS = { body: 1, recipient: 2, sender: 4 } as const
const ID_BYTES = 16

/** Of Node's and Bun's buffers, not in their types: half the time of `write(text, at, length, 'hex')`. */
type HexBuffer = Buffer & { hexWrite(text: string, at: number, length: number): number }
const idBuffer = (ids: number) => Buffer.alloc(ids * ID_BYTES) as HexBuffer

/** The sending side: a slot for each message of the share's peers; NaN for what did not happen. */
export class Sends {
  readonly calledAtMs: Float64Array
  readonly admittedAtMs: Float64Array
  readonly ackedAtMs: Float64Array
  readonly envelopeIds: HexBuffer

  constructor(slots: number) {
    this.calledAtMs = new Float64Array(slots).fill(Number.NaN)
    this.admittedAtMs = new Float64Array(slots).fill(Number.NaN)
    this.ackedAtMs = new Float64Array(slots).fill(Number.NaN)
    this.envelopeIds = idBuffer(slots)
  }

  acked(slot: number, receipt: Receipt): void {
    this.admittedAtMs[slot] = receipt.admittedAtMs
    this.ackedAtMs[slot] = receipt.ackedAtMs
    this.envelopeIds.hexWrite(receipt.envelopeId, slot * ID_BYTES, ID_BYTES)
  }
}

export const slotsOf = (plan: Plan, { first, end }: Share): number => Math.ceil(plan.total / plan.peers) * (end - first)

export function slotOf(plan: Plan, { first, end }: Share, number: number): number {
  return Math.floor(number / plan.peers) * (end - first) + senderOf(plan, number) - first
}

/** The receiving side: a row for each message handed to an application, in that order. */
export class Receipts {
  count = 0
  atMs: Float64Array
  numbers: Uint32Array
  recipients: Uint32Array
  faults: Uint8Array
  envelopeIds: HexBuffer

  constructor(rows: number) {
    this.atMs = new Float64Array(rows)
    this.numbers = new Uint32Array(rows)
    this.recipients = new Uint32Array(rows)
    this.faults = new Uint8Array(rows)
    this.envelopeIds = idBuffer(rows)
  }

  add(row: { atMs: number; number: number; recipient: number; faults: number; envelopeId: string }): void {
    const at = this.count
    if (at === this.atMs.length) this.#grow()
    this.count = at + 1
    this.atMs[at] = row.atMs
    this.numbers[at] = row.number
    this.recipients[at] = row.recipient
    this.faults[at] = row.faults
    this.envelopeIds.hexWrite(row.envelopeId, at * ID_BYTES, ID_BYTES)
  }

  /** More came than was sent: duplicates. */
  #grow(): void {
    const rows = this.atMs.length * 2 + 16
    const larger = new Receipts(rows)
    larger.atMs.set(this.atMs)
    larger.numbers.set(this.numbers)
    larger.recipients.set(this.recipients)
    larger.faults.set(this.faults)
    larger.envelopeIds.set(this.envelopeIds)
    const { atMs, numbers, recipients, faults, envelopeIds } = larger
    Object.assign(this, { atMs, numbers, recipients, faults, envelopeIds })
  }
}

/** Writes everything beside each other, as `prefix.name`. */
export async function writeRecords(prefix: string, sends: Sends, receipts: Receipts): Promise<void> {
  const { calledAtMs, admittedAtMs, ackedAtMs } = sends
  const { atMs, numbers, recipients, faults, count } = receipts
  const columns = { calledAtMs, admittedAtMs, ackedAtMs, sentIds: sends.envelopeIds }
  const rows = {
    atMs: atMs.subarray(0, count),
    numbers: numbers.subarray(0, count),
    recipients: recipients.subarray(0, count),
    faults: faults.subarray(0, count),
    receivedIds: receipts.envelopeIds.subarray(0, count * ID_BYTES),
  }
  for (const [name, column] of Object.entries({ ...columns, ...rows })) await Bun.write(`${prefix}.${name}`, column)
}

export async function readRecords(prefix: string): Promise<{ sends: Sends; receipts: Receipts }> {
  const read = (name: string) => Bun.file(`${prefix}.${name}`).arrayBuffer()
  const sends = Object.assign(new Sends(0), {
    calledAtMs: new Float64Array(await read('calledAtMs')),
    admittedAtMs: new Float64Array(await read('admittedAtMs')),
    ackedAtMs: new Float64Array(await read('ackedAtMs')),
    envelopeIds: Buffer.from(await read('sentIds')) as HexBuffer,
  })
  const receipts = Object.assign(new Receipts(0), {
    atMs: new Float64Array(await read('atMs')),
    numbers: new Uint32Array(await read('numbers')),
    recipients: new Uint32Array(await read('recipients')),
    faults: new Uint8Array(await read('faults')),
    envelopeIds: Buffer.from(await read('receivedIds')) as HexBuffer,
  })
  receipts.count = receipts.atMs.length
  return { sends, receipts }
}
