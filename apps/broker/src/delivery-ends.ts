/**
 * When what recipients said of their deliveries is committed: settles by the group commit, everything else by statements
 * of its own. A peer that settles, leaves and comes back at once must not be given the same mail again.
 */
import type { SessionRef } from '@sealpost/protocol'
import type { Writer } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

/**
 * A session, and a pong, waits so long for what the peer settled before. Later, the peer may be given some of it again. A
 * client that waits for a pong leaves its broker after 4.75 s.
 */
const WITHIN_MS = 2_000

export class DeliveryEnds {
  readonly #writer: Pick<Writer, 'whenSettled' | 'hasSettlesOf'>
  readonly #flushSoon: () => void
  /** Statements under way; each resolves with whether it was done. */
  readonly #underWay = new Set<Promise<boolean>>()

  constructor(writer: Pick<Writer, 'whenSettled' | 'hasSettlesOf'>, flushSoon: () => void) {
    this.#writer = writer
    this.#flushSoon = flushSoon
  }

  /** `asked`: rejects, or resolves with `false`, when it was not done. */
  track(asked: Promise<unknown>): void {
    const underWay = asked.then(
      (isDone) => isDone !== false,
      () => false,
    )
    this.#underWay.add(underWay)
    void underWay.finally(() => this.#underWay.delete(underWay))
  }

  /** Opens a session of a peer when what it said in the one before is committed. */
  async before<T>(session: SessionRef, open: () => Promise<T>): Promise<T> {
    if (this.#isPending(session)) await this.committed(WITHIN_MS)
    return open()
  }

  /** Calls `now` at once if nothing of this peer is pending, otherwise `later` when it is committed. */
  whenCommitted(session: SessionRef, now: () => void, later: () => void): void {
    if (this.#isPending(session)) void this.committed(WITHIN_MS).then(later)
    else now()
  }

  #isPending(session: SessionRef): boolean {
    return this.#underWay.size > 0 || this.#writer.hasSettlesOf(session)
  }

  /** Resolves with whether all that was said until now is committed; with `false` after `withinMs` at the latest. */
  committed(withinMs: Millis): Promise<boolean> {
    return new Promise((resolve) => {
      const late = setTimeout(() => resolve(false), withinMs)
      const settled = new Promise<void>((done) => this.#writer.whenSettled(done))
      this.#flushSoon()
      void Promise.all([settled, ...this.#underWay]).then(([, ...areDone]) => {
        clearTimeout(late)
        resolve(areDone.every(Boolean))
      })
    })
  }
}
