/** Limits the bytes parsed per member. Above the rate, a socket is not read for a while, and a request is refused. */
import { type Rate, TokenBucket } from '@sealpost/core'
import type { Millis } from '@sealpost/std'

/** The minimum charge for a frame or body, because handling costs more than parsing. */
export const PARSE_COST_MIN = 1024
/** The factor by which a refused frame is charged more than an accepted one. */
const REFUSED_FACTOR = 64
const FORGET_EVERY_MS = 10_000

export class Intakes {
  readonly #rate: Rate
  readonly #members = new Map<string, Intake>()

  constructor(rate: Rate) {
    this.#rate = rate
    setInterval(() => this.#forget(), FORGET_EVERY_MS).unref()
  }

  /** Returns the member's intake, kept until `leave` is called. */
  enter(member: string): Intake {
    const intake = this.#of(member)
    intake.users += 1
    return intake
  }

  leave(member: string): void {
    const intake = this.#members.get(member)
    if (intake) intake.users -= 1
  }

  /** Returns the member's intake, for this turn of the event loop only. */
  of(member: string): Intake {
    return this.#of(member)
  }

  #of(member: string): Intake {
    const known = this.#members.get(member)
    if (known) return known
    const intake = new Intake(this.#rate)
    this.#members.set(member, intake)
    return intake
  }

  /** Forgets members that have left with a full bucket, so that reconnecting allows no new burst. */
  #forget(): void {
    for (const [member, intake] of this.#members)
      if (intake.users === 0 && intake.bucket.isFull(performance.now())) this.#members.delete(member)
  }
}

export class Intake {
  users = 0
  readonly bucket: TokenBucket

  constructor(rate: Rate) {
    this.bucket = new TokenBucket(rate, performance.now())
  }

  /** Charges a frame before it is parsed. Returns how long to stop reading. */
  parse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), Math.max(PARSE_COST_MIN, bytes))
  }
  /** Charges a refused frame. Returns how long to stop reading. */
  refuse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), (REFUSED_FACTOR - 1) * Math.max(PARSE_COST_MIN, bytes))
  }
  /** Returns how long to stop reading, or 0. */
  owed(): Millis {
    return this.bucket.charge(performance.now(), 0)
  }
  /** Charges a body and returns 0, or returns the milliseconds until a retry. */
  ask(bytes: number): Millis {
    return this.bucket.take(performance.now(), Math.max(PARSE_COST_MIN, bytes))
  }
}
