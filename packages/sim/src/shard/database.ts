/**
 * Simulates the path to the database and back. A statement is applied atomically at one moment. It or its reply may be
 * delayed or lost, after which the caller does not know whether it was or will be applied.
 */
import type { Settle, Want } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import type { MemoryDatabase } from '@sealpost/queue/memory'
import { type MeshId, type Millis, type PeerKey, type Random, seededRandom } from '@sealpost/std'
import type { VirtualClock } from '../clock.ts'
import type { Oracle } from '../oracle/oracle.ts'
import type { FaultPlan } from '../plan.ts'

const TIMEOUT_MS = 1_500
const LATE_MAX_MS = 2_500

export class DatabasePath {
  private readonly clock: VirtualClock
  private readonly random: Random
  private readonly plan: FaultPlan
  private readonly oracle: Oracle
  areFaultsOn = true
  lostAtMs: Millis = -Infinity
  private brokenUntilMs: Millis = 0

  constructor(parts: { clock: VirtualClock; random: Random; plan: FaultPlan; oracle: Oracle }) {
    this.clock = parts.clock
    this.random = parts.random
    this.plan = parts.plan
    this.oracle = parts.oracle
  }

  ask<T>(name: string, apply: () => T, answered: (answer: T) => void, failed: () => void): void {
    const fate = this.drawFate()
    if (fate !== 'sound') {
      this.lostAtMs = this.clock.nowMs
      this.oracle.mark(`${name}: ${fate}`)
      this.clock.after(TIMEOUT_MS, failed)
    }
    if (fate === 'request lost') return
    const lateMs = fate === 'applied late' ? TIMEOUT_MS + this.random.next() * LATE_MAX_MS : 0
    this.clock.after(lateMs + this.delay(), () => {
      const answer = apply()
      if (fate === 'sound') this.clock.after(this.delay(), () => answered(answer))
    })
  }

  breakFor(forMs: Millis): void {
    this.oracle.mark('database: away')
    this.brokenUntilMs = this.clock.nowMs + forMs
  }

  get isAway(): boolean {
    return this.clock.nowMs < this.brokenUntilMs
  }

  chance(probability: number): boolean {
    return this.areFaultsOn && this.random.chance(probability)
  }

  private drawFate(): 'sound' | 'request lost' | 'reply lost' | 'applied late' {
    if (this.isAway || this.chance(this.plan.requestLost)) return 'request lost'
    if (this.chance(this.plan.replyLost)) return 'reply lost'
    return this.chance(this.plan.appliedLate) ? 'applied late' : 'sound'
  }

  private delay(): Millis {
    return (this.random.next() * this.plan.databaseMs) / 2
  }
}

const OVERLAPS_SALT = 0x0ca1f
const FROM_MS = 500
const SENDS = 50
const MOVES = 3
const MOVE_AFTER_MS = 50
const HELD_MS_MAX = 3_000
/** The period over which held-back settles are committed, in several parts. */
const WAITING_MS = 500

interface Mover {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  post(to: PeerKey, priority: 'next'): void
  move(): void
}

interface OverlapParts {
  readonly clock: VirtualClock
  readonly plan: FaultPlan
  readonly store: MemoryDatabase
}

/**
 * Lets claims overlap with the settles of their peer's former session, which are held back until the claim has its
 * snapshot. Such a claim does not return rows that are settled in the meantime. Has its own random source, like `Ends`.
 */
export class Overlaps {
  private readonly world: OverlapParts
  private readonly random: Random
  private readonly isOn: boolean
  private mover: Mover | null = null
  private isMoveDue = false
  private releasedAtMs: Millis = -Infinity
  private held: { readonly shard: object; readonly begin: () => void }[] = []

  constructor(world: OverlapParts, seed: number) {
    this.world = world
    this.random = seededRandom(seed ^ OVERLAPS_SALT)
    this.isOn = this.random.chance(0.2)
  }

  schedule([from, to]: readonly Mover[]): void {
    if (!this.isOn) return
    this.mover = to!
    const { clock } = this.world
    const spacingMs = 60 + this.random.below(60)
    for (let i = 0; i < SENDS; i++) clock.after(FROM_MS + i * spacingMs, () => from!.post(to!.peerKey, 'next'))
    for (let i = 0; i < MOVES; i++)
      clock.after(FROM_MS + this.random.next() * SENDS * spacingMs, () => {
        this.isMoveDue = true
      })
  }

  /** Resolves immediately, or when a claim of the next session begins. */
  async mayCommit(shard: object, { settles }: Batch): Promise<void> {
    if (!this.isMoveDue || !settles.some((settle) => this.isToTalker(settle))) return
    const { clock } = this.world
    this.isMoveDue = false
    clock.after(MOVE_AFTER_MS, () => this.mover!.move())
    clock.after(HELD_MS_MAX, () => this.release())
    await new Promise<void>((begin) => this.held.push({ shard, begin }))
  }

  /** Returns the store version that the claim sees, after which commits held back for it continue. */
  async mayClaim(shard: object, wants: readonly Want[]): Promise<number | undefined> {
    const isElsewhere = this.held.some((one) => one.shard !== shard)
    const isNext = wants.some(({ session }) => this.isToTalker({ ...session, recipient: session.peer }))
    if (!isElsewhere || !isNext) return undefined
    const { clock, plan, store } = this.world
    const asOf = store.version
    this.release()
    await new Promise<void>((begin) => clock.after(plan.databaseMs + 1, begin))
    return asOf
  }

  /** Returns whether commits since then may have been held back. */
  mayLackSince(ms: Millis): boolean {
    return this.held.length > 0 || ms < this.releasedAtMs + WAITING_MS
  }

  private release(): void {
    if (this.held.length > 0) this.releasedAtMs = this.world.clock.nowMs
    for (const { begin } of this.held.splice(0)) begin()
  }

  private isToTalker({ meshId, recipient }: Pick<Settle, 'meshId' | 'recipient'>): boolean {
    const { mover } = this
    return meshId === mover?.meshId && recipient === this.world.store.findByKey(meshId, mover.peerKey)!.peer
  }
}
