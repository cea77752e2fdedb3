/** A token bucket on the engine's own clock: libraries for this read a clock of theirs, which no seed could replay. */
import type { Millis } from '@sealpost/std'

export class TokenBucket {
  private tokens: number
  private filledAtMs: Millis
  private readonly perSecond: number
  private readonly burst: number

  constructor(rate: { perSecond: number; burst: number }, nowMs: Millis) {
    this.perSecond = rate.perSecond
    this.burst = rate.burst
    this.tokens = rate.burst
    this.filledAtMs = nowMs
  }

  /** Takes a token, or answers after how many milliseconds there will be one. 0 means taken. */
  take(nowMs: Millis): Millis {
    const elapsedMs = Math.max(0, nowMs - this.filledAtMs)
    this.filledAtMs = nowMs
    this.tokens = Math.min(this.burst, this.tokens + (elapsedMs * this.perSecond) / 1000)
    if (this.tokens < 1) return Math.ceil(((1 - this.tokens) * 1000) / this.perSecond)
    this.tokens -= 1
    return 0
  }
}
