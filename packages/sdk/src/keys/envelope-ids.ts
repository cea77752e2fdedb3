/**
 * Ids of envelopes: UUID v7 (RFC 9562, 5.7) in which 32 bits behind the time count on within its millisecond, so that each id
 * lies above the one before it, also while the clock is set back. A third of the library's bytes in a browser.
 */

import { type EnvelopeId, type Millis, toHex } from '@sealpost/std'

export function envelopeIds(now: () => Millis = Date.now): () => EnvelopeId {
  const bytes = new Uint8Array(16)
  const view = new DataView(bytes.buffer)
  let atMs = 0
  let count = 0
  return () => {
    crypto.getRandomValues(bytes)
    const nowMs = now()
    if (nowMs > atMs) {
      atMs = nowMs
      count = view.getUint32(6) >>> 1 // room to count on
    } else count += 1
    view.setUint16(0, atMs / 0x100000000)
    view.setUint32(2, atMs)
    view.setUint16(6, 0x7000 | (count >>> 20))
    view.setUint16(8, 0x8000 | ((count >>> 6) & 0x3fff))
    view.setUint8(10, (count << 2) | (bytes[10]! & 3))
    return toHex(bytes) as EnvelopeId
  }
}
