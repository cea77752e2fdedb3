/**
 * The newest link of one stream. Each envelope names the hash of the header before it, so that two envelopes for one place
 * show, whoever made them: a thief of a box key, who can write in its owner's name, or a sender that was restored from a
 * copy. Only what came in this life of the process is known.
 */
import type { StreamPosition } from '@sealpost/identity'

/** `taken`: another envelope holds its place. `forked`: it follows another envelope than the one that came before it. */
export type ChainVerdict = 'sound' | 'taken' | 'forked'

export class StreamChain {
  private seq = 0
  private hash: Uint8Array | null = null

  note({ seq, prev }: StreamPosition, headerHash: Uint8Array): ChainVerdict {
    const { seq: last, hash } = this
    if (seq < last) return 'sound'
    if (seq === last) return isSame(hash!, headerHash) ? 'sound' : 'taken'
    this.seq = seq
    this.hash = headerHash
    return hash && seq === last + 1 && !isSame(hash, prev) ? 'forked' : 'sound'
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return a.length === b.length
}
