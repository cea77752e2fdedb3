/**
 * Implements the durable part of the outbox, which maps posts to store records. A post that is sealed immediately is
 * stored sealed. A waiting post is stored with its body, and stored again when it is sealed.
 *
 * The next process does not continue streams: with a store that was copied or restored from a backup, two messages
 * would have the same position in a stream, and the recipient would drop the second one as already seen.
 */
import { concatBytes, TICKET_BYTES } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { OutboxRecord, SealedRecord, SharedBodyRecord, StoreRecord } from '../stores/records.ts'
import type { StoreWriter } from '../stores/store.ts'
import type { GroupMessage, OutboxEntry, OutgoingMessage, OutgoingTerms } from './lane.ts'

/** Stores the body of each group message once, while one of its envelopes waits or is owed to a member. */
export class SharedBodyStore {
  readonly #writer: StoreWriter
  /** Bodies that an earlier process stored, by id. All envelopes of a message share one object. */
  readonly restored = new Map<string, GroupMessage>()
  readonly #posts = new Map<string, number>()

  constructor(writer: StoreWriter) {
    this.#writer = writer
  }

  /** Loads the bodies of an earlier process. Call before `adopt` is called for its posts. */
  restore(records: readonly StoreRecord[]): void {
    for (const record of records) if (record.kind === 'group') this.restored.set(record.bodyId, messageOf(record))
  }

  hold(message: GroupMessage): void {
    this.adopt(message)
    if (this.#posts.get(message.bodyId) === 1) this.keep(message)
  }

  /** Counts a post that needs this body. */
  adopt({ bodyId }: GroupMessage): void {
    this.#posts.set(bodyId, (this.#posts.get(bodyId) ?? 0) + 1)
  }

  release(message: GroupMessage): void {
    const count = this.#posts.get(message.bodyId)! - 1
    if (count > 0) this.#posts.set(message.bodyId, count)
    else {
      this.#posts.delete(message.bodyId)
      this.keep(message)
    }
  }

  keep(message: GroupMessage): void {
    const key = `group ${message.bodyId}`
    if (this.#posts.has(message.bodyId) || message.owed.size > 0) this.#writer.put(key, () => recordOf(message))
    else this.#writer.remove(key)
  }
}

function recordOf({
  groupId,
  epoch,
  bodyId,
  terms,
  isSecond,
  owed,
  ticket,
  record,
  bytes,
}: GroupMessage): SharedBodyRecord {
  const facts = { groupId, epoch, bodyId, terms: defined(terms), isSecond, owed: [...owed] }
  const whole = concatBytes(record ? [ticket, record, bytes] : [ticket, bytes])
  return { kind: 'group', ...facts, recordBytes: record?.length ?? 0, bytes: whole }
}

/** Omits undefined fields, as a JSON store does. */
const defined = <T extends object>(terms: T): T =>
  Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== undefined)) as T

function messageOf({ kind: _, owed, recordBytes = 0, bytes, ...facts }: SharedBodyRecord): GroupMessage {
  const bodyAt = TICKET_BYTES + recordBytes
  const record = recordBytes > 0 ? bytes.slice(TICKET_BYTES, bodyAt) : undefined
  const parts = { ticket: bytes.slice(0, TICKET_BYTES), record, bytes: bytes.slice(bodyAt) }
  return { ...facts, ...parts, members: [], owed: new Set(owed) }
}

export interface PersistedMessage extends OutgoingMessage {
  readonly outboxNo: number
  /** Whether the post's record is on disk. */
  isKept: boolean
}

/** The handlers for a post from an earlier process, whose caller no longer exists. */
export type Orphan = Pick<OutgoingMessage, 'accepted' | 'refused'>
export type OrphanOf = (record: OutboxRecord, message?: GroupMessage) => Orphan

const NO_BODY = new Uint8Array(0)

export class PersistentOutbox {
  readonly bodies: SharedBodyStore
  readonly #writer: StoreWriter
  #lastNo: number

  /** Numbers start at the clock's microseconds, so that they do not repeat after the store was emptied. */
  constructor(writer: StoreWriter, nowMs: Millis) {
    this.#writer = writer
    this.bodies = new SharedBodyStore(writer)
    this.#lastNo = Math.floor(nowMs * 1000)
  }

  /** Loads the posts of an earlier process, in order. */
  restore(records: readonly StoreRecord[], orphanOf: OrphanOf): [OutboxRecord, PersistedMessage][] {
    const kept = records.filter(
      (record): record is OutboxRecord => record.kind === 'waiting' || record.kind === 'sealed',
    )
    kept.sort((a, b) => a.outboxNo - b.outboxNo)
    this.#lastNo = Math.max(this.#lastNo, kept.at(-1)?.outboxNo ?? 0)
    this.bodies.restore(records)
    return kept.map((record) => {
      const { outboxNo, terms } = record
      const body = record.kind === 'waiting' ? record.bytes : NO_BODY
      const message = terms.bodyId === undefined ? undefined : this.bodies.restored.get(terms.bodyId)!
      if (message) this.bodies.adopt(message)
      const orphan = orphanOf(record, message)
      return [record, { ...terms, body, ...(message && { message }), ...orphan, outboxNo, isKept: true }]
    })
  }

  posted(post: OutgoingMessage): PersistedMessage {
    this.#lastNo += 1
    const kept: PersistedMessage = { ...post, outboxNo: this.#lastNo, isKept: false }
    const { outboxNo, body: bytes, message, fallback } = kept
    if (message) this.bodies.hold(message)
    this.#writer.put(
      keyOf(outboxNo),
      () => ({ kind: 'waiting', outboxNo, terms: { ...termsOf(kept), ...(fallback && { fallback }) }, bytes }),
      () => isNowKept(kept),
    )
    return kept
  }

  /** Calls `then` once the sealed bytes are on disk, before which the broker must not receive them. */
  sealed(entry: OutboxEntry, then: () => void): void {
    const post = entry.post as PersistedMessage
    const record = sealedRecord(entry, post)
    this.#writer.put(keyOf(post.outboxNo), () => record, then)
  }

  /** Deletes the record of a post that has its final reply. */
  done(post: OutgoingMessage): void {
    this.#writer.remove(keyOf((post as PersistedMessage).outboxNo))
    if (post.message) this.bodies.release(post.message)
  }

  endOf(post: OutgoingMessage, cause: SealpostError): SealpostError {
    if (!(post as PersistedMessage).isKept) return cause
    return keptForLater(cause)
  }
}

export function keptForLater(cause: SealpostError): SealpostError {
  return new SealpostError('kept_for_later', 'The message is saved and will be sent after the next start.', {
    cause,
  })
}

function isNowKept(post: PersistedMessage): void {
  post.isKept = true
  post.kept?.(post.outboxNo)
}

function sealedRecord({ envelopeId, envelope, admittedAtMs }: OutboxEntry, post: PersistedMessage): SealedRecord {
  const { outboxNo } = post
  return { kind: 'sealed', outboxNo, terms: termsOf(post), envelopeId, admittedAtMs, bytes: envelope }
}

function termsOf({ to, priority, ttlSeconds, terms, note, bodyId }: PersistedMessage): OutgoingTerms {
  return { to, priority, ttlSeconds, ...(terms && { terms }), ...(note && { note }), ...(bodyId && { bodyId }) }
}

/** Returns a padded key, so that keys sort in the order of the posts. */
const keyOf = (outboxNo: number): string => `out ${String(outboxNo).padStart(16, '0')}`
