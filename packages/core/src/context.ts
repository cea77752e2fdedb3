/**
 * Defines the context that the parts of one engine share: effects, limits, the clock, and sessions with frames to send.
 */
import { type CloseCode, type Delivery, readMarking, type ServerFrame, type Settle } from '@sealpost/protocol'
import { assert, type Millis, type PeerNo } from '@sealpost/std'
import { MeshRegistry } from './directory/meshes.ts'
import type { Effects } from './effects.ts'
import type { EngineLimits } from './limits.ts'
import { deliveryRef, type LiveSession } from './model.ts'
import { Quotas } from './send/quotas.ts'
import { Rates } from './send/rate.ts'

/** The engine's counters, which the broker exposes as metrics. */
export interface Counters {
  accepted: number
  duplicates: number
  nacked: number
  mailboxFull: number
  meshFull: number
  pushed: number
  redelivered: number
  leasedOnInsert: number
  settled: number
  settledForeign: number
  retried: number
  rejected: number
  extended: number
  ephemeralPushed: number
  claims: number
  collected: number
  fences: number
}

interface ContextOptions {
  readonly limits: EngineLimits
  readonly nowMs: Millis
  readonly timed?: Timed
}

/**
 * `ack`: from an accepted send to its ack. `push`: from an accepted send to its push, if the commit leased the delivery
 * on insert. `settle`: from a push to its settle, measured for the first delivery of each settle frame.
 */
export type TimedStage = 'ack' | 'push' | 'settle'
export type Timed = (stage: TimedStage, tookMs: Millis) => void

/** The delay after which peers of a moving mesh reconnect. By then, the broker may have their new address. */
const MOVING_RETRY_MS: Millis = 200
/**
 * The additional delay per session, which spreads the reconnects of a large mesh: about the duration of a handshake.
 */
const MOVING_SPREAD_MS: Millis = 1

export class Context {
  readonly effects: Effects
  readonly limits: EngineLimits
  readonly meshes: MeshRegistry
  readonly quotas: Quotas
  readonly counters: Counters = {
    accepted: 0,
    duplicates: 0,
    nacked: 0,
    mailboxFull: 0,
    meshFull: 0,
    pushed: 0,
    redelivered: 0,
    leasedOnInsert: 0,
    settled: 0,
    settledForeign: 0,
    retried: 0,
    rejected: 0,
    extended: 0,
    ephemeralPushed: 0,
    claims: 0,
    collected: 0,
    fences: 0,
  }
  readonly timed: Timed
  nowMs: Millis
  /** The highest committed delivery id. Commits complete in the order of their ids. */
  lastId = 0
  pushedWithReceipt: Settle[] = []
  /** The rate limit of each thread; null if it is off. */
  readonly threads: Rates | null
  private logicalClock = 0
  /** Ends a session; its peer may reconnect after `retryAfterMs`. The engine sets this function. */
  end: (session: LiveSession, code: CloseCode, retryAfterMs?: Millis) => void = () =>
    assert(false, 'the engine sets `end`')
  private readonly touched = new Set<LiveSession>()

  constructor(effects: Effects, { limits, nowMs, timed = () => undefined }: ContextOptions) {
    this.effects = effects
    this.meshes = new MeshRegistry(effects)
    this.timed = timed
    this.limits = limits
    this.quotas = new Quotas(limits, (meshId, scope) => effects.measure(meshId, scope))
    this.threads = limits.threadRate && new Rates(limits.threadRate)
    this.nowMs = nowMs
  }

  /** Ends all sessions of a mesh that is moving or has moved, so that its peers are redirected when they reconnect. */
  meshMoving({ mesh }: LiveSession): void {
    let retryAfterMs = MOVING_RETRY_MS
    for (const { live } of [...mesh.byNo.values()]) {
      if (!live) continue
      this.end(live, 'try_later', retryAfterMs)
      retryAfterMs += MOVING_SPREAD_MS
    }
  }

  forgetOld(): void {
    this.meshes.forgetIdle(this.nowMs)
    this.threads?.forgetFull(this.nowMs)
  }

  /** Advances the engine's logical clock, which orders the start of scans, sessions and commits. */
  nextTick(): number {
    this.logicalClock += 1
    return this.logicalClock
  }

  /**
   * Pushes a delivery to its session, unless the session holds it already. `pool`: the pool that the delivery belongs to.
   */
  push(live: LiveSession, delivery: Delivery, pool?: PeerNo): void {
    if (live.credit.isInHand(delivery.id, this.nowMs)) return
    this.counters.pushed += 1
    if (delivery.attempt > 1) this.counters.redelivered += 1
    live.push(delivery, this.nowMs, pool)
    if (delivery.terms !== null) this.noteReceipt(live, delivery, pool)
    this.touch(live)
  }

  private noteReceipt(live: LiveSession, delivery: Delivery, pool: PeerNo | undefined): void {
    const { id, priority, terms, attempt, sender } = delivery
    const marking = readMarking(terms!)
    if (marking?.kind !== 'terms' || marking.terms.receipts !== 'all' || attempt > 1 || live.declinesReceipts) return
    const { meshId, recipient } = deliveryRef(live, id, { priority, pool })
    this.pushedWithReceipt.push({ meshId, recipient, priority, id, receiptTo: sender })
  }

  /** Marks a session with frames to send; `flush` sends them at the end of the event. */
  touch(session: LiveSession): void {
    if (!session.isOver) this.touched.add(session)
  }

  forget(session: LiveSession): void {
    this.touched.delete(session)
  }

  flush(): void {
    for (const session of this.touched) {
      const frames = session.outgoing.takeFrames({ withNews: !session.credit.isCongested })
      if (frames.length > 0) this.send(session, frames)
    }
    this.touched.clear()
    if (this.pushedWithReceipt.length === 0) return
    this.effects.updateDeliveries({ type: 'notifyPushed', deliveries: this.pushedWithReceipt })
    this.pushedWithReceipt = []
  }

  send(session: LiveSession, frames: readonly ServerFrame[]): void {
    const outcome = this.effects.send(session.socket, frames)
    if (outcome === 'buffered') session.credit.isCongested = true
    if (outcome === 'dropped') this.end(session, 'slow_consumer')
  }
}
