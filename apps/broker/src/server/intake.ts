/**
 * Limits the bytes that the broker parses for each member, over all its connections and requests. A socket that exceeds
 * the rate is not read for a while; a request that exceeds it is refused before its body is parsed.
 */
import { type Rate, TokenBucket } from '@sealpost/core'
import type { Millis } from '@sealpost/std'

/** The minimum charge for a frame or body: handling a small one takes longer than parsing it. */
export const PARSE_COST_MIN = 1024
/** How much more a refused frame is charged than an accepted one, because it is useless. */
const REFUSED_FACTOR = 64
const FORGET_EVERY_MS = 10_000

export class Intakes {
  readonly #rate: Rate
  readonly #members = new Map<string, Intake>()

  constructor(rate: Rate) {
    this.#rate = rate
    setInterval(() => this.#forget(), FORGET_EVERY_MS).unref()
  }

  /** Returns the member's intake, which is kept until `leave` is called. */
  enter(member: string): Intake {
    const intake = this.#of(member)
    intake.users += 1
    return intake
  }

  leave(member: string): void {
    const intake = this.#members.get(member)
    if (intake) intake.users -= 1
  }

  /** Returns the member's intake, for use only in this turn of the event loop. */
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

  /** Forgets a member that left only once its bucket is full, so that a reconnect does not allow a new burst. */
  #forget(): void {
    for (const [member, intake] of this.#members)
      if (intake.users === 0 && intake.bucket.isFull(performance.now())) this.#members.delete(member)
  }
}

export class Intake {
  users = 0
  /** The member's budget of bytes to parse. */
  readonly bucket: TokenBucket

  constructor(rate: Rate) {
    this.bucket = new TokenBucket(rate, performance.now())
  }

  /** Charges a frame or body that is about to be parsed. Returns how long to stop reading. */
  parse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), Math.max(PARSE_COST_MIN, bytes))
  }
  /** Charges a frame that was parsed and refused. Returns how long to stop reading. */
  refuse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), (REFUSED_FACTOR - 1) * Math.max(PARSE_COST_MIN, bytes))
  }
  /** Returns how long to stop reading, or 0. */
  owed(): Millis {
    return this.bucket.charge(performance.now(), 0)
  }
  /** Charges the bytes of a body and returns 0, or returns the milliseconds until a retry. */
  ask(bytes: number): Millis {
    return this.bucket.take(performance.now(), Math.max(PARSE_COST_MIN, bytes))
  }
}
