/**
 * Keeps the profile's own key in the pools that its commands have joined. A command holds a pool as long as it runs,
 * through the host's daemon. The pool gives the key as many messages at a time as the holds allow, and the key leaves
 * the pool with the last one.
 */
import type { PoolId } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'

/** `credit`: the maximum number of messages at a time. Default: 1. */
export interface PoolHold {
  readonly pool: PoolId
  readonly credit?: number
}

export interface PoolSeatsPorts {
  /** Joins the pool for `credit` messages at a time. @throws the errors of `Pool.join` */
  join(pool: PoolId, credit: number): Promise<void>
  leave(pool: PoolId): Promise<void>
}

interface JoinedPool {
  readonly credit: number
  readonly timer: ReturnType<typeof setTimeout>
}

/** How long a pool waits for the hold of a command that has joined it. */
const HELD_WITHIN_MS: Millis = 10_000

export class PoolSeats {
  readonly #ports: PoolSeatsPorts
  readonly #holds = new Map<PoolId, number>()
  /** The pools that a command has joined and will hold. */
  readonly #joined = new Map<PoolId, JoinedPool[]>()
  readonly #ending = Promise.withResolvers<never>()

  constructor(ports: PoolSeatsPorts) {
    this.#ports = ports
    this.#ending.promise.catch(() => undefined) // each hold reports it
  }

  /** Joins the pool, and stays until the command holds it, but at most 10 s. */
  async join({ pool, credit = 1 }: PoolHold): Promise<void> {
    await this.#change(pool, credit)
    const timer = setTimeout(() => this.#takeJoined(pool, joined) && void this.#change(pool, -credit), HELD_WITHIN_MS)
    timer.unref()
    const joined: JoinedPool = { credit, timer }
    this.#joined.set(pool, [...(this.#joined.get(pool) ?? []), joined])
  }

  /** Stays in the pool until the signal fires. @throws OperatingError `unreachable` once `end` was called */
  async hold({ pool, credit = 1 }: PoolHold, gone: AbortSignal): Promise<void> {
    if (
      !this.#takeJoined(
        pool,
        this.#joined.get(pool)?.find((each) => each.credit === credit),
      )
    )
      await this.#change(pool, credit)
    const left = Promise.withResolvers<void>()
    if (gone.aborted) left.resolve()
    else gone.addEventListener('abort', () => left.resolve(), { once: true })
    await Promise.race([left.promise.then(() => this.#change(pool, -credit)), this.#ending.promise])
  }

  end(): void {
    for (const timers of this.#joined.values()) for (const { timer } of timers) clearTimeout(timer)
    this.#ending.reject(new OperatingError('unreachable', 'The command that has joined the pool for others has ended.'))
  }

  #takeJoined(pool: PoolId, joined: JoinedPool | undefined): boolean {
    const all = this.#joined.get(pool) ?? []
    if (!joined || !all.includes(joined)) return false
    clearTimeout(joined.timer)
    this.#joined.set(pool, all.filter((each) => each !== joined)) // biome-ignore format: one thing
    return true
  }

  async #change(pool: PoolId, by: number): Promise<void> {
    const count = (this.#holds.get(pool) ?? 0) + by
    this.#holds.set(pool, count)
    try {
      await (count > 0 ? this.#ports.join(pool, count) : this.#ports.leave(pool))
    } catch (error) {
      if (by < 0) return // the connection has ended, and with it the seat
      this.#holds.set(pool, this.#holds.get(pool)! - by)
      throw error
    }
  }
}
