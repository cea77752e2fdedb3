/**
 * Ways in which deliveries end unsettled: some sends live a second or a few, and in some worlds two failed attempts
 * suffice. It has a random source of its own, so that older seeds keep their worlds.
 */
import type { QueueOptions } from '@sealpost/queue'
import { type Random, seededRandom } from '@sealpost/std'

const SALT = 0x0d1e5

export class Ends {
  /** `strikesMax` is out of reach in worlds without failed attempts. */
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

  drawTtlSeconds(): number {
    return this.random.chance(this.expiring) ? 1 + this.random.below(4) : 0
  }
}
