/**
 * Decides when a peer gives up a broker, and how long it waits before it dials again. Pure.
 *
 * A ping is sent when a frame got no reply for 2 seconds, or when a reply is overdue. Any frame proves that the
 * broker's event loop runs. Then only the database is slow, which all brokers of a cluster share, so another broker
 * would be no faster. Without a frame the broker counts as gone. Dialling backs off with full jitter, so peers cut off
 * together don't come back together.
 */
import type { Millis } from '@sealpost/std'

/** The time to the ping, from a sent frame, or from the last received one while a reply is owed. */
const OVERDUE_AFTER_MS = 2_000
/** The time from the ping to the first check without a reply. A ping waits at the broker behind earlier frames. */
const ANSWER_WITHIN_MS = 4_500
/** The time between two checks, in which a process that was busy reads frames that have arrived. */
const SECOND_LOOK_MS = 250
/** A slower pong, or one in a younger session, does not prove that the link is fast. */
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
  /** The time of the first frame sent after the last received frame. */
  #sentAtMs: Millis | null = null
  #wait: Wait = NONE
  /**
   * Brokers given up in a row. On a slow link a pong waits behind much other traffic, so each miss doubles the next
   * timeout.
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

  /** Returns `ping` if a ping must be sent, `gone` if the session is over. `isOwed`: the broker owes a reply. */
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

  /** Returns the time of the next `look`. */
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
/**
 * In the first minute of an outage, about the length of a restart, a waiting peer reconnects within this time after the
 * broker is back. A busy broker spreads a herd by naming a retry-after, which has its own bound below.
 */
export const BRIEF_MAX_MS = 5_000
/** With an average wait of 2.5 seconds, this number of failures takes about one minute. */
const BRIEF_FAILURES = 24
/** A broker may name a longer time than our own bound, but not an effectively infinite one. */
export const HINT_MAX_MS = 10 * 60_000

/** Returns the pause. `failures`: consecutive failures without a reply from the broker, 0 for the first. */
export function backoffMs(failures: number, random: () => number): Millis {
  const most = failures < BRIEF_FAILURES ? BRIEF_MAX_MS : BACKOFF_MAX_MS
  return Math.min(most, spreadMs(failures)) * random()
}

/** Returns the time to add to the broker's retry-after, after this number of consecutive deferrals. */
export function putOffMs(putOffs: number, random: () => number): Millis {
  return Math.min(BACKOFF_MAX_MS, spreadMs(putOffs)) * random()
}

const spreadMs = (times: number): Millis => BACKOFF_BASE_MS * 2 ** Math.min(times, 16)
