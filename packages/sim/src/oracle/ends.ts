/**
 * Other ends of mail than being settled: some sends live a second or a few, and in some worlds two strikes are enough. It
 * draws from a source of its own, so that seeds from before it was there still make the worlds they made.
 */
import type { QueueOptions } from '@sealpost/queue'
import { type Random, seededRandom } from '@sealpost/std'

/** Any number: it keeps this source apart from the world's. */
const SALT = 0x0d1e5

export class Ends {
  /** `strikesMax` is beyond reach where no delivery dies of them. */
  readonly strikes: Pick<QueueOptions, 'strikesMax' | 'strikeSpanMs'>
  readonly areStrikesCounted: boolean
  private readonly random: Random
  private readonly expiring: number

  constructor(seed: number) {
    this.random = seededRandom(seed ^ SALT)
    const { random } = this
    this.expiring = random.chance(0.5) ? random.next() * 0.4 : 0
    this.areStrikesCounted = random.chance(0.3)
    this.strikes = this.areStrikesCounted
      ? { strikesMax: 1 + random.below(3), strikeSpanMs: random.below(2_000) }
      : { strikesMax: 1_000, strikeSpanMs: 0 }
  }

  /** Of one send; 0: as long as the broker lets it. */
  drawTtlSeconds(): number {
    return this.random.chance(this.expiring) ? 1 + this.random.below(4) : 0
  }
}
