/**
 * Sends messages to pools, from the call to the broker's reply. Each message is sealed once, with a box for every
 * member whose key is available. A pool has no order, so no message waits for another. A message that was refused
 * temporarily is resent after a while; a message that was not answered when a session ended is resent in the next one.
 * Pure and synchronous.
 */
import { type Correspondent, isPoolEnded, type Note, type PoolStatement } from '@sealpost/identity'
import {
  BODY_BYTES_MAX,
  encodeBoxes,
  type FrameOf,
  type NackCode,
  NO_THREAD,
  type Priority,
  refusal,
  type SendTerms,
} from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey, PoolId } from '@sealpost/std'
import { finalRefusal, maybeSent, refusedBy, SealpostError } from '../errors.ts'
import type { StatementCache } from '../groups/member-lists.ts'
import { memberUnproven } from '../members/member-guard.ts'
import type { Receipt } from '../outbox/lane.ts'
import { type OutboxLimits, RESEND_FOR_MS_MAX } from '../outbox/outbox.ts'
import type { AddedPartPorts, CorrespondentWaiter, CryptoPort, PeerEvent } from '../ports.ts'

/** A message to a pool. Calls either `accepted` or `refused`. */
export interface PoolSend {
  readonly poolId: PoolId
  readonly body: Uint8Array
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly terms?: SendTerms | undefined
  readonly note?: Note | undefined
  /** Members for whom nothing is sealed, because no certificate proves them. */
  readonly barred?: ReadonlySet<PeerKey>
  readonly accepted: (receipt: Receipt) => void
  readonly refused: (error: SealpostError) => void
  /** Called when the message has an id, before the broker receives it. */
  readonly sealed?: ((envelopeId: EnvelopeId) => void) | undefined
}

export interface PoolSenderPorts extends Omit<AddedPartPorts, 'emit' | 'ask' | 'crypto' | 'seen'> {
  readonly crypto: Pick<CryptoPort, 'seal' | 'newEnvelopeId' | 'groups'>
  readonly statements: Pick<StatementCache<PoolId, PoolStatement>, 'find' | 'refresh'>
}

interface Entry {
  readonly send: PoolSend
  /** Whether the message was already sealed again after a change to the pool. This happens at most once. */
  isSecond: boolean
  state: 'preparing' | 'waiting' | 'said' | 'done'
  /** The statement whose members the message is sealed for. */
  pool: PoolStatement | null
  readers: readonly Correspondent[]
  sealed: Sealed | null
}

interface Sealed {
  readonly frame: FrameOf<'sendPool'>
  readonly admittedAtMs: Millis
  /** When to send the message; Infinity while a reply is owed. */
  dueAtMs: Millis
  /** Whether the network or the broker lost a reply. If so, the message is resent even if the pool has changed. */
  mayBeStored: boolean
  pauses: number
}

const WINDOW = 64
const WAITING_MAX = 10_000
const PAUSE_BASE_MS = 50
const PAUSE_MAX_MS = 5_000
const NO_TERMS: SendTerms = {
  ...{ notBeforeMs: 0, receipts: 'none', thread: NO_THREAD, hops: 0, noAutoReply: false, ifOnline: false },
}

export class PoolSender {
  readonly #ports: PoolSenderPorts
  readonly #open = new Set<Entry>()
  readonly #byId = new Map<EnvelopeId, Entry>()
  #limits: OutboxLimits | null = null
  #resendForMs = RESEND_FOR_MS_MAX

  constructor(ports: PoolSenderPorts) {
    this.#ports = ports
  }

  /** The number of messages without a reply. */
  get pendingCount(): number {
    return this.#open.size
  }

  send(send: PoolSend): void {
    if (send.body.length > BODY_BYTES_MAX)
      return send.refused(new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`))
    if (this.#open.size >= WAITING_MAX)
      return send.refused(
        new SealpostError('outbox_full', 'Too many messages are waiting to be sent.', { isRetryable: true }),
      )
    const entry: Entry = { send, isSecond: false, state: 'preparing', pool: null, readers: [], sealed: null }
    this.#open.add(entry)
    this.#prepare(entry)
  }

  connected(limits: OutboxLimits): void {
    this.#limits = limits
    this.#resendForMs = Math.min(RESEND_FOR_MS_MAX, (limits.dedupeSeconds * 1000) / 2)
    for (const { sealed } of this.#byId.values()) if (sealed) sealed.dueAtMs = 0
  }

  disconnected(): void {
    this.#limits = null
    for (const { sealed, state } of this.#byId.values()) if (sealed && state === 'said') sealed.mayBeStored = true
  }

  acked(items: FrameOf<'ack'>['items'], nowMs: Millis): void {
    if (this.#byId.size === 0) return
    for (const { envelopeId, isDuplicate } of items) {
      const entry = this.#byId.get(envelopeId)
      if (!entry) continue
      const { admittedAtMs } = entry.sealed!
      this.#finish(entry)
      this.#ports.counters.acked += 1
      entry.send.accepted({ envelopeId, isDuplicate, admittedAtMs, ackedAtMs: nowMs })
    }
  }

  nacked(items: FrameOf<'nack'>['items'], nowMs: Millis): void {
    if (this.#byId.size === 0) return
    for (const { envelopeId, code, retryAfterMs } of items) {
      const entry = this.#byId.get(envelopeId)
      if (!entry) continue
      this.#ports.counters.nacked += 1
      if (code === 'unavailable') entry.sealed!.mayBeStored = true
      if (refusal(code).isRetryable) this.#pause(entry.sealed!, nowMs, retryAfterMs)
      else if (code === 'stale_roster' && !entry.isSecond && !entry.sealed!.mayBeStored) this.#sealAnew(entry)
      else this.#fail(entry, finalRefusal(code as NackCode, entry.sealed!))
    }
  }

  takeFrames(nowMs: Millis): FrameOf<'sendPool'>[] {
    if (!this.#limits) return []
    for (const entry of this.#open) {
      if (this.#byId.size >= WINDOW) break
      if (entry.state === 'waiting') this.#seal(entry, nowMs)
    }
    const frames: FrameOf<'sendPool'>[] = []
    for (const entry of this.#byId.values()) if (entry.sealed!.dueAtMs <= nowMs) frames.push(this.#frameOf(entry))
    return frames
  }

  /** Gives up messages that are too old to resend. */
  expire(nowMs: Millis): void {
    for (const entry of this.#byId.values())
      if (nowMs - entry.sealed!.admittedAtMs >= this.#resendForMs) this.#fail(entry, maybeSent())
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { sealed } of this.#byId.values())
      atMs = Math.min(atMs, this.#limits ? sealed!.dueAtMs : sealed!.admittedAtMs + this.#resendForMs)
    return atMs
  }

  close(error: SealpostError): void {
    for (const entry of [...this.#open]) this.#fail(entry, entry.sealed ? maybeSent() : error)
  }

  #prepare(entry: Entry): void {
    const { statements } = this.#ports
    const { poolId } = entry.send
    const pool = statements.find(poolId)
    if (pool) return this.#gather(entry, pool)
    statements.refresh((error) => {
      const found = statements.find(poolId)
      if (found) this.#gather(entry, found)
      else this.#fail(entry, error ?? unknownPool())
    })
  }

  /** Collects the members' keys. Skips members without a trusted one. */
  #gather(entry: Entry, pool: PoolStatement): void {
    if (isPoolEnded(pool)) return this.#fail(entry, unknownPool())
    const members = pool.members.filter((member) => !entry.send.barred?.has(member))
    if (members.length === 0) return this.#fail(entry, memberUnproven())
    const readers: Correspondent[] = []
    let missing = members.length
    let reason = refusedBy('unknown_recipient')
    const answered = () => {
      missing -= 1
      if (missing > 0 || entry.state !== 'preparing') return
      if (readers.length === 0) return this.#fail(entry, reason)
      entry.pool = pool
      entry.readers = readers
      entry.state = 'waiting'
      this.#ports.flushSoon()
    }
    for (const member of members)
      this.#lookup(member, {
        found: (key) => {
          readers.push(key)
          answered()
        },
        refused: (error) => {
          reason = error
          answered()
        },
      })
  }

  /** Looks up the current identity key of `member`, even if it changes in the meantime. */
  #lookup(member: PeerKey, { found, refused }: CorrespondentWaiter): void {
    const { current, lookup } = this.#ports
    const now = current(member)
    const missed = (error: SealpostError) => {
      if (current(now) === now) refused(error)
      else this.#lookup(now, { found, refused })
    }
    lookup(now, { found, refused: missed })
  }

  #seal(entry: Entry, nowMs: Millis): void {
    const { send } = entry
    // The broker must see which members the message is sealed for, so use the epoch it was sealed for, even if a newer one is known.
    const pool = entry.pool!
    if (send.ttlSeconds > this.#limits!.ttlSecondsMax) return this.#fail(entry, refusedBy('ttl_too_long'))
    const { crypto } = this.#ports
    const { bodyId, bytes: body, ticket } = crypto.groups.sealBody(send.body)
    const envelopeId = crypto.newEnvelopeId()
    const note = { ...send.note, pool: pool.poolId, poolEpoch: pool.epoch }
    const draft = { envelopeId, stream: null, sentAtMs: Math.floor(nowMs), note, body: ticket, isBox: true }
    const boxes = entry.readers.flatMap((to) => {
      try {
        return [{ peer: to.peerKey, box: crypto.seal({ ...draft, to }).envelope }]
      } catch {
        return [] // The box key has small order, so nothing can be sealed to it.
      }
    })
    if (boxes.length === 0) return this.#fail(entry, unusableKeys())
    const { priority, ttlSeconds } = send
    const route = { envelopeId, recipient: pool.poolId as string as PeerKey, priority, isHead: true, ttlSeconds }
    const frame: FrameOf<'sendPool'> = {
      ...{ type: 'sendPool', rosterEpoch: pool.epoch, bodyId, body, terms: send.terms ?? NO_TERMS },
      send: { ...route, envelope: encodeBoxes(boxes) },
    }
    entry.sealed = { frame, admittedAtMs: nowMs, dueAtMs: 0, mayBeStored: false, pauses: 0 }
    entry.state = 'waiting'
    this.#byId.set(envelopeId, entry)
    send.sealed?.(envelopeId)
  }

  #frameOf(entry: Entry): FrameOf<'sendPool'> {
    const sealed = entry.sealed!
    this.#ports.counters[entry.state === 'said' ? 'resent' : 'sent'] += 1
    entry.state = 'said'
    sealed.dueAtMs = Infinity
    // A stored message must not be refused as stale, because it would be sealed again and arrive twice.
    return sealed.mayBeStored ? { ...sealed.frame, rosterEpoch: 0 } : sealed.frame
  }

  #pause(sealed: Sealed, nowMs: Millis, retryAfterMs: Millis): void {
    const pauseMs = Math.min(PAUSE_MAX_MS, PAUSE_BASE_MS * 2 ** Math.min(sealed.pauses, 10))
    sealed.pauses += 1
    sealed.dueAtMs = nowMs + Math.max(retryAfterMs, pauseMs * (0.5 + this.#ports.random() / 2))
  }

  /** Seals the message again because the pool has changed: for its current members, and under a new id. */
  #sealAnew(entry: Entry): void {
    this.#byId.delete(entry.sealed!.frame.send.envelopeId)
    entry.sealed = null
    entry.isSecond = true
    entry.state = 'preparing'
    this.#ports.statements.refresh((error) => (error ? this.#fail(entry, error) : this.#prepare(entry)))
  }

  #fail(entry: Entry, error: SealpostError): void {
    if (entry.state === 'done') return
    this.#finish(entry)
    entry.send.refused(error)
  }

  #finish(entry: Entry): void {
    entry.state = 'done'
    this.#open.delete(entry)
    if (entry.sealed) this.#byId.delete(entry.sealed.frame.send.envelopeId)
  }
}

export const unknownPool = () => new SealpostError('unknown_pool', 'There is no such pool in this mesh.')
const unusableKeys = () =>
  new SealpostError('key_refused', 'The box keys of these members are invalid: no message can be sealed to them.')

/** The dependencies of `PoolJoins`. */
interface PoolJoinsPorts {
  readonly emit: (event: PeerEvent) => void
  readonly flushSoon: () => void
}

interface Join {
  credit: number
  ref: number
  /** When the join was sent in this session; Infinity if it was not. */
  sentAtMs: Millis
  /** Whether the broker has confirmed the join in this session. */
  isConfirmed: boolean
  waiters: Waiter[]
}

interface Waiter {
  joined(): void
  refused(error: SealpostError): void
}

/** The time after which a request is repeated, because a broker does not reply while its database is unavailable. */
const REPEAT_MS = 5_000

export class PoolJoins {
  readonly #ports: PoolJoinsPorts
  readonly #seats = new Map<PoolId, Join>()
  #leaving: FrameOf<'joinPool'>[] = []
  #lastRef = 0

  constructor(ports: PoolJoinsPorts) {
    this.#ports = ports
  }

  /** Whether this peer works for any pool. */
  get isAny(): boolean {
    return this.#seats.size > 0
  }

  join(poolId: PoolId, credit: number, waiter: Waiter): void {
    const seat = this.#seats.get(poolId) ?? { credit, ref: 0, sentAtMs: Infinity, isConfirmed: false, waiters: [] }
    this.#seats.set(poolId, seat)
    seat.credit = credit
    seat.ref = this.#nextRef()
    seat.sentAtMs = Infinity
    seat.isConfirmed = false
    seat.waiters.push(waiter)
    this.#ports.flushSoon()
  }

  /** Leaves the pool, which passes this peer's unsettled messages to other members. */
  leave(poolId: PoolId): void {
    const seat = this.#seats.get(poolId)
    if (!seat) return
    this.#seats.delete(poolId)
    this.#ports.flushSoon()
    this.#leaving.push({ type: 'joinPool', ref: this.#nextRef(), pool: poolId, credit: 0 })
    for (const waiter of seat.waiters) waiter.refused(new SealpostError('closed', 'This peer has left the pool.'))
  }

  disconnected(): void {
    this.#leaving = []
    for (const seat of this.#seats.values()) {
      seat.sentAtMs = Infinity
      seat.isConfirmed = false
    }
  }

  /** Whether neither a join nor a leave is pending. */
  get isIdle(): boolean {
    return this.#seats.size === 0 && this.#leaving.length === 0
  }

  takeFrames(nowMs: Millis): FrameOf<'joinPool'>[] {
    const frames = this.#leaving
    this.#leaving = []
    for (const [pool, seat] of this.#seats) {
      if (seat.isConfirmed || (seat.sentAtMs !== Infinity && nowMs - seat.sentAtMs < REPEAT_MS)) continue
      seat.sentAtMs = nowMs
      frames.push({ type: 'joinPool', ref: seat.ref, pool, credit: seat.credit })
    }
    return frames
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { isConfirmed, sentAtMs } of this.#seats.values())
      if (!isConfirmed) atMs = Math.min(atMs, sentAtMs + REPEAT_MS)
    return atMs
  }

  answered({ ref, pool, outcome }: FrameOf<'poolJoined'>): void {
    const seat = this.#seats.get(pool)
    if (!seat || outcome === 'left' || (ref !== 0 && ref !== seat.ref)) return
    const { waiters } = seat
    seat.waiters = []
    if (outcome === 'joined') {
      seat.isConfirmed = true
      for (const waiter of waiters) waiter.joined()
      return
    }
    this.#seats.delete(pool)
    for (const waiter of waiters) waiter.refused(refusedAs(outcome))
    if (waiters.length === 0) this.#ports.emit({ type: 'pool_left', pool, reason: outcome })
  }

  close(error: SealpostError): void {
    for (const { waiters } of this.#seats.values()) for (const waiter of waiters) waiter.refused(error)
    this.#seats.clear()
  }

  #nextRef(): number {
    this.#lastRef = (this.#lastRef % 0xffffffff) + 1
    return this.#lastRef
  }
}

function refusedAs(outcome: 'unknown_pool' | 'not_in_pool' | 'too_many'): SealpostError {
  switch (outcome) {
    case 'unknown_pool':
      return unknownPool()
    case 'not_in_pool':
      return new SealpostError('not_in_pool', 'Only members of a pool may receive its messages.')
    case 'too_many':
      return new SealpostError('too_many_pools', 'This peer has joined the maximum number of pools.')
  }
}
