/**
 * The path to the database and back. A statement is applied atomically at one moment; before and after it may be
 * delayed or lost, and its caller gives up after a while without knowing whether it was, or still will be, applied.
 */
import type { Millis, Random } from '@sealpost/std'
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
  hasLost = false
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
      this.hasLost = true
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
