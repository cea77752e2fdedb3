/**
 * What each member makes this broker parse, in bytes, over all its connections and requests. A socket that is over its
 * rate is not read for a while; a request that is over it is refused before its body is parsed.
 */
import { type Rate, TokenBucket } from '@sealpost/core'
import type { Millis } from '@sealpost/std'

/** A frame costs at least so much: handling a small one takes longer than parsing it. */
const COST_MIN = 1024
/** What is refused costs more than what is taken: it does nothing for anybody. */
const REFUSED_FACTOR = 64
const FORGET_EVERY_MS = 10_000

export interface Intake {
  /** Counts a frame or body of so many bytes. Returns how long to read nothing more; 0: not at all. */
  parse(bytes: number): Millis
  /** The same for one that was parsed and refused, on top of its parsing. */
  refuse(bytes: number): Millis
  /** How long to read nothing more. */
  owed(): Millis
  /** Returns 0 if the member may have so many bytes parsed now, and counts them; else when to ask again. */
  ask(bytes: number): Millis
}

export class Intakes {
  readonly #rate: Rate
  readonly #members = new Map<string, MemberIntake>()

  constructor(rate: Rate) {
    this.#rate = rate
    setInterval(() => this.#forget(), FORGET_EVERY_MS).unref()
  }

  /** Of a member, as long as `leave` is not called for it. */
  enter(member: string): Intake {
    const intake = this.#of(member)
    intake.users += 1
    return intake
  }

  leave(member: string): void {
    const intake = this.#members.get(member)
    if (intake) intake.users -= 1
  }

  /** Of a member, for this turn of the event loop. */
  of(member: string): Intake {
    return this.#of(member)
  }

  #of(member: string): MemberIntake {
    const known = this.#members.get(member)
    if (known) return known
    const intake = new MemberIntake(this.#rate)
    this.#members.set(member, intake)
    return intake
  }

  /** A member that left is kept until its bucket is full, so that a new connection begins with no new burst. */
  #forget(): void {
    for (const [member, intake] of this.#members)
      if (intake.users === 0 && intake.bucket.isFull(performance.now())) this.#members.delete(member)
  }
}

class MemberIntake implements Intake {
  users = 0
  readonly bucket: TokenBucket

  constructor(rate: Rate) {
    this.bucket = new TokenBucket(rate, performance.now())
  }

  parse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), Math.max(COST_MIN, bytes))
  }
  refuse(bytes: number): Millis {
    return this.bucket.charge(performance.now(), (REFUSED_FACTOR - 1) * Math.max(COST_MIN, bytes))
  }
  owed(): Millis {
    return this.bucket.charge(performance.now(), 0)
  }
  ask(bytes: number): Millis {
    return this.bucket.take(performance.now(), Math.max(COST_MIN, bytes))
  }
}
