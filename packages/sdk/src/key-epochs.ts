/**
 * The highest epoch seen of each peer's box key. A directory that hands out an older key has gone back to it, maybe to one
 * that was stolen, so nothing is sealed to it. Mail and spaces of a process can share one; with a store it outlives the
 * process.
 *
 * Keys of the first epoch are not recorded: there is none before them. The memory has no bound, since a broker could
 * otherwise make room by inventing peers; a peer that has rotated costs about 120 bytes.
 */
import type { PeerKey } from '@sealpost/std'
import type { Keeper } from './keeper.ts'
import type { KeyEpochRecord, StoreRecord } from './store.ts'

const FIRST_EPOCH = 1

export interface KeyEpochsPorts {
  /** Its own key file knows this peer's keys better than any directory. */
  readonly self: PeerKey
  /** What was kept, by this class or others. */
  readonly records?: readonly StoreRecord[]
  /** Default: nothing is kept. */
  readonly keep?: (key: string, record: KeyEpochRecord) => void
}

export class KeyEpochs {
  readonly #self: PeerKey
  readonly #keep: (key: string, record: KeyEpochRecord) => void
  readonly #seen = new Map<PeerKey, number>()

  constructor({ self, records = [], keep = () => undefined }: KeyEpochsPorts) {
    this.#self = self
    this.#keep = keep
    for (const record of records)
      if (record.kind === 'keyEpoch' && record.peer !== self) this.#seen.set(record.peer, record.boxEpoch)
  }

  /** Returns 0 for a peer of which nothing is recorded. */
  of(peer: PeerKey): number {
    return this.#seen.get(peer) ?? 0
  }

  /** Records an epoch that the peer's own signature proved. A lower one than before changes nothing. */
  raise(peer: PeerKey, boxEpoch: number): void {
    if (boxEpoch <= FIRST_EPOCH || peer === this.#self || boxEpoch <= this.of(peer)) return
    this.#seen.set(peer, boxEpoch)
    this.#keep(`key ${peer}`, { kind: 'keyEpoch', peer, boxEpoch })
  }
}

/** Those of a peer that keeps them with its mail, or keeps nothing. */
export function keptKeyEpochs(self: PeerKey, keeper: Keeper | null, records: readonly StoreRecord[] = []): KeyEpochs {
  return new KeyEpochs({ self, records, ...(keeper && { keep: (key, record) => keeper.put(key, () => record) }) })
}
