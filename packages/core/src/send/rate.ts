/** Implements token buckets on the engine's clock, so that a seed can replay them. */
import type { Millis } from '@sealpost/std'

export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** Keeps one bucket per name. A full bucket is like a new one, so it is forgotten. */
export class Rates {
  private readonly rate: Rate
  private readonly buckets = new Map<string, TokenBucket>()

  constructor(rate: Rate) {
    this.rate = rate
  }

  of(who: string): Pick<TokenBucket, 'take'> {
    return { take: (nowMs, cost) => this.take(who, nowMs, cost) }
  }

  take(who: string, nowMs: Millis, cost = 1): Millis {
    return this.bucketOf(who, nowMs).take(nowMs, cost)
  }

  charge(who: string, nowMs: Millis, cost: number): Millis {
    return this.bucketOf(who, nowMs).charge(nowMs, cost)
  }

  forgetFull(nowMs: Millis): void {
    for (const [who, bucket] of this.buckets) if (bucket.isFull(nowMs)) this.buckets.delete(who)
  }

  private bucketOf(who: string, nowMs: Millis): TokenBucket {
    const bucket = this.buckets.get(who) ?? new TokenBucket(this.rate, nowMs)
    this.buckets.set(who, bucket)
    return bucket
  }
}

/** Delays events that exceed a rate. None is refused. */
export class Pace {
  private readonly stepMs: Millis
  private readonly burstMs: Millis
  private nextAtMs: Millis = -Infinity

  constructor({ perSecond, burst }: Rate) {
    this.stepMs = 1000 / perSecond
    this.burstMs = burst * this.stepMs
  }

  /** Takes the next turn. Returns the milliseconds until that turn. */
  take(nowMs: Millis): Millis {
    this.nextAtMs = Math.max(this.nextAtMs, nowMs) + this.stepMs
    return Math.max(0, Math.ceil(this.nextAtMs - nowMs - this.burstMs))
  }
}

export class TokenBucket {
  private tokens: number
  private filledAtMs: Millis
  private readonly perSecond: number
  private readonly burst: number

  constructor(rate: Rate, nowMs: Millis) {
    this.perSecond = rate.perSecond
    this.burst = rate.burst
    this.tokens = rate.burst
    this.filledAtMs = nowMs
  }

  /**
   * Takes `cost` tokens and returns 0, or returns the milliseconds until there are enough. A cost above the burst
   * requires a full bucket.
   */
  take(nowMs: Millis, cost = 1): Millis {
    this.fill(nowMs)
    const needed = Math.min(cost, this.burst)
    if (this.tokens < needed) return Math.ceil(((needed - this.tokens) * 1000) / this.perSecond)
    this.tokens -= needed
    return 0
  }

  /** Takes `cost` tokens, even if there are too few. Returns the milliseconds until the deficit is refilled. */
  charge(nowMs: Millis, cost: number): Millis {
    this.fill(nowMs)
    this.tokens -= cost
    return this.tokens >= 0 ? 0 : Math.ceil((-this.tokens * 1000) / this.perSecond)
  }

  isFull(nowMs: Millis): boolean {
    this.fill(nowMs)
    return this.tokens >= this.burst
  }

  private fill(nowMs: Millis): void {
    const elapsedMs = Math.max(0, nowMs - this.filledAtMs)
    this.filledAtMs = nowMs
    this.tokens = Math.min(this.burst, this.tokens + (elapsedMs * this.perSecond) / 1000)
  }
}
