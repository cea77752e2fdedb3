/**
 * Encodes the terms that the broker stores with a delivery. They take one column of a few bytes, which is empty for
 * most deliveries. The same column marks receipts, which the queue itself creates.
 */
import { fromHex, isHex, type MeshId, type Millis, type PeerKey, type SpaceId, toHex } from '@sealpost/std'

/** Which receipts a sender requests: none, one for the end of the delivery, or also one for the push. */
export const RECEIPT_WISHES = ['none', 'end', 'all'] as const
export type ReceiptWish = (typeof RECEIPT_WISHES)[number]
export const RECEIPT_EVENTS = ['pushed', 'settled', 'expired', 'struck_out', 'rejected'] as const
export type ReceiptEvent = (typeof RECEIPT_EVENTS)[number]
export const DEATHS = ['expired', 'strikes', 'rejected'] as const
export type Death = (typeof DEATHS)[number]

export interface Terms {
  readonly receipts: ReceiptWish
  readonly thread: string
  /** The number of messages before this one in a chain of replies. */
  readonly hops: number
  readonly noAutoReply: boolean
}
export const NO_THREAD = '0'.repeat(32)

/** All options of a sender. Times are in ms since 1970 according to the database clock; 0 means immediately. */
export interface SendTerms extends Terms {
  readonly notBeforeMs: Millis
  readonly ifOnline: boolean
}

export type Marking =
  | { readonly kind: 'terms'; readonly terms: Terms }
  | { readonly kind: 'receipt'; readonly event: ReceiptEvent }

const TERMS = 1
const RECEIPT = 2
const TERMS_BYTES = 21

/**
 * Encodes terms as: 1, the index in `RECEIPT_WISHES`, 1 for `noAutoReply`, the hops as u16, the thread. Returns null
 * for neutral terms.
 */
export function encodeTerms({ receipts, thread, hops, noAutoReply }: Terms): Uint8Array | null {
  if (receipts === 'none' && thread === NO_THREAD && hops === 0 && !noAutoReply) return null
  const bytes = new Uint8Array(TERMS_BYTES)
  bytes.set([TERMS, RECEIPT_WISHES.indexOf(receipts), noAutoReply ? 1 : 0, hops >> 8, hops & 0xff])
  if (isHex(thread, 16)) bytes.set(fromHex(thread), 5)
  return bytes
}

export const encodeReceipt = (event: ReceiptEvent): Uint8Array => Uint8Array.of(RECEIPT, RECEIPT_EVENTS.indexOf(event))

/** Reads a stored marking. Returns null for neutral terms. */
export function readMarking(bytes: Uint8Array): Marking | null {
  if (bytes[0] === RECEIPT) return { kind: 'receipt', event: RECEIPT_EVENTS[bytes[1]!] ?? 'settled' }
  if (bytes[0] !== TERMS || bytes.length !== TERMS_BYTES) return null
  const hops = bytes[3]! * 256 + bytes[4]!
  const receipts = RECEIPT_WISHES[bytes[1]!] ?? 'none'
  return { kind: 'terms', terms: { receipts, thread: toHex(bytes.subarray(5)), hops, noAutoReply: bytes[2] === 1 } }
}

interface RecordPlace {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly author: PeerKey
  readonly bodyId: string
}

/**
 * Reads the header of a record. Throws if bytes are missing. Readers of the history verify the rest, including the
 * signature.
 */
export function readRecordPlace(record: Uint8Array): RecordPlace {
  const at = (from: number, length: number) => toHex(record.subarray(from, from + length))
  return {
    meshId: at(5, 16) as MeshId,
    spaceId: at(21, 16) as SpaceId,
    author: at(37, 32) as PeerKey,
    bodyId: at(69, 32),
  }
}
