/** Limits long responses: few at a time and one per member; others are queued, and members take turns. */
import type { HttpRefusal } from '../http/refusals.ts'

export interface ReplaySlotLimits {
  readonly atATime: number
  readonly waitingMax: number
  readonly waitingEachMax: number
}

const RETRY_AFTER_MS = 5_000

interface Waiter {
  readonly who: string
  call(): void
}

export class ReplaySlots {
  readonly #limits: ReplaySlotLimits
  /** By member, in the order of their next turn. */
  readonly #waiting = new Map<string, Set<Waiter>>()
  #waitingCount = 0
  readonly #running = new Set<string>()

  constructor(limits: ReplaySlotLimits) {
    this.#limits = limits
  }

  get running(): number {
    return this.#running.size
  }
  get waiting(): number {
    return this.#waitingCount
  }

  /** Waits for a slot, and returns a function that releases it. @throws the reason of `signal` if it aborts first */
  async begin(who: string, signal: AbortSignal): Promise<(() => void) | HttpRefusal> {
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
    if (others.size > 0) this.#waiting.set(waiter.who, others) // moves to the end of the order
  }

  /** The slot goes to the first queued member without a running response. */
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
