/**
 * Ends deliveries for recipients: settles join the group commit; retries, rejects, extensions and releases have their
 * own batched statements. A peer that reconnects waits for its own earlier statements, so that it does not receive the same mail
 * again.
 */
import type { DeliveryRef, Extension, Reject, Release, Retry, SessionRef, Settle } from '@sealpost/protocol'
import { Batcher, type Queue, type RecipientRef } from '@sealpost/queue'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import type { BackgroundTimers, Failures } from './background.ts'
import type { CommitLoop } from './commit-loop.ts'
import type { Clock } from './ports.ts'

/**
 * How long a new session or a pong waits for earlier settles, after which the peer may receive deliveries again. A
 * client that waits for a pong switches brokers after 4.75 s.
 */
const WAIT_MAX_MS: Millis = 2_000
const RETRIES_MAX = 1000
/**
 * The maximum number of rejects in a statement, at most 2 MiB. A dead letter copies its envelope, and later commits
 * wait until it is synced.
 */
const REJECTS_MAX = 16
/** The longest pause after which the recipient is woken. After longer ones, the poll finds the delivery. */
const RETRY_WAKE_MAX_MS: Millis = 60_000

export interface EndPorts {
  readonly clock: Pick<Clock, 'after'>
  readonly timers: BackgroundTimers
  readonly queue: Pick<Queue, 'retry' | 'reject' | 'extend' | 'release'>
  readonly commits: Pick<CommitLoop, 'settled' | 'hasSettlesOf'>
  readonly failures: Failures
  /** Called once these rejects, whose senders requested receipts, are committed. */
  receiptsCommitted(receipts: readonly Settle[]): void
  /** Called once these deliveries are back in their queues. */
  released(releases: readonly Release[]): void
  /** Called when a retried delivery is ready. */
  retryDue(recipient: RecipientRef): void
}

export class DeliveryEnds {
  readonly #ports: EndPorts
  readonly #retries = new Batcher((retries: readonly Retry[]) => this.#flushRetries(retries), { max: RETRIES_MAX })
  readonly #rejects = new Batcher((rejects: readonly Reject[]) => this.#flushRejects(rejects), { max: REJECTS_MAX })
  readonly #extensions = new Batcher((them: readonly Extension[]) => this.#flushExtensions(them), { max: RETRIES_MAX })
  readonly #releases = new Batcher((releases: readonly Release[]) => this.#flushReleases(releases), {
    max: RETRIES_MAX,
  })
  /** Unfinished statements by peer. Each promise resolves with whether the statement succeeded. */
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
        () => undefined, // a failed statement leaves the deliveries to be pushed again
      ),
    )
  }

  extend(extensions: readonly Extension[]): void {
    for (const extension of extensions) this.#track(extension, this.#extensions.add(extension))
  }

  release(releases: readonly Release[]): void {
    for (const release of releases) this.#track(release, this.#releases.add(release))
  }

  /** Opens a session once the peer's earlier settles, retries, rejects and releases are committed. */
  async before<T>(session: SessionRef, open: () => Promise<T>): Promise<T> {
    await this.committed(session, WAIT_MAX_MS)
    return open()
  }

  /** Calls `now` immediately if nothing of this peer is pending; otherwise, calls `later` afterwards. */
  whenCommitted(peer: RecipientRef, now: () => void, later: () => void): void {
    if (this.#isPending(peer)) this.#ports.failures.start(this.committed(peer, WAIT_MAX_MS).then(later))
    else now()
  }

  /** Resolves with whether everything that the peer ended is committed; with false after `withinMs`. */
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
   * Queues the retries, then schedules the wakes: a recipient woken earlier would find nothing. If the statement fails,
   * the leases expire.
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

  /** Resolves even after a failure, which lets the lease lapse. No peer waits for it. */
  async #flushExtensions(extensions: readonly Extension[]): Promise<undefined[]> {
    await this.#report('extend.failed', this.#ports.queue.extend(extensions)).catch(() => undefined)
    return extensions.map(() => undefined)
  }

  async #flushReleases(releases: readonly Release[]): Promise<undefined[]> {
    await this.#report('release.failed', this.#ports.queue.release(releases))
    this.#ports.released(releases)
    return releases.map(() => undefined)
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
/** Returns the holder's key in `#underWay`: for a pool's delivery, the member. */
const nameOfHolder = ({ meshId, recipient, holder }: DeliveryRef): string => nameOf(meshId, holder ?? recipient)
