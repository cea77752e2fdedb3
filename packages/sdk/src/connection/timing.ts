/**
 * Whether the broker of a session still runs. A frame that nothing follows for 2 seconds leads to a ping, and so does an
 * answer that is owed. Any frame proves that the broker's event loop runs: then only its database is slow, which all
 * brokers of a cluster share, so another one would be no quicker. Without a frame the broker counts as gone. Pure.
 */
import type { Millis } from '@sealpost/std'

/** From a frame of ours, or from the last sign of life while an answer is owed, to the ping. */
const OVERDUE_AFTER_MS = 2_000
/** From the ping to the first look that finds nothing. A ping waits at the broker behind what was sent before it. */
const ANSWER_WITHIN_MS = 4_500
/** Between two looks a process that was busy reads what had arrived meanwhile. */
const SECOND_LOOK_MS = 250
/** A pong that took longer, or a session that is younger, does not show that the link is quick. */
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
  #heardAtMs: Millis = 0
  /** The first frame sent after the last one that was received. */
  #sentAtMs: Millis | null = null
  #wait: Wait = NONE
  /** Brokers given up in a row. On a slow link a pong waits behind much else: each miss doubles the time for the next. */
  #misses = 0

  begin(heartbeatMs: Millis, nowMs: Millis): void {
    this.#heartbeatMs = heartbeatMs
    this.#sinceMs = nowMs
    this.#heardAtMs = nowMs
    this.#sentAtMs = null
    this.#wait = NONE
  }

  sent(nowMs: Millis): void {
    this.#sentAtMs ??= nowMs
  }

  heard(nowMs: Millis): void {
    if (this.#isPrompt(nowMs)) this.#misses = 0
    this.#heardAtMs = nowMs
    this.#sentAtMs = null
    this.#wait = NONE
  }

  /** `isOwed`: the broker owes an answer to something. `ping`: send one. `gone`: the session is over. */
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

  /** When to look again. */
  wakeAtMs(isOwed: boolean): Millis {
    const wait = this.#wait
    if (wait.name === 'pinged') return wait.atMs + this.#answerWithinMs
    if (wait.name === 'doubted') return wait.atMs + SECOND_LOOK_MS
    const waitingSinceMs = this.#sentAtMs ?? (isOwed ? this.#heardAtMs : Infinity)
    return Math.min(this.#heardAtMs + this.#heartbeatMs, waitingSinceMs + OVERDUE_AFTER_MS)
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
 * In the first minute of an outage, which is what a restart takes: a waiting peer is back within this time of the broker.
 * Who comes from a herd is spread by being put off: a broker that has enough to do names a time, which counts below.
 */
export const BRIEF_MAX_MS = 5_000
/** With waits of 2.5 seconds on average that is about a minute. */
const BRIEF_FAILURES = 24
/** A broker may name a longer time than our own bound; not one that amounts to never. */
export const HINT_MAX_MS = 10 * 60_000

/** After this number of failures in a row without a reply of the broker, 0 for the first. */
export function backoffMs(failures: number, random: () => number): Millis {
  const most = failures < BRIEF_FAILURES ? BRIEF_MAX_MS : BACKOFF_MAX_MS
  return Math.min(most, spreadMs(failures)) * random()
}

/** Behind the time that the broker named, when it has put us off so often in a row. */
export function putOffMs(putOffs: number, random: () => number): Millis {
  return Math.min(BACKOFF_MAX_MS, spreadMs(putOffs)) * random()
}

const spreadMs = (times: number): Millis => BACKOFF_BASE_MS * 2 ** Math.min(times, 16)
