/**
 * Ends deliveries for recipients: settles join the group commit; retries, rejects and extensions have their own batched
 * statements. A peer that settles, leaves and reconnects immediately must not receive the same mail again. Each peer
 * waits only for its own statements, because another peer's may fail or hang.
 */
import type { DeliveryRef, Extension, Reject, Retry, SessionRef, Settle } from '@sealpost/protocol'
import { Batcher, type Queue, type RecipientRef } from '@sealpost/queue'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import type { BackgroundTimers, Failures } from './background.ts'
import type { CommitLoop } from './commit-loop.ts'
import type { Clock } from './ports.ts'

/**
 * A new session and a pong wait at most this long for the peer's earlier settles; beyond it, the peer may receive
 * deliveries again. A client that waits for a pong switches to another broker after 4.75 s.
 */
const WAIT_MAX_MS: Millis = 2_000
const RETRIES_MAX = 1000
/**
 * With envelopes of the maximum size, this is 2 MiB. A dead letter is a second copy of its envelope, and every later
 * commit waits until it is synced in the write-ahead log.
 */
const REJECTS_MAX = 16
/** A delivery with a longer pause is found by the poll. */
const RETRY_WAKE_MAX_MS: Millis = 60_000

export interface EndPorts {
  readonly clock: Pick<Clock, 'after'>
  readonly timers: BackgroundTimers
  readonly queue: Pick<Queue, 'retry' | 'reject' | 'extend'>
  readonly commits: Pick<CommitLoop, 'settled' | 'hasSettlesOf'>
  readonly failures: Failures
  /** Called once these rejects are committed. Their senders asked for receipts. */
  receiptsCommitted(receipts: readonly Settle[]): void
  /** Called when a delivery that this recipient retried is ready again. */
  retryDue(recipient: RecipientRef): void
}

export class DeliveryEnds {
  readonly #ports: EndPorts
  readonly #retries = new Batcher((retries: readonly Retry[]) => this.#flushRetries(retries), { max: RETRIES_MAX })
  readonly #rejects = new Batcher((rejects: readonly Reject[]) => this.#flushRejects(rejects), { max: REJECTS_MAX })
  readonly #extensions = new Batcher((them: readonly Extension[]) => this.#flushExtensions(them), { max: RETRIES_MAX })
  /**
   * Items in an unfinished statement, by the peer that holds them. Each promise resolves with whether the statement
   * succeeded.
   */
  readonly #underWay = new Map<string, Set<Promise<boolean>>>()

  constructor(ports: EndPorts) {
    this.#ports = ports
  }

  retry(retries: readonly Retry[]): void {
    for (const retry of retries) this.#track(retry, this.#retries.add(retry))
  }

  reject(rejects: readonly Reject[], withReceipt: readonly Settle[]): void {
    const ended = rejects.map((reject) => {
      const rejected = this.#rejects.add(reject)
      this.#track(reject, rejected)
      return rejected
    })
    const last = ended.at(-1)
    if (!last || withReceipt.length === 0) return
    this.#ports.failures.start(
      last.then(
        () => this.#ports.receiptsCommitted(withReceipt),
        () => undefined, // the deliveries are pushed again
      ),
    )
  }

  extend(extensions: readonly Extension[]): void {
    for (const extension of extensions) this.#track(extension, this.#extensions.add(extension))
  }

  /** Opens a session once the settles, retries and rejects of the peer's former session are committed. */
  async before<T>(session: SessionRef, open: () => Promise<T>): Promise<T> {
    await this.committed(session, WAIT_MAX_MS)
    return open()
  }

  /** Calls `now` immediately if nothing of this peer is pending, otherwise `later` once everything is committed. */
  whenCommitted(peer: RecipientRef, now: () => void, later: () => void): void {
    if (this.#isPending(peer)) this.#ports.failures.start(this.committed(peer, WAIT_MAX_MS).then(later))
    else now()
  }

  /**
   * Resolves with whether everything that the peer ended so far is committed; after `withinMs`, resolves with `false`.
   */
  async committed(peer: RecipientRef, withinMs: Millis): Promise<boolean> {
    if (!this.#isPending(peer)) return true
    return new Promise((resolve) => {
      const cancel = this.#ports.clock.after(withinMs, () => resolve(false))
      void Promise.all([this.#ports.commits.settled(), ...this.#underWayOf(peer)]).then(([, ...areDone]) => {
        cancel()
        resolve(areDone.every(Boolean))
      })
    })
  }

  #isPending(peer: RecipientRef): boolean {
    return this.#underWayOf(peer).size > 0 || this.#ports.commits.hasSettlesOf(peer)
  }

  #underWayOf({ meshId, peer }: RecipientRef): ReadonlySet<Promise<boolean>> {
    return this.#underWay.get(nameOf(meshId, peer)) ?? NOTHING
  }

  #track({ delivery }: { readonly delivery: DeliveryRef }, ended: Promise<unknown>): void {
    const name = nameOfHolder(delivery)
    const underWay = ended.then(
      () => true,
      () => false,
    )
    const all = this.#underWay.get(name) ?? new Set()
    this.#underWay.set(name, all.add(underWay))
    void underWay.then(() => {
      all.delete(underWay)
      if (all.size === 0 && this.#underWay.get(name) === all) this.#underWay.delete(name)
    })
  }

  /**
   * Wakes recipients only after the statement, because they would find nothing before. If the statement fails, the
   * leases lapse.
   */
  async #flushRetries(retries: readonly Retry[]): Promise<undefined[]> {
    await this.#report('retry.failed', this.#ports.queue.retry(retries))
    for (const { delivery, afterMs } of retries) {
      const recipient = { meshId: delivery.meshId, peer: delivery.recipient }
      if (afterMs <= RETRY_WAKE_MAX_MS) this.#ports.timers.after(afterMs, () => this.#ports.retryDue(recipient))
    }
    return retries.map(() => undefined)
  }

  async #flushRejects(rejects: readonly Reject[]): Promise<undefined[]> {
    await this.#report('reject.failed', this.#ports.queue.reject(rejects))
    return rejects.map(() => undefined)
  }

  /** Resolves even after a failure, because no peer waits for it; the lease then lapses. */
  async #flushExtensions(extensions: readonly Extension[]): Promise<undefined[]> {
    await this.#report('extend.failed', this.#ports.queue.extend(extensions)).catch(() => undefined)
    return extensions.map(() => undefined)
  }

  #report(event: string, statement: Promise<void>): Promise<void> {
    return statement.catch((error) => {
      this.#ports.failures.report(event, error)
      throw error
    })
  }
}

const NOTHING: ReadonlySet<Promise<boolean>> = new Set()
const nameOf = (meshId: MeshId, peer: PeerNo): string => `${meshId}/${peer}`
/** Returns the holder's name, a key of `#underWay`. A pool's delivery counts for the member that holds it. */
const nameOfHolder = ({ meshId, recipient, holder }: DeliveryRef): string => nameOf(meshId, holder ?? recipient)
