/** Joins pools for one session: through the host's daemon, with the profile's own key, which is the member of the pool. */
import { setTimeout as delay } from 'node:timers/promises'
import type { PoolId } from '@sealpost/sdk'
import type { MemberSession } from '@sealpost/sdk/sessions'
import { abortable, type Shell } from '../shell.ts'
import { findPool } from './peer-calls.ts'
import { callPeer } from './peer-session.ts'
import type { PoolHold } from './pool-seats.ts'
import { callSessionDaemon } from './session-daemon.ts'

const HOLD_EVERY_MS = 100

/**
 * Finds pools by name or id. Call before the session is opened, so that an unknown pool leaves no session behind.
 * @throws the errors of `findPool`
 */
export async function findPools(shell: Shell, words: readonly string[]): Promise<readonly PoolId[]> {
  if (words.length === 0) return []
  const pools = await callPeer(shell, { method: 'pools', params: null })
  return words.map((word) => findPool(pools, word).id)
}

export class PoolHolds {
  readonly #shell: Shell
  readonly #session: MemberSession
  readonly #held = new Map<PoolId, AbortController>()

  constructor(shell: Shell, session: MemberSession) {
    this.#shell = shell
    this.#session = session
  }

  /** Joins the pools until the command ends. @throws the errors of `join` */
  async joinAll(pools: readonly PoolId[], credit = 1): Promise<void> {
    for (const pool of pools) await this.join(pool, credit)
  }

  /** Gives this session up to `credit` messages of the pool at a time, until `leave`. @throws the errors of `Pool.join` */
  async join(pool: PoolId, credit = 1): Promise<void> {
    if (this.#held.has(pool)) return
    const held = new AbortController()
    this.#held.set(pool, held)
    this.#session.takePools([...this.#held.keys()])
    try {
      await callPeer(this.#shell, { method: 'joinPool', params: { pool, credit } })
    } catch (error) {
      this.leave(pool)
      throw error
    }
    void this.#hold({ pool, credit }, AbortSignal.any([held.signal, this.#shell.signal]))
  }

  leave(pool: PoolId): void {
    this.#held.get(pool)?.abort()
    this.#held.delete(pool)
    this.#session.takePools([...this.#held.keys()])
  }

  /** Holds the pool at one host after another. */
  async #hold(params: PoolHold, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      // Only the host can hold it: a connection of this command's own would keep every session from being the host.
      const held = callSessionDaemon(this.#shell.profile, 'holdPool', params, signal)
      const code = await held.then(
        () => null,
        (error: Error & { code?: string }) => error.code,
      )
      if (code === 'not_in_pool' || code === 'unknown_pool')
        return this.#shell.output.warn(`receives no more messages of the pool ${params.pool} (${code})`)
      await abortable(delay(HOLD_EVERY_MS, undefined, { ref: false }), signal).catch(() => undefined)
    }
  }
}
