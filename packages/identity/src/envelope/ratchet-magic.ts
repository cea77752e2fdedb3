import { readU32 } from '../byte-fields.ts'

/** The first bytes of a ratcheted message, "SPR1". */
export const RATCHET_MAGIC = 0x53505231

/** Returns whether the bytes claim to be a ratcheted message. A message that is sealed the old way begins at random. */
export function isRatcheted(bytes: Uint8Array): boolean {
  return readU32(bytes, 0) === RATCHET_MAGIC
}
