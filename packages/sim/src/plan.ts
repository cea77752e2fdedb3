/** Chooses a seed's faults. Each is absent in many seeds, so that none always hides another. */
import type { QueueOptions } from '@sealpost/queue'
import { type Millis, type Random, seededRandom } from '@sealpost/std'

/** The probabilities of faults, drawn at each opportunity. */
export type Chances = Pick<
  FaultPlan,
  | 'requestLost'
  | 'replyLost'
  | 'appliedLate'
  | 'locked'
  | 'raced'
  | 'sendBuffered'
  | 'sendDropped'
  | 'hintLost'
  | 'hintDoubled'
  | 'takeover'
  | 'handlerThrows'
  | 'handlerSlow'
  | 'handlerRejects'
  | 'handlerExtends'
  | 'wantsReceipts'
  | 'delayed'
  | 'disturbed'
  | 'broadcast'
>

export interface FaultPlan {
  readonly requestLost: number
  readonly replyLost: number
  /** A statement is applied after the shard received a failure. */
  readonly appliedLate: number
  readonly locked: number
  /** Other shards win the race against every attempt of a checked commit. */
  readonly raced: number
  readonly sendBuffered: number
  readonly sendDropped: number
  readonly hintLost: number
  readonly hintDoubled: number
  /** A dial goes to a different shard from the previous one. */
  readonly takeover: number
  readonly handlerThrows: number
  readonly handlerSlow: number
  readonly handlerRejects: number
  readonly handlerExtends: number
  /** A message requests receipts. */
  readonly wantsReceipts: number
  readonly delayed: number
  readonly disturbed: number
  readonly broadcast: number
  readonly poolSends: number
  readonly cuts: number
  readonly crashes: number
  readonly restarts: number
  readonly outages: number
  readonly clockJumps: number
  /** The maximum delay of a database reply. */
  readonly databaseMs: Millis
  readonly networkMs: Millis
  readonly waitingMax: number
  readonly perSecond: number | null
  readonly isInsertLeaseOn: boolean
}

export function drawPlan(random: Random): FaultPlan {
  const rate = (most: number) => (random.chance(0.5) ? 0 : random.next() * most)
  const times = (most: number) => (random.chance(0.4) ? 0 : random.below(most + 1))
  return {
    requestLost: rate(0.15),
    replyLost: rate(0.2),
    appliedLate: rate(0.15),
    locked: rate(0.3),
    raced: rate(0.3),
    sendBuffered: rate(0.3),
    sendDropped: rate(0.05),
    hintLost: rate(1),
    hintDoubled: rate(0.5),
    takeover: rate(0.8),
    handlerThrows: rate(0.2),
    handlerSlow: rate(0.15),
    handlerRejects: rate(0.1),
    handlerExtends: rate(1),
    wantsReceipts: rate(0.6),
    delayed: rate(0.2),
    disturbed: rate(0.1),
    poolSends: times(8),
    cuts: times(12),
    crashes: times(3),
    restarts: times(2),
    outages: times(2),
    clockJumps: times(3),
    databaseMs: 1 + random.below(random.chance(0.3) ? 800 : 40),
    networkMs: 1 + random.below(random.chance(0.3) ? 400 : 20),
    waitingMax: random.chance(0.25) ? 2 + random.below(4) : 1_000,
    perSecond: random.chance(0.25) ? 5 + random.below(20) : null,
    isInsertLeaseOn: random.chance(0.85),
    broadcast: rate(0.5),
  }
}

const ENDS_SALT = 0x0d1e5
const CLOSES_SALT = 0xc105e
const CLOSES_MAX = 12

/**
 * Chooses how deliveries end unsettled, by short times to live or few failed attempts, with a separate random source,
 * so that the worlds of older seeds do not change.
 */
export class Ends {
  /** The limits of failed attempts, out of reach in worlds without such dead letters. */
  readonly failedAttempts: Pick<QueueOptions, 'failedAttemptsMax' | 'failedAttemptsSpanMs'>
  readonly areFailedAttemptsCounted: boolean
  /** When peers close their connections normally, as shares of the time for faults. */
  readonly closes: readonly number[]
  private readonly random: Random
  private readonly expiring: number

  constructor(seed: number) {
    this.random = seededRandom(seed ^ ENDS_SALT)
    const { random } = this
    this.expiring = random.chance(0.5) ? random.next() * 0.4 : 0
    this.areFailedAttemptsCounted = random.chance(0.3)
    this.failedAttempts = this.areFailedAttemptsCounted
      ? { failedAttemptsMax: 1 + random.below(3), failedAttemptsSpanMs: random.below(2_000) }
      : { failedAttemptsMax: 1_000, failedAttemptsSpanMs: 0 }
    const ofCloses = seededRandom(seed ^ CLOSES_SALT)
    this.closes = ofCloses.chance(0.3) ? Array.from({ length: 1 + ofCloses.below(CLOSES_MAX) }, ofCloses.next) : []
  }

  drawTtlSeconds(): number {
    return this.random.chance(this.expiring) ? 1 + this.random.below(4) : 0
  }
}
