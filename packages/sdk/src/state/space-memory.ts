/**
 * What this member remembers of a space: the newest entry it has seen of each key, the terms, and the keys. A broker that
 * hands out less than that is caught; with a store, in a later life of the member, too.
 *
 * Of each key about 150 bytes are kept, in memory and on disk. Keys of the space stand on disk as a grant to oneself.
 */
import { fromBase64url, fromHex, type PeerKey, type SpaceId, toBase64url, toHex } from '@sealpost/std'
import type { KnownEntryRecord, PeerStore, SpacePinRecord, StoreRecord } from '../stores/store.ts'
import { WriteBehindStore } from '../stores/store-writer.ts'

/** Of the newest entry seen of a key. */
export interface KnownEntry {
  readonly revision: number
  readonly hash: Uint8Array
  readonly keyEpoch: number
  readonly isDeleted: boolean
  /** As the broker told it; no signature says so. `SEQ_UNKNOWN`: it did not. */
  readonly seq: number
}

export const SEQ_UNKNOWN = Number.MAX_SAFE_INTEGER

/** Of the space. */
export interface SpacePin {
  readonly owner: PeerKey
  /** Of its statement. */
  readonly epoch: number
  /** Of the group's statement; 0 without one. */
  readonly groupEpoch: number
  /** The highest number of an event. */
  readonly seq: number
  /** The highest of a key. */
  readonly keyEpoch: number
}

export class SpaceMemory {
  readonly #store: WriteBehindStore | null
  readonly #prefix: string
  readonly #entries = new Map<string, KnownEntry>()
  #pin: SpacePin | null = null
  #keys: Uint8Array | null = null
  #keysGroup: Uint8Array | null = null

  /** `records`: what the store has. */
  constructor(spaceId: SpaceId, store: PeerStore | null, records: readonly StoreRecord[] = []) {
    this.#store = store && new WriteBehindStore(store)
    this.#prefix = spaceId
    for (const record of records) this.#restore(record)
  }

  get hasStore(): boolean {
    return this.#store !== null
  }
  get pin(): SpacePin | null {
    return this.#pin
  }
  /** A grant to oneself. */
  get keys(): Uint8Array | null {
    return this.#keys
  }
  /** The group's statement that goes with them: the newest key was given to members whom it names, and to nobody else. */
  get keysGroup(): Uint8Array | null {
    return this.#keysGroup
  }
  /** Of all keys, as they are now: changed by nobody later. */
  snapshot(): ReadonlyMap<string, KnownEntry> {
    return new Map(this.#entries)
  }

  find(keyHash: string): KnownEntry | undefined {
    return this.#entries.get(keyHash)
  }

  remember(keyHash: string, entry: KnownEntry): void {
    this.#entries.set(keyHash, entry)
    const { hash, ...fields } = entry
    this.put(`${this.#prefix}/${keyHash}`, {
      kind: 'entry',
      keyHash,
      space: this.#prefix,
      ...fields,
      hash: toHex(hash),
    })
  }

  pinTo(pin: SpacePin): void {
    this.#pin = pin
    this.put(this.#prefix, { kind: 'space', space: this.#prefix, ...pin })
  }

  /** Resolves when they are kept. */
  keepKeys(bytes: Uint8Array, group: Uint8Array | null): Promise<void> {
    this.#keys = bytes
    this.#keysGroup = group
    const statement = group && { group: toBase64url(group) }
    this.put(`${this.#prefix}/keys`, { kind: 'keys', space: this.#prefix, ...statement, bytes })
    return this.settled()
  }

  /** What stands now is believed again, for one key or for all. */
  forget(keyHash?: string): void {
    for (const known of keyHash === undefined ? [...this.#entries.keys()] : [keyHash]) {
      this.#entries.delete(known)
      this.#store?.remove(`${this.#prefix}/${known}`)
    }
    if (keyHash === undefined && this.#pin) this.pinTo({ ...this.#pin, seq: 0, keyEpoch: 0 })
  }

  /** Resolves when all so far is kept. @throws SealpostError `store_failed` */
  async settled(): Promise<void> {
    await this.#store?.settled()
  }

  async close(): Promise<void> {
    await this.#store?.close()
  }

  /** Keeps what is no entry of the space itself, if there is a store. */
  put(key: string, record: StoreRecord): void {
    this.#store?.put(key, record)
  }

  #restore(record: StoreRecord): void {
    if (!('space' in record) || record.space !== this.#prefix) return // of another space, or none at all
    if (record.kind === 'keys') {
      this.#keys = record.bytes
      this.#keysGroup = record.group === undefined ? null : fromBase64url(record.group)
    }
    if (record.kind === 'space') this.#pin = pinOf(record)
    if (record.kind === 'entry') this.#entries.set(record.keyHash, knownOf(record))
  }
}

const pinOf = ({ owner, epoch, groupEpoch, seq, keyEpoch = 0 }: SpacePinRecord): SpacePin => ({
  ...{ owner, epoch, groupEpoch, seq, keyEpoch },
})

function knownOf({ revision, hash, keyEpoch, isDeleted, seq }: KnownEntryRecord): KnownEntry {
  return { revision, hash: fromHex(hash), keyEpoch, isDeleted, seq }
}
