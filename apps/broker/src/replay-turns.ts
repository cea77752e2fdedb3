/** Who may have a long answer now: few at a time, the others in line, and after one member's turn another member's. */
import type { Refused } from './http-refusals.ts'

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
  #running = 0

  constructor(limits: TurnLimits) {
    this.#limits = limits
  }

  get running(): number {
    return this.#running
  }
  get waiting(): number {
    return this.#waitingCount
  }

  /** Answers what ends the turn, once it has come. @throws the reason of `signal` when it comes first */
  async begin(who: string, signal: AbortSignal): Promise<(() => void) | Refused> {
    signal.throwIfAborted()
    const { atATime, waitingMax, waitingEachMax } = this.#limits
    if (this.#running < atATime) {
      this.#running += 1
      return this.#ender()
    }
    const isLineFull = this.#waitingCount >= waitingMax || (this.#waiting.get(who)?.size ?? 0) >= waitingEachMax
    if (isLineFull) return { code: 'replay_busy', retryAfterMs: RETRY_AFTER_MS }
    await this.#stand(who, signal)
    return this.#ender()
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

  /** The place goes to the next in line, or is free. */
  #ender(): () => void {
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      const [next] = this.#waiting.values().next().value ?? []
      if (next) next.call()
      else this.#running -= 1
    }
  }
}
