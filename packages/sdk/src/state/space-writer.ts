/**
 * Sends changes to the broker. Changes to one key are serialized, because each refers to the previous one. Changes to
 * several keys share a request. One request is in flight at a time; the next one contains all changes that have
 * accumulated.
 */
import {
  ENTRY_KEY_BYTES_MAX,
  ENTRY_VALUE_BYTES_MAX,
  type Identity,
  isEntryKey,
  keyHashOf,
  NO_ENTRY,
  type SignedEntry,
  sealEntry,
} from '@sealpost/identity'
import { isSameBytes, type PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { type EntryVerifier, noKey, noSpace, SEQ_UNKNOWN, type SpaceMemory } from './entry-verifier.ts'
import type { EntryWriteOutcome, SpaceKeyRing, SpaceService } from './space-service.ts'

export interface Written {
  readonly revision: number
  /** The event number; null if the reply was lost and another change followed. */
  readonly seq: number | null
  readonly atUs: number | null
  readonly author: PeerKey
}

export interface KeyChange {
  readonly key: string
  /** Null for a deletion. */
  readonly value: Uint8Array | null
  /** The required current revision; 0 if the key must have no value. */
  readonly ifRevision: number | undefined
}

export interface SpaceWriterParts {
  readonly calls: SpaceService
  readonly ring: SpaceKeyRing
  readonly memory: SpaceMemory
  readonly reader: EntryVerifier
  readonly identity: Identity
  readonly bucketBytes: number
  /** Looks for a newer key of the space. */
  readonly tend: () => Promise<unknown>
  /** Whether this member has seen a newer list of members than that for which the keys were last checked. */
  readonly isOutdated: () => boolean
  /** Reads the current entry of this key. */
  readonly lookup: (keyHash: string) => Promise<unknown>
  readonly pause: (tries: number) => Promise<void>
}

/** The maximum number of attempts, because many members may write the same key. */
const TRIES_MAX = 16
const BATCH_MAX = 256
/** The maximum size of a request's entries in bytes. In base64, they fit into 256 KB. */
const BATCH_BYTES = 128 * 1024

interface PendingWrite {
  readonly entry: Uint8Array
  readonly answered: (outcome: EntryWriteOutcome) => void
  readonly failed: (error: unknown) => void
}

export class SpaceWriter {
  readonly #parts: SpaceWriterParts
  /** The last pending change, by key hash. */
  readonly #lanes = new Map<string, Promise<unknown>>()
  #waiting: PendingWrite[] = []
  #isSending = false

  constructor(parts: SpaceWriterParts) {
    this.#parts = parts
  }

  /**
   * Writes a value. @throws SealpostError `state_conflict`, `maybe_sent`, `key_missing`, `state_key_malformed`,
   * `value_too_large`, `state_full`, and the errors of the requests
   */
  async write(change: KeyChange): Promise<Written> {
    const keyHash = keyHashOf(await this.#nameKey(change), change.key)
    const former = this.#lanes.get(keyHash)
    const own = Promise.resolve(former)
      .catch(() => undefined) // the caller receives the error
      .then(() => this.#inTurn(change, keyHash))
    this.#lanes.set(keyHash, own)
    return own.finally(() => {
      if (this.#lanes.get(keyHash) === own) this.#lanes.delete(keyHash)
    })
  }

  async #nameKey({ key, value }: KeyChange): Promise<Uint8Array> {
    if (!isEntryKey(key))
      throw new SealpostError('state_key_malformed', `A key must have 1 to ${ENTRY_KEY_BYTES_MAX} bytes of UTF-8.`)
    if (value && value.length > ENTRY_VALUE_BYTES_MAX)
      throw new SealpostError('value_too_large', `A value can have at most ${ENTRY_VALUE_BYTES_MAX} bytes.`)
    const { ring, tend } = this.#parts
    if (!ring.nameKey) await tend()
    if (!ring.nameKey) throw noKey()
    return ring.nameKey
  }

  async #inTurn(change: KeyChange, keyHash: string): Promise<Written> {
    for (let tries = 1; ; tries++) {
      if (this.#parts.isOutdated()) await this.#parts.tend()
      await this.#checkRevision(change, keyHash)
      const entry = this.#sealed(change, keyHash)
      const outcome = await this.#send(entry)
      const written = await this.#handleOutcome(outcome, entry, change)
      if (written) return written
      if (tries >= TRIES_MAX) throw conflict(this.#currentRevision(keyHash), true)
      if (outcome.outcome === 'busy') await this.#parts.pause(tries)
    }
  }

  #currentRevision(keyHash: string): number {
    return this.#parts.memory.find(keyHash)?.revision ?? 0
  }

  /** Checks the revision. Requests the current entry only if none is known. */
  async #checkRevision({ ifRevision }: KeyChange, keyHash: string): Promise<void> {
    if (ifRevision === undefined) return
    if (ifRevision > this.#currentRevision(keyHash)) await this.#parts.lookup(keyHash)
    const known = this.#parts.memory.find(keyHash)
    const isFree = ifRevision === 0 && (!known || known.isDeleted)
    if (!isFree && ifRevision !== known?.revision) throw conflict(known?.revision ?? 0)
  }

  #sealed({ key, value }: KeyChange, keyHash: string): SignedEntry {
    const { calls, ring, memory, identity, bucketBytes } = this.#parts
    const known = memory.find(keyHash)
    const keyEpoch = ring.newest
    const spaceKey = ring.find(keyEpoch)
    if (!spaceKey || !ring.nameKey) throw noKey()
    const place = { meshId: calls.meshId, spaceId: calls.spaceId, keyEpoch }
    const after = { revision: (known?.revision ?? 0) + 1, prevHash: known?.hash ?? NO_ENTRY }
    const draft = { ...place, key, value, ...after, sentAtMs: Date.now(), bucketBytes }
    return sealEntry(identity.signing, draft, { nameKey: ring.nameKey, spaceKey })
  }

  /** Sends an entry. If the reply is lost, sends the same bytes again, which is safe. */
  async #send(entry: SignedEntry): Promise<EntryWriteOutcome> {
    try {
      return await this.#queued(entry.bytes)
    } catch (error) {
      if (!(error instanceof SealpostError) || error.code !== 'connection_lost') throw error
      throw new SealpostError('maybe_sent', 'The change may or may not have been stored.', { cause: error })
    }
  }

  async #handleOutcome(
    outcome: EntryWriteOutcome,
    entry: SignedEntry,
    { ifRevision }: KeyChange,
  ): Promise<Written | null> {
    const { reader, memory, tend } = this.#parts
    const { revision, author, keyHash } = entry
    switch (outcome.outcome) {
      case 'done': {
        const { seq, atUs } = outcome
        if ((memory.find(keyHash)?.revision ?? 0) < revision) reader.remember(entry, seq)
        return { revision, seq, atUs, author }
      }
      case 'conflict': {
        const standing = this.#recordCurrent(outcome.entry, entry)
        if (standing?.revision === revision + 1 && isSameBytes(standing.prevHash, entry.hash))
          return { revision, seq: null, atUs: null, author } // the entry has a successor, so its event number is unknown
        const isFree = ifRevision === 0 && standing?.isDeleted
        if (ifRevision !== undefined && !isFree) throw conflict(standing?.revision ?? 0)
        return null
      }
      case 'stale_key_epoch':
        await tend()
        return null
      case 'busy':
        return null
      case 'too_large':
        throw new SealpostError('value_too_large', "The entry exceeds the broker's size limit.")
      case 'quota':
        throw new SealpostError('state_full', 'The space is full.')
      case 'unknown_space':
        throw noSpace()
      case 'malformed':
        throw new SealpostError('answer_malformed', 'The broker does not accept this entry.')
    }
  }

  /** Verifies the current entry against the known one, and records it. */
  #recordCurrent(bytes: Uint8Array | null, { keyHash, revision }: SignedEntry): SignedEntry | null {
    const { reader } = this.#parts
    if (bytes) return reader.check(bytes, { atLeast: () => revision - 1, keyHash, seq: SEQ_UNKNOWN })
    return revision > 1 ? reader.missing(keyHash) : null
  }

  #queued(entry: Uint8Array): Promise<EntryWriteOutcome> {
    return new Promise((answered, failed) => {
      this.#waiting.push({ entry, answered, failed })
      if (!this.#isSending) queueMicrotask(() => void this.#sendAll())
    })
  }

  async #sendAll(): Promise<void> {
    if (this.#isSending) return
    this.#isSending = true
    while (this.#waiting.length > 0) {
      const batch = this.#take()
      await this.#parts.calls.write(batch.map(({ entry }) => entry)).then(
        (outcomes) => {
          for (const [i, { answered }] of batch.entries()) answered(outcomes[i]!)
        },
        (error) => {
          for (const { failed } of batch) failed(error)
        },
      )
    }
    this.#isSending = false
  }

  #take(): PendingWrite[] {
    let bytes = 0
    const past = this.#waiting.findIndex(({ entry }, i) => {
      bytes += entry.length
      return i === BATCH_MAX || (i > 0 && bytes > BATCH_BYTES)
    })
    return this.#waiting.splice(0, past < 0 ? this.#waiting.length : past)
  }
}

function conflict(revision: number, isRetryable = false): SealpostError {
  return new SealpostError('state_conflict', `The key is at revision ${revision}.`, { isRetryable })
}
