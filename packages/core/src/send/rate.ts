/** Token buckets on the engine's own clock: libraries for this read a clock of theirs, which no seed could replay. */
import type { Millis } from '@sealpost/std'

export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** A bucket for each who takes, however many sessions it has. A full one says no more than none, and is forgotten. */
export class Rates {
  private readonly rate: Rate
  private readonly buckets = new Map<string, TokenBucket>()

  constructor(rate: Rate) {
    this.rate = rate
  }

  of(who: string): Pick<TokenBucket, 'take'> {
    return { take: (nowMs, cost) => this.take(who, nowMs, cost) }
  }

  /** As `TokenBucket.take`. */
  take(who: string, nowMs: Millis, cost = 1): Millis {
    return this.bucketOf(who, nowMs).take(nowMs, cost)
  }

  /** As `TokenBucket.charge`. */
  charge(who: string, nowMs: Millis, cost: number): Millis {
    return this.bucketOf(who, nowMs).charge(nowMs, cost)
  }

  /** Call it now and then. */
  forgetFull(nowMs: Millis): void {
    for (const [who, bucket] of this.buckets) if (bucket.isFull(nowMs)) this.buckets.delete(who)
  }

  private bucketOf(who: string, nowMs: Millis): TokenBucket {
    const bucket = this.buckets.get(who) ?? new TokenBucket(this.rate, nowMs)
    this.buckets.set(who, bucket)
    return bucket
  }
}

/** Spreads what comes faster than its rate: each turn is later than the one before, and none is refused. */
export class Pace {
  private readonly stepMs: Millis
  private readonly burstMs: Millis
  private nextAtMs: Millis = -Infinity

  constructor({ perSecond, burst }: Rate) {
    this.stepMs = 1000 / perSecond
    this.burstMs = burst * this.stepMs
  }

  /** Takes the next turn. Returns in how many milliseconds it is. */
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
   * Takes `cost` tokens, or returns after how many milliseconds there will be enough. 0 means taken. What costs more than
   * a whole burst is let through when the bucket is full: it could never be otherwise.
   */
  take(nowMs: Millis, cost = 1): Millis {
    this.fill(nowMs)
    const needed = Math.min(cost, this.burst)
    if (this.tokens < needed) return Math.ceil(((needed - this.tokens) * 1000) / this.perSecond)
    this.tokens -= needed
    return 0
  }

  /**
   * Takes `cost` tokens whether or not they are there. Returns after how many milliseconds the bucket has none missing: 0
   * while it has.
   */
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
