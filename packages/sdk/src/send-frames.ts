/** Packs envelopes into as few frames as the limits of a frame allow. */
import { BATCH_MAX, FRAME_BYTES_MAX, type FrameOf } from '@sealpost/protocol'

export type SendItem = FrameOf<'send'>['envelopes'][number]
export type SendWithItem = FrameOf<'sendWith'>['envelopes'][number]
export type SendFrame = FrameOf<'send'> | FrameOf<'sendWith'>

/** Half a frame: base64 in the readable form makes envelopes a third longer, and names its fields. */
const SEND_BYTES = FRAME_BYTES_MAX / 2
const SEND_ITEM_BYTES = 128
const SEND_WITH_ITEM_BYTES = 320

export function packSends(items: readonly SendItem[]): FrameOf<'send'>[] {
  return filled(items, ({ envelope }) => envelope.length + SEND_ITEM_BYTES).map((envelopes) => ({
    type: 'send',
    envelopes,
  }))
}

/** Those with terms go by a frame of their own; the frames keep the order of all. */
export function packMixed(items: readonly (SendItem | SendWithItem)[]): SendFrame[] {
  return runs(items).flatMap((run): SendFrame[] => {
    if (isPlain(run[0]!)) return packSends(run as SendItem[])
    const frames = filled(run as SendWithItem[], ({ send }) => send.envelope.length + SEND_WITH_ITEM_BYTES)
    return frames.map((envelopes) => ({ type: 'sendWith', envelopes }))
  })
}

/** Pieces that fit a frame, in items and bytes. */
export function filled<T>(items: readonly T[], bytesOf: (item: T) => number): T[][] {
  const frames: T[][] = []
  let frame: T[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = bytesOf(item)
    if (frame.length > 0 && (frame.length === BATCH_MAX || byteCount + itemBytes > SEND_BYTES)) {
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

const isPlain = (item: SendItem | SendWithItem): item is SendItem => !('terms' in item)

/** Neighbours of one kind. */
function runs(items: readonly (SendItem | SendWithItem)[]): (SendItem | SendWithItem)[][] {
  const result: (SendItem | SendWithItem)[][] = []
  for (const item of items) {
    const last = result.at(-1)
    if (last && isPlain(last[0]!) === isPlain(item)) last.push(item)
    else result.push([item])
  }
  return result
}

/** Cuts a list into pieces of at most `max`. */
export function pieces<T>(items: T[], max: number): T[][] {
  if (items.length <= max) return items.length === 0 ? [] : [items]
  return Array.from({ length: Math.ceil(items.length / max) }, (_, i) => items.slice(i * max, (i + 1) * max))
}
