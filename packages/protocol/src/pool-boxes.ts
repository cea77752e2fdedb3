/**
 * The envelope of a message to a pool: a box with the ticket of the body for each member that can open it. The broker
 * gives a member only its own box. Each box is the member's key (32), the length of the box in two bytes, and the box.
 * The keys ascend.
 */
import { assert, fromHex, type PeerKey, toHex } from '@sealpost/std'
import { ENVELOPE_BYTES_MIN, POOL_MEMBERS_MAX } from './limits.ts'

export interface PoolBox {
  readonly peer: PeerKey
  readonly box: Uint8Array
}

const KEY_BYTES = 32
const HEAD_BYTES = KEY_BYTES + 2
const BOX_BYTES_MAX = 0xffff

export function encodeBoxes(boxes: readonly PoolBox[]): Uint8Array {
  assert(boxes.length > 0 && boxes.length <= POOL_MEMBERS_MAX, 'a pool has 1 to 64 members')
  const bytes = new Uint8Array(boxes.reduce((sum, { box }) => sum + HEAD_BYTES + box.length, 0))
  let at = 0
  for (const { peer, box } of [...boxes].sort((a, b) => (a.peer < b.peer ? -1 : 1))) {
    assert(box.length <= BOX_BYTES_MAX, 'a box is short: it holds no body')
    bytes.set(fromHex(peer), at)
    bytes.set([box.length >> 8, box.length & 0xff], at + KEY_BYTES)
    bytes.set(box, at + HEAD_BYTES)
    at += HEAD_BYTES + box.length
  }
  return bytes
}

/** Returns views of `bytes`, or null if they are not boxes. Never throws. */
export function readBoxes(bytes: Uint8Array): PoolBox[] | null {
  const boxes: PoolBox[] = []
  for (let at = 0; at < bytes.length; ) {
    if (boxes.length === POOL_MEMBERS_MAX || bytes.length - at < HEAD_BYTES) return null
    const length = bytes[at + KEY_BYTES]! * 256 + bytes[at + KEY_BYTES + 1]!
    const peer = toHex(bytes.subarray(at, at + KEY_BYTES)) as PeerKey
    const box = bytes.subarray(at + HEAD_BYTES, at + HEAD_BYTES + length)
    const before = boxes.at(-1)
    if (box.length !== length || length < ENVELOPE_BYTES_MIN || (before && before.peer >= peer)) return null
    boxes.push({ peer, box })
    at += HEAD_BYTES + length
  }
  return boxes.length > 0 ? boxes : null
}
