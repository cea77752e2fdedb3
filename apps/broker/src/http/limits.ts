/** Limits the rate and the concurrency of HTTP requests. */
import { type Rate, Rates } from '@sealpost/core'
import type { HttpRefusal } from './refusals.ts'

const FORGET_EVERY_MS = 10_000

export class RequestLimits {
  private readonly rates: Rates | null
  private readonly atATime: number
  private readonly running = new Map<string, number>()

  constructor(rate: Rate | null, atATime: number) {
    this.rates = rate && new Rates(rate)
    this.atATime = atATime
    if (rate) setInterval(() => this.rates?.forgetFull(performance.now()), FORGET_EVERY_MS).unref()
  }

  /** Counts a request of `who` as running until `done`, or refuses it. `share`: whose rate it counts against. */
  begin(who: string, share = who): HttpRefusal | null {
    const retryAfterMs = this.rates?.take(share, performance.now()) ?? 0
    if (retryAfterMs > 0) return { code: 'rate_limited', retryAfterMs }
    const count = this.running.get(who) ?? 0
    if (count >= this.atATime) return { code: 'too_many_requests' }
    this.running.set(who, count + 1)
    return null
  }

  done(who: string): void {
    const count = this.running.get(who)! - 1
    if (count > 0) this.running.set(who, count)
    else this.running.delete(who)
  }

  get isIdle(): boolean {
    return this.running.size === 0
  }
}
