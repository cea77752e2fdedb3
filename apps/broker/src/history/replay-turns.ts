/** Who may have a long answer now: few at a time and one of each member, the others in line, and after one member's turn another's. */
import type { Refused } from '../http/refusals.ts'

export interface TurnLimits {
  readonly atATime: number
  /** In line, of all members and of each. */
  readonly waitingMax: number
  readonly waitingEachMax: number
}

const RETRY_AFTER_MS = 5_000

interface Waiter {
  readonly who: string
  call(): void
}

export class Turns {
  readonly #limits: TurnLimits
  /** By member; whose turn it was last is last. */
  readonly #waiting = new Map<string, Set<Waiter>>()
  #waitingCount = 0
  /** Members whose turn it is. */
  readonly #running = new Set<string>()

  constructor(limits: TurnLimits) {
    this.#limits = limits
  }

  get running(): number {
    return this.#running.size
  }
  get waiting(): number {
    return this.#waitingCount
  }

  /** Answers what ends the turn, once it has come. @throws the reason of `signal` when it comes first */
  async begin(who: string, signal: AbortSignal): Promise<(() => void) | Refused> {
    signal.throwIfAborted()
    const { atATime, waitingMax, waitingEachMax } = this.#limits
    if (this.#running.size < atATime && !this.#running.has(who)) {
      this.#running.add(who)
      return this.#ender(who)
    }
    const isLineFull = this.#waitingCount >= waitingMax || (this.#waiting.get(who)?.size ?? 0) >= waitingEachMax
    if (isLineFull) return { code: 'replay_busy', retryAfterMs: RETRY_AFTER_MS }
    await this.#stand(who, signal)
    return this.#ender(who)
  }

  #stand(who: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const gone = () => {
        this.#leave(waiter)
        reject(signal.reason)
      }
      const waiter: Waiter = {
        who,
        call: () => {
          signal.removeEventListener('abort', gone)
          this.#leave(waiter)
          resolve()
        },
      }
      signal.addEventListener('abort', gone, { once: true })
      const others = this.#waiting.get(who) ?? new Set()
      this.#waiting.set(who, others.add(waiter))
      this.#waitingCount += 1
    })
  }

  #leave(waiter: Waiter): void {
    const others = this.#waiting.get(waiter.who)
    if (!others?.delete(waiter)) return
    this.#waitingCount -= 1
    this.#waiting.delete(waiter.who)
    if (others.size > 0) this.#waiting.set(waiter.who, others) // to the end
  }

  /** The place goes to the first in line whose member has none, or is free. */
  #ender(who: string): () => void {
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      this.#running.delete(who)
      const [next, waiters] = [...this.#waiting].find(([member]) => !this.#running.has(member)) ?? []
      if (next === undefined) return
      this.#running.add(next)
      const [waiter] = waiters!
      waiter!.call()
    }
  }
}
