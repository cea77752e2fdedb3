/**
 * Keeps the profile's own key in the pools that its commands have joined. A command holds a pool as long as it runs,
 * through the host's daemon. The pool gives the key one message at a time for each hold, and the key leaves the pool
 * with the last one.
 */
import type { PoolId } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'

export interface PoolSeatsPorts {
  /** Joins the pool for `credit` messages at a time. @throws the errors of `Pool.join` */
  join(pool: PoolId, credit: number): Promise<void>
  leave(pool: PoolId): Promise<void>
}

/** How long a pool waits for the hold of a command that has joined it. */
const HELD_WITHIN_MS: Millis = 10_000

export class PoolSeats {
  readonly #ports: PoolSeatsPorts
  readonly #holds = new Map<PoolId, number>()
  /** The pools that a command has joined and will hold. */
  readonly #joined = new Map<PoolId, ReturnType<typeof setTimeout>[]>()
  readonly #ending = Promise.withResolvers<never>()

  constructor(ports: PoolSeatsPorts) {
    this.#ports = ports
    this.#ending.promise.catch(() => undefined) // each hold reports it
  }

  /** Joins the pool, and stays until the command holds it, but at most 10 s. */
  async join(pool: PoolId): Promise<void> {
    await this.#change(pool, 1)
    const timer = setTimeout(() => this.#takeJoined(pool, timer) && void this.#change(pool, -1), HELD_WITHIN_MS)
    timer.unref()
    this.#joined.set(pool, [...(this.#joined.get(pool) ?? []), timer])
  }

  /** Stays in the pool until the signal fires. @throws OperatingError `unreachable` once `end` was called */
  async hold(pool: PoolId, gone: AbortSignal): Promise<void> {
    if (!this.#takeJoined(pool)) await this.#change(pool, 1)
    const left = Promise.withResolvers<void>()
    if (gone.aborted) left.resolve()
    else gone.addEventListener('abort', () => left.resolve(), { once: true })
    await Promise.race([left.promise.then(() => this.#change(pool, -1)), this.#ending.promise])
  }

  end(): void {
    for (const timers of this.#joined.values()) for (const timer of timers) clearTimeout(timer)
    this.#ending.reject(new OperatingError('unreachable', 'The command that has joined the pool for others has ended.'))
  }

  #takeJoined(pool: PoolId, timer = this.#joined.get(pool)?.[0]): boolean {
    const timers = this.#joined.get(pool) ?? []
    if (!timer || !timers.includes(timer)) return false
    clearTimeout(timer)
    this.#joined.set(pool, timers.filter((each) => each !== timer)) // biome-ignore format: one thing
    return true
  }

  async #change(pool: PoolId, by: 1 | -1): Promise<void> {
    const count = (this.#holds.get(pool) ?? 0) + by
    this.#holds.set(pool, count)
    try {
      await (count > 0 ? this.#ports.join(pool, count) : this.#ports.leave(pool))
    } catch (error) {
      if (by < 0) return // the connection has ended, and with it the seat
      this.#holds.set(pool, this.#holds.get(pool)! - 1)
      throw error
    }
  }
}
