/**
 * Implements the application's view of the shared state and history of a mesh or group. The broker stores only sealed
 * data; its replies must be signed by members, and are checked against known entries.
 */
import {
  type Identity,
  isHistoryAudience,
  keyHashOf,
  NO_ENTRY,
  type Note,
  RECORD_NOTE_BYTES_MAX,
  type RecordPosition,
  type SpaceFields,
  sealRecord,
} from '@sealpost/identity'
import { GROUP_EPOCH_LAST, type PeerKey, type SpaceId, toHex } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { MessageRecorder } from '../groups/group-client.ts'
import type { Access } from './access.ts'
import { type EntryVerifier, noKey, type SpaceMemory, type StateEntry } from './entry-verifier.ts'
import type { KeyMaintenance } from './key-maintenance.ts'
import type { HistoryEvent, HistoryMessage, SpaceReader } from './space-reader.ts'
import type { SpaceKeyRing, SpaceService, SpaceStatus } from './space-service.ts'
import type { SpaceWriter, Written } from './space-writer.ts'

/** A value. Bytes are stored as they are, strings as UTF-8, and everything else as JSON. */
export type StateValue = Uint8Array | string | number | boolean | null | object

export interface WriteOptions {
  /**
   * If set, the write fails with `state_conflict` unless this is the current revision, or is 0 and the key has no
   * value.
   */
  readonly ifRevision?: number
}

/** A point in time: a `Date`, or microseconds since 1970. */
export type Moment = Date | { readonly us: number }

/** The recorded messages of a group, as a list of conversations shows them. */
export interface Conversation {
  readonly spaceId: SpaceId
  /** Null if no message is recorded. */
  readonly last: HistoryMessage | null
  /** At most 1,000. */
  readonly unread: number
}

const UNREAD_MAX = 1_000

export interface StateParts {
  readonly identity: Identity
  readonly access: Access
  readonly calls: SpaceService
  readonly ring: SpaceKeyRing
  readonly memory: SpaceMemory
  readonly reader: EntryVerifier
  readonly tending: KeyMaintenance
  readonly writing: SpaceWriter
  readonly reading: SpaceReader
  readonly stop: AbortController
}

export class State implements MessageRecorder, AsyncDisposable {
  readonly spaceId: SpaceId
  readonly #parts: StateParts
  /** The next positions of this process's streams whose last message is stored, least recently used first. */
  readonly #streams: RecordPosition[] = []
  /** The next position after each record that may not be stored. */
  readonly #sealed = new WeakMap<Uint8Array, RecordPosition>()

  /** Use `openState` instead. @internal */
  constructor(parts: StateParts) {
    this.#parts = parts
    this.spaceId = parts.calls.spaceId
  }

  get self(): PeerKey {
    return this.#parts.identity.signing.publicKey
  }

  /** Whether this member has the keys. Otherwise, reading and writing fail with `key_missing`. */
  get hasKeys(): boolean {
    return this.#parts.ring.nameKey !== null
  }

  /**
   * Returns the terms that the owner has signed, and the broker's report: sizes, and members that lack keys.
   * @example const { statement } = await state.status()
   */
  status(): Promise<SpaceStatus> {
    return this.#parts.tending.checkStatus()
  }

  /**
   * Accepts keys that were granted to this member, and grants those that others lack. This happens when the state is
   * opened and every half minute, so an explicit call is rarely needed.
   * @example await state.maintainKeys()
   */
  maintainKeys(): Promise<SpaceStatus> {
    return this.#parts.tending.run()
  }

  /**
   * Sets a value. Resolves when the broker has stored it durably. Without `ifRevision`, the last write wins.
   * @throws SealpostError `state_conflict` with `ifRevision`; `maybe_sent` if no reply arrived; `value_too_large`,
   * `state_key_malformed`, `state_full`, `key_missing`
   * @example const { seq } = await state.set('topic', { drink: 'tea' })
   */
  set(key: string, value: StateValue, { ifRevision }: WriteOptions = {}): Promise<Written> {
    return this.#parts.writing.write({ key, value: bytesOf(value), ifRevision })
  }

  /**
   * Deletes the value; the key's revisions continue. @throws the errors of `set`
   * @example await state.delete('topic')
   */
  delete(key: string, { ifRevision }: WriteOptions = {}): Promise<Written> {
    return this.#parts.writing.write({ key, value: null, ifRevision })
  }

  /**
   * Returns the current value; null if there is none.
   * @throws SealpostError `state_rolled_back`, `entry_forged`; `key_missing` if it was sealed before this member
   *   joined
   * @example const topic = (await state.get('topic'))?.text()
   */
  async get(key: string): Promise<StateEntry | null> {
    const change = await this.#parts.reading.one(keyHashOf(await this.#nameKey(), key))
    if (change?.type === 'sealed') throw noKey()
    return change?.type === 'set' ? change : null
  }

  /**
   * Yields all current values, in the order in which they were set. Skips values that this member can't open. @throws
   * the errors of `get`
   * @example for await (const entry of state.list()) console.log(entry.key)
   */
  async *list({ signal }: { signal?: AbortSignal } = {}): AsyncGenerator<StateEntry> {
    await this.#nameKey()
    for await (const change of this.#parts.reading.entries(null, signal)) if (change.type === 'set') yield change
  }

  /**
   * Yields all values as they were at a point in time. Resumes after a lost connection.
   * @throws SealpostError `before_horizon`, `moment_in_future`, and the errors of `list`
   * @example for await (const entry of state.replay({ at: new Date('2030-01-01') })) console.log(entry.key)
   */
  async *replay({ at, signal }: { at: Moment; signal?: AbortSignal }): AsyncGenerator<StateEntry> {
    await this.#nameKey()
    for await (const change of this.#parts.reading.entries(us(at), signal)) if (change.type === 'set') yield change
  }

  /**
   * Yields the changes and messages between two points in time, oldest first. @throws the errors of `replay`
   * @example for await (const event of state.history({ limit: 100 })) console.log(event.type)
   */
  async *history(
    options: { from?: Moment; to?: Moment; after?: number; limit?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<HistoryEvent> {
    const { from, to, after, limit, signal } = options
    await this.#nameKey()
    yield* this.#parts.reading.history({ fromUs: from && us(from), toUs: to && us(to), after, limit, signal })
  }

  /**
   * Yields the changes and messages before the event number `before`, or all, newest first. @throws the errors of
   * `history`
   * @example for await (const event of state.recent({ limit: 20 })) console.log(event.seq)
   */
  async *recent(options: { before?: number; limit?: number; signal?: AbortSignal } = {}): AsyncGenerator<HistoryEvent> {
    await this.#nameKey()
    yield* this.#parts.reading.recent(options)
  }

  /**
   * Yields the messages with files, newest first. Pass their `attachment` to `attachmentOf`
   * (`@sealpost/sdk/attachments`). @throws the errors of `history`
   * @example for await (const { attachment } of state.files()) console.log(attachmentOf({ attachment })?.name)
   */
  async *files(options: { before?: number; signal?: AbortSignal } = {}): AsyncGenerator<HistoryMessage> {
    for await (const event of this.recent(options)) if (event.type === 'message' && event.attachment) yield event
  }

  /**
   * Returns the last message and the number of messages of others after the event number `readUpTo`, which the
   * application stores. Counts up to 1,000.
   * @throws the errors of `history`
   * @example const { last, unread } = await state.conversation({ readUpTo: 12 })
   */
  async conversation({ readUpTo = 0 }: { readUpTo?: number } = {}): Promise<Conversation> {
    let [last, unread] = [null as HistoryMessage | null, 0]
    for await (const event of this.recent()) {
      const isRead = event.seq <= readUpTo || unread === UNREAD_MAX
      if (last !== null && isRead) break
      if (event.type !== 'message') continue
      last ??= event
      if (!isRead && event.author !== this.self) unread += 1
    }
    return { spaceId: this.spaceId, last, unread }
  }

  /**
   * Yields every change from now on, or after the event number `after`, until the loop ends. Resumes after a cut,
   * without omissions. Without a history, if a key has changed several times since the last read, only the last change
   * is yielded.
   * @example for await (const event of state.watch()) console.log(event.type)
   */
  async *watch({ after, signal }: { after?: number; signal?: AbortSignal } = {}): AsyncGenerator<HistoryEvent> {
    const stop = AbortSignal.any([this.#parts.stop.signal, ...(signal ? [signal] : [])])
    await this.#nameKey()
    const { statement, lastSeq } = await this.status()
    const isWhole = statement.historyFor !== 'none'
    yield* this.#parts.reading.watch({ after: after ?? lastSeq, isWhole, signal: stop })
  }

  /**
   * Checks that the note fits into a record. The SDK calls this, `sealRecord` and `recorded` for `group.send(text, {
   * recordIn: state })`.
   */
  checkNote(note: Note | undefined): void {
    if (!this.hasKeys) throw noKey()
    const whole = { ...note, group: this.spaceId, groupEpoch: GROUP_EPOCH_LAST }
    if (encoder.encode(JSON.stringify(whole)).length <= RECORD_NOTE_BYTES_MAX) return
    throw new SealpostError(
      'value_too_large',
      `The note of a recorded message can have at most ${RECORD_NOTE_BYTES_MAX} bytes.`,
    )
  }

  /**
   * Seals a record. It never refers to a predecessor that may be missing or stored later, which readers would report as
   * a gap.
   */
  sealRecord({ ticket, note }: { ticket: Uint8Array; note: Note }): Uint8Array {
    const { ring, identity, calls } = this.#parts
    const keyEpoch = ring.newest
    const spaceKey = ring.find(keyEpoch)
    if (!spaceKey) throw noKey()
    const place = { meshId: calls.meshId, spaceId: calls.spaceId, keyEpoch }
    const stream = this.#streams.shift() ?? newStream()
    const draft = { ...place, ...stream, ticket, note, sentAtMs: Date.now() }
    const { bytes, hash } = sealRecord(identity.signing, draft, spaceKey)
    this.#sealed.set(bytes, { ...stream, seq: stream.seq + 1, prevHash: hash })
    return bytes
  }

  recorded(record: Uint8Array): void {
    const next = this.#sealed.get(record)
    if (next && this.#sealed.delete(record)) this.#streams.push(next)
  }

  /**
   * Forgets what is known about one key or all keys, so that the broker's current state is trusted again. Call this
   * after an operator has restored the broker's database from an older backup, which looks like any other rollback.
   * @example await state.forget()
   */
  async forget(key?: string): Promise<void> {
    const { memory } = this.#parts
    memory.forget(key === undefined ? undefined : keyHashOf(await this.#nameKey(), key))
    await memory.settled()
  }

  /**
   * Ends loops over `watch`, and closes the store.
   * @example await state.close()
   */
  async close(): Promise<void> {
    const { stop, memory, access } = this.#parts
    if (stop.signal.aborted) return
    stop.abort()
    await memory.close()
    await access.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #nameKey(): Promise<Uint8Array> {
    const { ring } = this.#parts
    if (!ring.nameKey) await this.maintainKeys()
    if (!ring.nameKey) throw noKey()
    return ring.nameKey
  }
}

function newStream(): RecordPosition {
  return { streamId: toHex(crypto.getRandomValues(new Uint8Array(16))), seq: 1, prevHash: NO_ENTRY }
}

const us = (moment: Moment): number => (moment instanceof Date ? moment.getTime() * 1000 : moment.us)

const encoder = new TextEncoder()

function bytesOf(value: StateValue): Uint8Array {
  if (value instanceof Uint8Array) return value
  return encoder.encode(typeof value === 'string' ? value : JSON.stringify(value))
}

/** The terms of a space, as its owner sets them. */
export type SpaceTerms = Partial<Pick<SpaceFields, 'historyFor' | 'keepSeconds' | 'keepBytes' | 'keepsMessages'>>

const KEEP_SECONDS = 30 * 86_400
const KEEP_BYTES = 10 * 2 ** 30

/** Completes and checks terms. @throws SealpostError `space_malformed` */
export function checkedTerms({ historyFor = 'all', ...terms }: SpaceTerms): Pick<SpaceFields, keyof SpaceTerms> {
  const isKept = historyFor !== 'none'
  const { keepSeconds = isKept ? KEEP_SECONDS : 0, keepBytes = isKept ? KEEP_BYTES : 0, keepsMessages = false } = terms
  const isNumber = (value: number, max: number) => Number.isSafeInteger(value) && value >= 0 && value <= max
  const areBounds = isNumber(keepSeconds, 2 ** 31 - 1) && isNumber(keepBytes, Number.MAX_SAFE_INTEGER)
  const areWhole = keepSeconds > 0 === isKept && keepBytes > 0 === isKept && (isKept || !keepsMessages)
  if (isHistoryAudience(historyFor) && areBounds && areWhole)
    return { historyFor, keepSeconds, keepBytes, keepsMessages }
  throw new SealpostError(
    'space_malformed',
    '`keepSeconds` and `keepBytes` must be positive, or both 0 without history.',
  )
}
