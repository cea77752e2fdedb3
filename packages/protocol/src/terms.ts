/**
 * What a sender asks for beside the sealed envelope, as far as the broker keeps it with the delivery: one column of a few
 * bytes, empty for most. The same column marks a delivery that is a receipt, which the queue itself makes.
 */
import type { Millis } from '@sealpost/std'
import { isHex, toHex } from '@sealpost/std'

/** What the sender wants to hear: nothing, how it ended, or also that it was pushed. */
export const RECEIPT_WISHES = ['none', 'end', 'all'] as const
export type ReceiptWish = (typeof RECEIPT_WISHES)[number]
/** What a receipt tells. Stored is what an ack says, refused what a nack says. */
export const RECEIPT_EVENTS = ['pushed', 'settled', 'expired', 'struck_out', 'rejected'] as const
export type ReceiptEvent = (typeof RECEIPT_EVENTS)[number]
/** Why a delivery left the queue without being settled. */
export const DEATHS = ['expired', 'strikes', 'rejected'] as const
export type Death = (typeof DEATHS)[number]

/** Kept with a delivery, and pushed with it. */
export interface Terms {
  readonly receipts: ReceiptWish
  /** 32 hex digits; `NO_THREAD`: none. */
  readonly thread: string
  /** How often agents have answered one another in this thread. */
  readonly hops: number
  readonly noAutoReply: boolean
}
export const NO_THREAD = '0'.repeat(32)

/** What the sender asked for in all; times by the database clock, in ms since 1970, 0 for at once. */
export interface SendTerms extends Terms {
  readonly notBeforeMs: Millis
  /** Refuse it when its recipient has no session. */
  readonly ifOnline: boolean
}

export type Marking =
  | { readonly kind: 'terms'; readonly terms: Terms }
  | { readonly kind: 'receipt'; readonly event: ReceiptEvent }

const TERMS = 1
const RECEIPT = 2
const TERMS_BYTES = 21

/** 1, the place in `RECEIPT_WISHES`, 1 for `noAutoReply`, hops as u16, the thread. Null for terms that ask nothing. */
export function encodeTerms({ receipts, thread, hops, noAutoReply }: Terms): Uint8Array | null {
  if (receipts === 'none' && thread === NO_THREAD && hops === 0 && !noAutoReply) return null
  const bytes = new Uint8Array(TERMS_BYTES)
  bytes.set([TERMS, RECEIPT_WISHES.indexOf(receipts), noAutoReply ? 1 : 0, hops >> 8, hops & 0xff])
  if (isHex(thread, 16)) bytes.set(Uint8Array.fromHex(thread), 5)
  return bytes
}

/** 2 and the place in `RECEIPT_EVENTS`. */
export const encodeReceipt = (event: ReceiptEvent): Uint8Array => Uint8Array.of(RECEIPT, RECEIPT_EVENTS.indexOf(event))

/** Of what was stored; bytes that none of the two above wrote count as no terms. */
export function readMarking(bytes: Uint8Array): Marking | null {
  if (bytes[0] === RECEIPT) return { kind: 'receipt', event: RECEIPT_EVENTS[bytes[1]!] ?? 'settled' }
  if (bytes[0] !== TERMS || bytes.length !== TERMS_BYTES) return null
  const hops = bytes[3]! * 256 + bytes[4]!
  const receipts = RECEIPT_WISHES[bytes[1]!] ?? 'none'
  return { kind: 'terms', terms: { receipts, thread: toHex(bytes.subarray(5)), hops, noAutoReply: bytes[2] === 1 } }
}
