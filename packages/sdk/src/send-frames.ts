/** Packs envelopes into as few `send` frames as the limits of a frame allow. */
import { BATCH_MAX, FRAME_BYTES_MAX, type FrameOf } from '@sealpost/protocol'

export type SendItem = FrameOf<'send'>['envelopes'][number]

/** Half a frame: base64 in the readable form makes envelopes a third longer, and names its fields. */
const SEND_BYTES = FRAME_BYTES_MAX / 2
const SEND_ITEM_BYTES = 128

export function packSends(items: SendItem[]): FrameOf<'send'>[] {
  const frames: FrameOf<'send'>[] = []
  let envelopes: SendItem[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = item.envelope.length + SEND_ITEM_BYTES
    if (envelopes.length > 0 && (envelopes.length === BATCH_MAX || byteCount + itemBytes > SEND_BYTES)) {
      frames.push({ type: 'send', envelopes })
      envelopes = []
      byteCount = 0
    }
    envelopes.push(item)
    byteCount += itemBytes
  }
  if (envelopes.length > 0) frames.push({ type: 'send', envelopes })
  return frames
}

/** Cuts a list into pieces of at most `max`. */
export function pieces<T>(items: T[], max: number): T[][] {
  if (items.length <= max) return items.length === 0 ? [] : [items]
  return Array.from({ length: Math.ceil(items.length / max) }, (_, i) => items.slice(i * max, (i + 1) * max))
}
