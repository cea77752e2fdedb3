/**
 * Takes jobs from pools, one at a time. The session is in a pool only while the agent waits for a job or works on one.
 * Otherwise, the broker would give it a job that nobody works on.
 */
import type { Message, PoolId } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'
import type { McpInbox, UnsettledMessage } from './mail.ts'

/** Longer than a settle waits in the SDK, because leaving a pool returns its unsettled messages. */
const LEAVE_AFTER_MS = 1_000

/** A pool that this session can join. */
export interface JobPool {
  readonly id: PoolId
  join(): Promise<void>
  leave(): void
}

export class JobTaker {
  readonly #mail: McpInbox
  readonly #joined = new Map<PoolId, JobPool>()
  readonly #waiting = new Map<PoolId, number>()

  constructor(mail: McpInbox) {
    this.#mail = mail
  }

  /** Returns whether the message is no job, or a job of a pool that this session is in. */
  isWanted({ pool }: Message): boolean {
    return pool === null || this.#joined.has(pool.id)
  }

  /** Returns a job of the pool, or null if none came in time. @throws the errors of `Pool.join` */
  async take(pool: JobPool, withinMs: Millis, signal: AbortSignal): Promise<UnsettledMessage | null> {
    const isJob = jobOf(pool.id)
    this.#waiting.set(pool.id, (this.#waiting.get(pool.id) ?? 0) + 1)
    try {
      await this.#join(pool)
      await this.#mail.whenUnread(withinMs, signal, isJob)
    } finally {
      this.#waiting.set(pool.id, this.#waiting.get(pool.id)! - 1)
    }
    const job = signal.aborted ? undefined : this.#mail.unread.find(isJob)
    if (!job) {
      this.#leave(pool)
      return null
    }
    this.#mail.markRead([job])
    void this.#mail.whenClosed(job).then(() => this.#leaveLater(pool))
    return job
  }

  async #join(pool: JobPool): Promise<void> {
    if (this.#joined.has(pool.id)) return
    this.#joined.set(pool.id, pool)
    try {
      await pool.join()
    } catch (error) {
      this.#joined.delete(pool.id)
      throw error
    }
  }

  #leaveLater(pool: JobPool): void {
    setTimeout(() => this.#leave(pool), LEAVE_AFTER_MS).unref()
  }

  /** Leaves the pool unless the agent waits for a job or has one. */
  #leave(pool: JobPool): void {
    if (this.#waiting.get(pool.id)! > 0 || !this.#joined.has(pool.id)) return
    const jobs = this.#mail.all.filter(jobOf(pool.id))
    if (jobs.some(({ timesRead }) => timesRead > 0)) return
    this.#joined.delete(pool.id)
    pool.leave()
    this.#mail.retry(
      jobs.map(({ messageId }) => messageId),
      0,
    )
  }
}

const jobOf =
  (id: PoolId) =>
  ({ message }: UnsettledMessage): boolean =>
    message.pool?.id === id
