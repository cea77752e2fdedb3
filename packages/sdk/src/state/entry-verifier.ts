/**
 * Verifies entries: the author's signature, the position, the key, and that no entry is older than one seen before. A
 * withheld entry is noticed only when a later entry of the same key refers to it.
 */
import { openEntry, readEntry, type SignedEntry } from '@sealpost/identity'
import {
  fromBase64url,
  fromHex,
  isSameBytes,
  type MeshId,
  type Millis,
  type PeerKey,
  type SpaceId,
  toBase64url,
  toHex,
} from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { KnownEntryRecord, SpacePinRecord, StoreRecord } from '../stores/records.ts'
import { type PeerStore, WriteBehindStore } from '../stores/store.ts'
import type { EventLine } from './event-stream.ts'
import type { SpaceKeyRing } from './space-service.ts'

/** Defines the errors in state or history that a broker handed out, and the events that report them. */

/**
 * Misconduct of a broker that can't be a mistake. Each kind is reported as an event, and most of them end the reading
 * with an error.
 *
 * - `state_rolled_back`: for a key whose value was seen before, the broker handed out an older value, a different one
 *   with the same revision, one that does not follow it, or none at all.
 * - `entry_forged`: the entry is not signed by its author, belongs to another key, space or mesh, or is sealed with
 *   an older key than its predecessor.
 * - `space_forged`: the terms of the space are not signed by its owner, or are older than known ones.
 * - `grant_forged`: keys are from someone who does not belong to the space, or contradict known keys. They are
 *   ignored, and reading continues.
 * - `key_refused`: a box key of `author` is not signed by it, or is older than a known one. The member is given no
 *   keys of the space, and reading continues.
 * - `history_gap`: events are missing between two others. Reading continues.
 */
export type Tamper =
  | 'state_rolled_back'
  | 'entry_forged'
  | 'space_forged'
  | 'grant_forged'
  | 'key_refused'
  | 'history_gap'

export interface StateEvent {
  readonly type: Tamper
  readonly spaceId: SpaceId
  readonly reason: string
  /** The key hash of the entry, if the error is about an entry; 64 hex digits. */
  readonly keyHash?: string
  /** The signer of the missing or wrong item, if known; for `key_refused`, the owner of that key. */
  readonly author?: PeerKey
}

export type TamperReport = Omit<StateEvent, 'spaceId'>

export function tampered({ type, reason }: TamperReport): SealpostError {
  return new SealpostError(type, `The broker returned invalid state: ${reason}.`)
}

export const noKey = (): SealpostError =>
  new SealpostError('key_missing', 'This member does not have the key that the data is sealed under.', {
    isRetryable: true,
  })

export const noSpace = (): SealpostError =>
  new SealpostError('space_unknown', 'There is no such space, or this peer does not belong to it.')

const decoder = new TextDecoder()

/** A value in the state, with its author and time. */
export class StateEntry {
  readonly type = 'set'
  readonly key: string
  /** The value. The caller owns the bytes. */
  readonly value: Uint8Array
  readonly revision: number
  /** The author, authenticated by a signature. */
  readonly author: PeerKey
  /** When the value was set, according to the author's clock. */
  readonly sentAtMs: Millis
  /** The number of this change among the events of the space. */
  readonly seq: number
  /**
   * When the broker stored the value, in microseconds since 1970 according to its database clock. Ascends with `seq`.
   */
  readonly atUs: number

  /** @internal */
  constructor(fields: Omit<StateEntry, 'type' | 'text' | 'json'>) {
    this.key = fields.key
    this.value = fields.value
    this.revision = fields.revision
    this.author = fields.author
    this.sentAtMs = fields.sentAtMs
    this.seq = fields.seq
    this.atUs = fields.atUs
  }

  /** @example const text = entry.text() */
  text(): string {
    return decoder.decode(this.value)
  }

  /**
   * Parses the value as JSON. @throws SyntaxError if the value is not JSON
   * @example const value = entry.json()
   */
  json(): unknown {
    return JSON.parse(this.text())
  }
}

/** A deleted key. */
export interface StateDeletion extends Pick<StateEntry, 'key' | 'revision' | 'author' | 'sentAtMs' | 'seq' | 'atUs'> {
  readonly type: 'deleted'
}

/** A change that is sealed under a key that this member does not have. */
export interface SealedChange extends Pick<StateEntry, 'revision' | 'author' | 'sentAtMs' | 'seq' | 'atUs'> {
  readonly type: 'sealed'
  readonly keyHash: string
}

export type StateChange = StateEntry | StateDeletion | SealedChange

export interface EntryVerifierParts {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly ring: SpaceKeyRing
  readonly memory: SpaceMemory
  readonly tell: (told: TamperReport) => void
}

export interface Expected {
  /**
   * Returns the lowest valid revision for a key hash: the one known at the time of the request. Default: any revision
   * is valid.
   */
  readonly atLeast?: (keyHash: string) => number
  readonly keyHash?: string
}

export class EntryVerifier {
  readonly #parts: EntryVerifierParts

  constructor(parts: EntryVerifierParts) {
    this.#parts = parts
  }

  /** Verifies the entry in a line. @throws SealpostError `state_rolled_back`, `entry_forged` */
  read(line: EventLine, expected: Expected = {}): StateChange {
    const entry = this.check(line.value, { ...expected, seq: line.seq })
    if ((line.kind === 2) !== entry.isDeleted)
      this.#refuse('entry_forged', 'the broker marked an entry wrongly as written or deleted', entry)
    return this.#opened(entry, line)
  }

  /** Verifies and records an entry. @throws the errors of `read` */
  check(bytes: Uint8Array, { atLeast, keyHash, seq }: Expected & { seq: number }): SignedEntry {
    const entry = readEntry(bytes)
    if (!entry) return this.#refuse('entry_forged', 'an entry is not signed by its author')
    const { meshId, spaceId } = this.#parts
    if (entry.meshId !== meshId || entry.spaceId !== spaceId)
      this.#refuse('entry_forged', 'an entry belongs to another space', entry)
    if (keyHash !== undefined && entry.keyHash !== keyHash)
      this.#refuse('entry_forged', 'an entry belongs to another key', entry)
    const known = this.#parts.memory.find(entry.keyHash)
    if (known) this.#compare(entry, known, seq)
    const least = atLeast?.(entry.keyHash) ?? 0
    if (entry.revision < least) this.#rolledBack(entry, least)
    const isNews = !known || entry.revision > known.revision
    if (isNews || (entry.revision === known.revision && known.seq === SEQ_UNKNOWN)) this.remember(entry, seq)
    return entry
  }

  remember({ keyHash, revision, hash, keyEpoch, isDeleted }: SignedEntry, seq: number): void {
    this.#parts.memory.remember(keyHash, { revision, hash, keyEpoch, isDeleted, seq })
  }

  /** Reports that the reply lacks a known entry. @throws SealpostError `state_rolled_back` */
  missing(keyHash: string): never {
    return this.#refuse('state_rolled_back', 'a known key is missing', { keyHash })
  }

  #compare(entry: SignedEntry, known: KnownEntry, seq: number): void {
    const { revision, hash, prevHash, keyEpoch } = entry
    if (revision < known.revision && seq !== SEQ_UNKNOWN && seq > known.seq) this.#rolledBack(entry, known.revision)
    if (revision === known.revision && !isSameBytes(hash, known.hash))
      this.#refuse('state_rolled_back', `revision ${revision} differs from the one seen before`, entry)
    if (revision === known.revision && seq !== known.seq && seq !== SEQ_UNKNOWN && known.seq !== SEQ_UNKNOWN)
      this.#refuse('state_rolled_back', `event ${known.seq} now has the number ${seq}`, entry)
    if (revision === known.revision + 1 && !isSameBytes(prevHash, known.hash))
      this.#refuse('state_rolled_back', `revision ${revision} does not follow the one seen before`, entry)
    if (revision > known.revision && keyEpoch < known.keyEpoch)
      this.#refuse('entry_forged', 'an entry is sealed under an older key than the entry before it', entry)
  }

  #rolledBack(entry: SignedEntry, known: number): never {
    return this.#refuse(
      'state_rolled_back',
      `revision ${entry.revision} of a key that already had revision ${known}`,
      entry,
    )
  }

  #opened(entry: SignedEntry, { seq, atUs }: Pick<EventLine, 'seq' | 'atUs'>): StateChange {
    const { ring } = this.#parts
    const { revision, author, sentAtMs, keyHash } = entry
    const facts = { revision, author, sentAtMs, seq, atUs }
    const spaceKey = ring.find(entry.keyEpoch)
    if (!spaceKey || !ring.nameKey) return { type: 'sealed', keyHash, ...facts }
    const opened = openEntry(entry, { nameKey: ring.nameKey, spaceKey })
    if (!opened) return this.#refuse('entry_forged', "an entry can't be opened", entry)
    const { key, value } = opened
    return value === null ? { type: 'deleted', key, ...facts } : new StateEntry({ key, value, ...facts })
  }

  #refuse(
    type: TamperReport['type'],
    reason: string,
    about: Partial<Pick<SignedEntry, 'keyHash' | 'author'>> = {},
  ): never {
    const { keyHash, author } = about
    const told = { type, reason, ...(keyHash && { keyHash }), ...(author && { author }) }
    this.#parts.tell(told)
    throw tampered(told)
  }
}

/** The newest entry of a key that this member has seen. */
export interface KnownEntry {
  readonly revision: number
  readonly hash: Uint8Array
  readonly keyEpoch: number
  readonly isDeleted: boolean
  /** The event number, as the broker reported it without a signature; `SEQ_UNKNOWN` if it did not. */
  readonly seq: number
}

export const SEQ_UNKNOWN = Number.MAX_SAFE_INTEGER

/** The newest known epochs and numbers of the space. */
export interface SpacePin {
  readonly owner: PeerKey
  /** The epoch of the space's statement. */
  readonly epoch: number
  /** The epoch of the group's statement; 0 if there is none. */
  readonly groupEpoch: number
  readonly seq: number
  readonly keyEpoch: number
}

/**
 * Remembers the newest entry of each key in a space, the terms, and the space's keys, to detect a broker that hands out
 * older ones. With a store, later processes detect it too.
 *
 * Each key takes about 150 bytes, in memory and on disk. The space's keys are stored as a grant to the member itself.
 */
export class SpaceMemory {
  readonly #store: WriteBehindStore | null
  readonly #prefix: string
  readonly #entries = new Map<string, KnownEntry>()
  #pin: SpacePin | null = null
  #keys: Uint8Array | null = null
  #keysGroup: Uint8Array | null = null

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
  /** The space's keys, as a grant to the member itself. */
  get keys(): Uint8Array | null {
    return this.#keys
  }
  /** The group's statement that lists every member to whom the newest key was given. */
  get keysGroup(): Uint8Array | null {
    return this.#keysGroup
  }
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

  keepKeys(bytes: Uint8Array, group: Uint8Array | null): Promise<void> {
    this.#keys = bytes
    this.#keysGroup = group
    const statement = group && { group: toBase64url(group) }
    this.put(`${this.#prefix}/keys`, { kind: 'keys', space: this.#prefix, ...statement, bytes })
    return this.settled()
  }

  /** Forgets one key or all keys, so that the broker's current state is trusted again. */
  forget(keyHash?: string): void {
    for (const known of keyHash === undefined ? [...this.#entries.keys()] : [keyHash]) {
      this.#entries.delete(known)
      this.#store?.remove(`${this.#prefix}/${known}`)
    }
    if (keyHash === undefined && this.#pin) this.pinTo({ ...this.#pin, seq: 0, keyEpoch: 0 })
  }

  /** Resolves when all changes so far are stored. @throws SealpostError `store_failed` */
  async settled(): Promise<void> {
    await this.#store?.settled()
  }

  async close(): Promise<void> {
    await this.#store?.close()
  }

  /** Stores a record other than an entry, if there is a store. */
  put(key: string, record: StoreRecord): void {
    this.#store?.put(key, record)
  }

  #restore(record: StoreRecord): void {
    if (!('space' in record) || record.space !== this.#prefix) return // it belongs to another space, or is not an entry
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
