/**
 * What one reading of the history has passed: of each key and of each author's stream the last one, so that what is
 * missing between two, or put in twice, is noticed. It begins anew with each reading.
 */
import { entryFields, hash256, type OpenRecord, type SignedRecord } from '@sealpost/identity'
import { isSame } from './key-ring.ts'
import type { Told } from './state-errors.ts'

interface Link {
  readonly place: number
  readonly hash: Uint8Array
}

export class Chains {
  readonly #entries = new Map<string, Link>()
  readonly #streams = new Map<string, Link>()
  #seq: number

  /** `after`: the number of the event before the first one; null: wherever it begins. */
  constructor(after: number | null) {
    this.#seq = after ?? -1
  }

  get seq(): number {
    return Math.max(0, this.#seq)
  }

  /** In the order they come; `isWhole`: every event is told, not only the last one of each key. */
  passed(seq: number, isWhole: boolean): Told | null {
    const former = this.#seq
    if (seq <= former) return { type: 'state_rolled_back', reason: `event ${seq} comes after event ${former}` }
    this.#seq = seq
    const isGap = isWhole && former >= 0 && seq !== former + 1
    return isGap ? { type: 'history_gap', reason: `events ${former + 1} to ${seq - 1} are missing` } : null
  }

  entry(bytes: Uint8Array, isWhole: boolean): Told | null {
    const { keyHash, revision, prevHash, author } = entryFields(bytes)!
    const former = this.#entries.get(keyHash)
    this.#entries.set(keyHash, { place: revision, hash: hash256(bytes) })
    if (!former) return null
    const about = { keyHash, author }
    if (revision <= former.place)
      return { type: 'state_rolled_back', reason: `revision ${revision} comes after ${former.place}`, ...about }
    if (revision === former.place + 1)
      return isSame(prevHash, former.hash)
        ? null
        : { type: 'state_rolled_back', reason: `revision ${revision} does not follow the one before it`, ...about }
    return isWhole
      ? { type: 'history_gap', reason: `between revisions ${former.place} and ${revision}`, ...about }
      : null
  }

  record({ author, hash }: SignedRecord, { streamId, seq, prevHash }: OpenRecord): Told | null {
    const name = author + streamId
    const former = this.#streams.get(name)
    this.#streams.set(name, { place: seq, hash })
    if (!former) return null
    if (seq <= former.place) return { type: 'state_rolled_back', reason: 'a message comes a second time', author }
    const isNext = seq === former.place + 1 && isSame(prevHash, former.hash)
    return isNext ? null : { type: 'history_gap', reason: 'messages of this author are missing', author }
  }
}
