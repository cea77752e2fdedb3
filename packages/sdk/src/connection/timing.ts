/**
 * Decides when a peer gives up a broker, and how long it waits before it dials again. Pure.
 *
 * A ping is sent when a frame was not answered for 2 seconds, or when a reply is overdue. Any frame proves that the
 * broker's event loop runs. In that case only the database is slow, which all brokers of a cluster share, so another
 * broker would not be faster. Without any frame, the broker counts as gone. Dialling backs off with full jitter, so
 * that peers that were cut off together don't return together.
 */
import type { Millis } from '@sealpost/std'

/** The time until the ping: from a sent frame or, while a reply is owed, from the last received frame. */
const OVERDUE_AFTER_MS = 2_000
/** The time that a pong may take. At the broker, a ping waits behind earlier frames. */
const ANSWER_WITHIN_MS = 4_500
/** The time between two checks, in which a busy process reads the frames that have arrived. */
const SECOND_LOOK_MS = 250
/** The maximum response time of a pong that proves a fast link. The session must be at least as old. */
const PROMPT_MS = 2_000
const STEADY_AFTER_MS = 10_000

type Wait =
  | { readonly name: 'none' }
  | { readonly name: 'pinged'; readonly atMs: Millis }
  | { readonly name: 'doubted'; readonly atMs: Millis }

const NONE: Wait = { name: 'none' }

export class Liveness {
  #heartbeatMs: Millis = Infinity
  #sinceMs: Millis = 0
  #receivedAtMs: Millis = 0
  /** When the first frame after the last received one was sent. */
  #sentAtMs: Millis | null = null
  #wait: Wait = NONE
  /**
   * The number of consecutive timeouts. Each doubles the next timeout, because a pong waits behind much other traffic
   * on a slow link.
   */
  #misses = 0

  begin(heartbeatMs: Millis, nowMs: Millis): void {
    this.#heartbeatMs = heartbeatMs
    this.#sinceMs = nowMs
    this.#receivedAtMs = nowMs
    this.#sentAtMs = null
    this.#wait = NONE
  }

  sent(nowMs: Millis): void {
    this.#sentAtMs ??= nowMs
  }

  heard(nowMs: Millis): void {
    if (this.#isPrompt(nowMs)) this.#misses = 0
    this.#receivedAtMs = nowMs
    this.#sentAtMs = null
    this.#wait = NONE
  }

  /**
   * Returns `ping` if a ping must be sent, `gone` if the session is over. `isOwed`: whether the broker owes a reply.
   */
  look(nowMs: Millis, isOwed: boolean): 'alive' | 'ping' | 'gone' {
    if (nowMs < this.wakeAtMs(isOwed)) return 'alive'
    if (this.#wait.name === 'none') {
      this.#wait = { name: 'pinged', atMs: nowMs }
      return 'ping'
    }
    if (this.#wait.name === 'pinged') {
      this.#wait = { name: 'doubted', atMs: nowMs }
      return 'alive'
    }
    this.#misses += 1
    return 'gone'
  }

  wakeAtMs(isOwed: boolean): Millis {
    const wait = this.#wait
    if (wait.name === 'pinged') return wait.atMs + this.#answerWithinMs
    if (wait.name === 'doubted') return wait.atMs + SECOND_LOOK_MS
    const waitingSinceMs = this.#sentAtMs ?? (isOwed ? this.#receivedAtMs : Infinity)
    return Math.min(this.#receivedAtMs + this.#heartbeatMs, waitingSinceMs + OVERDUE_AFTER_MS)
  }

  get #answerWithinMs(): Millis {
    return Math.min(2 * this.#heartbeatMs, ANSWER_WITHIN_MS * 2 ** Math.min(this.#misses, 8))
  }

  #isPrompt(nowMs: Millis): boolean {
    const wait = this.#wait
    if (wait.name === 'none') return nowMs - this.#sinceMs >= STEADY_AFTER_MS
    return wait.name === 'pinged' && nowMs - wait.atMs < PROMPT_MS
  }
}

const BACKOFF_BASE_MS = 500
export const BACKOFF_MAX_MS = 30_000
/** The maximum pause in the first minute of an outage, about the length of a restart. */
export const BRIEF_MAX_MS = 5_000
/** The number of failures in that minute, at an average pause of 2.5 seconds. */
const BRIEF_FAILURES = 24
/** The maximum retry-after that a broker can impose. */
export const HINT_MAX_MS = 10 * 60_000

/**
 * Returns the pause before the next dial. `failures`: the number of consecutive failures without a reply from the
 * broker, 0 for the first.
 */
export function backoffMs(failures: number, random: () => number): Millis {
  const most = failures < BRIEF_FAILURES ? BRIEF_MAX_MS : BACKOFF_MAX_MS
  return Math.min(most, spreadMs(failures)) * random()
}

/** Returns the time to add to the broker's retry-after, after this number of consecutive ones. */
export function putOffMs(putOffs: number, random: () => number): Millis {
  return Math.min(BACKOFF_MAX_MS, spreadMs(putOffs)) * random()
}

const spreadMs = (times: number): Millis => BACKOFF_BASE_MS * 2 ** Math.min(times, 16)
