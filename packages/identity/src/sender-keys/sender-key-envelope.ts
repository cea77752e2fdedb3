/**
 * Marks an envelope whose ticket is under a sender key: the first bytes of a ratcheted message, a flag that no ratcheted
 * message has, and the box. A peer without ratchets recognizes both, and leaves them to a process that has some.
 */
import { concatBytes, u32 } from '../byte-fields.ts'
import { isRatcheted, RATCHET_MAGIC } from '../envelope/ratchet-magic.ts'

const FLAG_SENDER_KEY = 4
const MARK = Uint8Array.of(...u32(RATCHET_MAGIC), FLAG_SENDER_KEY)

export function markSenderKeyEnvelope(box: Uint8Array): Uint8Array {
  return concatBytes([MARK, box])
}

/** Returns the box, or null if the envelope has no mark. */
export function senderKeyBox(envelope: Uint8Array): Uint8Array | null {
  return isRatcheted(envelope) && envelope[4] === FLAG_SENDER_KEY ? envelope.subarray(MARK.length) : null
}
