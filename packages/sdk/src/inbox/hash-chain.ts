/**
 * The newest link of one stream. Each envelope names the hash of the header before it, so that two envelopes for one place
 * show, whoever made them: a thief of a box key, who can write in its owner's name, or a sender that was restored from a
 * copy. Only what came in this life of the process is known.
 */
import type { StreamPosition } from '@sealpost/identity'
import { isSameBytes } from '@sealpost/std'

/** `taken`: another envelope holds its place. `forked`: it follows another envelope than the one that came before it. */
export type ChainVerdict = 'sound' | 'taken' | 'forked'

export class HashChain {
  #seq = 0
  #hash: Uint8Array | null = null

  note({ seq, prev }: StreamPosition, headerHash: Uint8Array): ChainVerdict {
    const last = this.#seq
    const hash = this.#hash
    if (seq < last) return 'sound'
    if (seq === last) return isSameBytes(hash!, headerHash) ? 'sound' : 'taken'
    this.#seq = seq
    this.#hash = headerHash
    return hash && seq === last + 1 && !isSameBytes(hash, prev) ? 'forked' : 'sound'
  }
}
