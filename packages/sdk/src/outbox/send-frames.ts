/** Packs envelopes into as few frames as the limits of a frame allow. */

import type { Note } from '@sealpost/identity'
import {
  BATCH_MAX,
  FANOUT_MAX,
  FRAME_BYTES_MAX,
  type FrameOf,
  NO_THREAD,
  type Priority,
  type ReceiptWish,
  type SendTerms,
} from '@sealpost/protocol'
import { type GroupId, isHex, type Millis, type PeerKey } from '@sealpost/std'
import type { GroupMessage } from '../groups/group-message.ts'
import type { OutgoingTerms } from './lane.ts'

export type SendItem = FrameOf<'send'>['envelopes'][number]
export type SendWithItem = FrameOf<'sendWith'>['envelopes'][number]
/** An envelope of a group message; `isPinned`: to be stored only if the group has not changed since. */
export interface GroupItem {
  readonly message: GroupMessage
  readonly isPinned: boolean
  readonly send: SendItem
}
export type OutgoingItem = SendItem | SendWithItem | GroupItem
export type SendFrame = FrameOf<'send'> | FrameOf<'sendWith'> | BroadcastFrame
type BroadcastFrame = FrameOf<'broadcast'> | FrameOf<'broadcastKept'>

/** Half a frame: base64 in the readable form makes envelopes a third longer, and names its fields. */
const SEND_BYTES = FRAME_BYTES_MAX / 2
const SEND_ITEM_BYTES = 128
const SEND_WITH_ITEM_BYTES = 320

export function packSends(items: readonly SendItem[]): FrameOf<'send'>[] {
  return packed(items, ({ envelope }) => envelope.length + SEND_ITEM_BYTES).map((envelopes) => ({
    type: 'send',
    envelopes,
  }))
}

/** Those with terms or a shared body go by frames of their own; the frames keep the order of all. */
export function packMixed(items: readonly OutgoingItem[]): SendFrame[] {
  return runs(items).flatMap((run): SendFrame[] => {
    if (isPlain(run[0]!)) return packSends(run as SendItem[])
    if (isOfGroup(run[0]!)) return packBroadcasts(run as GroupItem[])
    const frames = packed(run as SendWithItem[], ({ send }) => send.envelope.length + SEND_WITH_ITEM_BYTES)
    return frames.map((envelopes) => ({ type: 'sendWith', envelopes }))
  })
}

const NO_GROUP = '0'.repeat(32) as GroupId

/**
 * What the broker may have stored already names no group when it is said again: refused as stale it would be sealed again,
 * and come twice.
 */
function packBroadcasts(items: readonly GroupItem[]): BroadcastFrame[] {
  const [{ message, isPinned }] = items as [GroupItem]
  const { groupId, epoch, bodyId, bytes, record, terms } = message
  const { receipts = 'none', thread = NO_THREAD, hops = 0, noAutoReply = false } = terms.terms ?? {}
  const roster = { group: isPinned ? groupId : NO_GROUP, rosterEpoch: isPinned ? epoch : 0 }
  const fixed = {
    ...(record ? ({ type: 'broadcastKept', record } as const) : ({ type: 'broadcast' } as const)),
    ...roster,
    bodyId,
    body: bytes,
    terms: { receipts, thread, hops, noAutoReply },
  }
  const limits = { bytesMax: SEND_BYTES - bytes.length, itemsMax: FANOUT_MAX }
  return packed(items, ({ send }) => send.envelope.length + SEND_ITEM_BYTES, limits).map((some) => ({
    ...fixed,
    envelopes: some.map(({ send }) => send),
  }))
}

/** Pieces that fit a frame, in items and bytes. */
export function packed<T>(
  items: readonly T[],
  bytesOf: (item: T) => number,
  { bytesMax, itemsMax } = { bytesMax: SEND_BYTES, itemsMax: BATCH_MAX },
): T[][] {
  const frames: T[][] = []
  let frame: T[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = bytesOf(item)
    if (frame.length > 0 && (frame.length === itemsMax || byteCount + itemBytes > bytesMax)) {
      frames.push(frame)
      frame = []
      byteCount = 0
    }
    frame.push(item)
    byteCount += itemBytes
  }
  if (frame.length > 0) frames.push(frame)
  return frames
}

const isPlain = (item: OutgoingItem): item is SendItem => 'envelope' in item
const isOfGroup = (item: OutgoingItem): item is GroupItem => 'message' in item

function isOfOneKind(a: OutgoingItem, b: OutgoingItem): boolean {
  if (isOfGroup(a) && isOfGroup(b)) return a.message === b.message && a.isPinned === b.isPinned
  return isPlain(a) === isPlain(b) && isOfGroup(a) === isOfGroup(b)
}

/** Neighbours of one kind. */
function runs(items: readonly OutgoingItem[]): OutgoingItem[][] {
  const result: OutgoingItem[][] = []
  for (const item of items) {
    const last = result.at(-1)
    if (last && isOfOneKind(last[0]!, item)) last.push(item)
    else result.push([item])
  }
  return result
}

/** Cuts a list into pieces of at most `max`. */
export function chunksOf<T>(items: T[], max: number): T[][] {
  if (items.length <= max) return items.length === 0 ? [] : [items]
  return Array.from({ length: Math.ceil(items.length / max) }, (_, i) => items.slice(i * max, (i + 1) * max))
}

/** What a sender may ask for with a message, and what becomes of it on the wire and in the box. */
export interface SendOptions {
  /** Default `next`. */
  readonly priority?: Priority
  /** Whole seconds the broker keeps it for an absent recipient. Default: the broker's own. */
  readonly ttlSeconds?: number
  /**
   * Kept back by the broker until then, by its database's clock; a number is ms since 1970. Such a message keeps no order
   * with others, and no gap tells of its loss.
   */
  readonly notBefore?: Date | Millis
  /** Told by `receipt` events: `end`, how it ended; `all`, also that it was pushed. Default `none`. */
  readonly receipts?: ReceiptWish
  /** 32 hex digits. What belongs to one conversation; the broker bounds how much of it passes in a time. */
  readonly thread?: string
  /** The reference to a file that was uploaded, from `attachmentText`; sealed with the body. */
  readonly attachment?: string
  /** How often this conversation has passed from peer to peer; `reply` counts it. Default 0. */
  readonly hops?: number
  /** No answer is wanted that no person wrote. */
  readonly noAutoReply?: boolean
  /** Refused with `no_responder` when the recipient has no session. */
  readonly ifOnline?: boolean
}

const HOPS_MAX = 0xffff

/** @throws RangeError for an option that is none of its kind */
export function postTermsOf(to: PeerKey, options: SendOptions, note?: Note): OutgoingTerms {
  const { priority = 'next', ttlSeconds = 0, thread, attachment } = options
  check(Number.isSafeInteger(ttlSeconds) && ttlSeconds >= 0, 'ttlSeconds is a whole number of seconds')
  const isNoted = thread || attachment
  const whole = isNoted ? { ...(thread && { thread }), ...(attachment && { attachment }), ...note } : note
  return { to, priority, ttlSeconds, terms: sendTermsOf(options), note: whole }
}

/** Undefined when nothing is asked for: then the message goes by the plain `send`. */
function sendTermsOf(options: SendOptions): SendTerms | undefined {
  const { receipts = 'none', thread = NO_THREAD, hops = 0, noAutoReply = false, ifOnline = false } = options
  const notBeforeMs = options.notBefore === undefined ? 0 : Number(options.notBefore)
  const isPlain = receipts === 'none' && thread === NO_THREAD && hops === 0 && notBeforeMs === 0
  if (isPlain && !noAutoReply && !ifOnline) return undefined
  check(isHex(thread, 16), 'thread is 32 hex digits in lower case')
  check(Number.isInteger(hops) && hops >= 0 && hops <= HOPS_MAX, `hops is a whole number up to ${HOPS_MAX}`)
  check(notBeforeMs >= 0 && notBeforeMs <= Number.MAX_SAFE_INTEGER, 'notBefore is a time after 1970')
  return { notBeforeMs: Math.ceil(notBeforeMs), receipts, thread, hops, noAutoReply, ifOnline }
}

function check(isGood: boolean, rule: string): void {
  if (!isGood) throw new RangeError(rule)
}
