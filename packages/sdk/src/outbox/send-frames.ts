/** Packs envelopes into as few frames as the limits of a frame allow. */
import { BATCH_MAX, FANOUT_MAX, FRAME_BYTES_MAX, type FrameOf, NO_THREAD } from '@sealpost/protocol'
import type { GroupId } from '@sealpost/std'
import type { GroupMessage } from '../groups/group-message.ts'

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
 * What the broker may have stored already names no group when it is said again: refused as stale it would be sealed anew,
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
