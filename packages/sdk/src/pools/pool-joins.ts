/**
 * The pools this peer works for. The broker forgets them with the session, so they are said again in each; one that the
 * owner has taken this peer out of is told as an event. Pure and synchronous.
 */
import type { FrameOf } from '@sealpost/protocol'
import type { Millis, PoolId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import { unknownPool } from './pool-sender.ts'

export interface PoolJoinsPorts {
  readonly emit: (event: PeerEvent) => void
  readonly flushSoon: () => void
}

interface Join {
  credit: number
  ref: number
  /** In this session; Infinity: not yet. */
  saidAtMs: Millis
  /** The broker has said that this peer has it, in this session. */
  isTaken: boolean
  waiters: Waiter[]
}

interface Waiter {
  joined(): void
  refused(error: SealpostError): void
}

/** A broker whose database is away does not answer. */
const SAY_AGAIN_MS = 5_000

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
    const seat = this.#seats.get(poolId) ?? { credit, ref: 0, saidAtMs: Infinity, isTaken: false, waiters: [] }
    this.#seats.set(poolId, seat)
    seat.credit = credit
    seat.ref = this.#nextRef()
    seat.saidAtMs = Infinity
    seat.isTaken = false
    seat.waiters.push(waiter)
    this.#ports.flushSoon()
  }

  /** What it holds goes to others, as soon as the broker hears of it. */
  leave(poolId: PoolId): void {
    const seat = this.#seats.get(poolId)
    if (!seat) return
    this.#seats.delete(poolId)
    this.#ports.flushSoon()
    this.#leaving.push({ type: 'joinPool', ref: this.#nextRef(), pool: poolId, credit: 0 })
    for (const waiter of seat.waiters) waiter.refused(new SealpostError('closed', 'This peer has left the pool.'))
  }

  /** With the session everything ended that it held. */
  disconnected(): void {
    this.#leaving = []
    for (const seat of this.#seats.values()) {
      seat.saidAtMs = Infinity
      seat.isTaken = false
    }
  }

  takeFrames(nowMs: Millis): FrameOf<'joinPool'>[] {
    const frames = this.#leaving
    this.#leaving = []
    for (const [pool, seat] of this.#seats) {
      if (seat.isTaken || (seat.saidAtMs !== Infinity && nowMs - seat.saidAtMs < SAY_AGAIN_MS)) continue
      seat.saidAtMs = nowMs
      frames.push({ type: 'joinPool', ref: seat.ref, pool, credit: seat.credit })
    }
    return frames
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { isTaken, saidAtMs } of this.#seats.values())
      if (!isTaken) atMs = Math.min(atMs, saidAtMs + SAY_AGAIN_MS)
    return atMs
  }

  answered({ ref, pool, outcome }: FrameOf<'poolJoined'>): void {
    const seat = this.#seats.get(pool)
    if (!seat || outcome === 'left' || (ref !== 0 && ref !== seat.ref)) return
    const { waiters } = seat
    seat.waiters = []
    if (outcome === 'joined') {
      seat.isTaken = true
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
      return new SealpostError('not_in_pool', 'Only a member of the pool may take its work.')
    case 'too_many':
      return new SealpostError('too_many_pools', 'This peer works for as many pools as it may.')
  }
}
