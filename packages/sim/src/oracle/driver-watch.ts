/**
 * Checks the driver's duties to its engine, and the engine's duties to recipients. Every request must reach the queue
 * once and in time, commits must back off while they fail, and nothing may be pushed under a voided lease.
 */
import type { Append, Claimed, Committed, DeliveryRef, RemoteClaimed, SessionRef, Settle } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import type { DeliveryId, MeshId, Millis, PeerNo } from '@sealpost/std'
import type { VirtualClock } from '../clock.ts'
import { must } from './oracle.ts'

const SETTLE_WITHIN_MS: Millis = 20
const BACK_OFF_MIN_MS: Millis = 50
const BACK_OFF_MAX_MS: Millis = 1_000
const OPEN_WAITS_MAX_MS: Millis = 2_000
const SHUTDOWN_MAX_MS: Millis = 6_000
/** The tolerance for rounding and for the millisecond that the driver adds to a pause. */
const SLACK_MS: Millis = 2

interface Named {
  readonly delivery: DeliveryRef
}

type Item = Append | Settle | Named
type Kind = 'append' | 'settle' | 'retry' | 'reject' | 'extension' | 'release'

interface Owed {
  readonly kind: Kind
  readonly acceptedAtMs: Millis
  /** When the item's statement must begin, unless another is in flight. */
  readonly dueAtMs: Millis
}

/** The items of one kind of statement, which wait while one is in flight. */
class Line {
  private readonly clock: VirtualClock
  private readonly isOver: () => boolean
  private readonly waiting = new Map<Item, Owed>()
  private readonly inFlight = new Map<Item, Owed>()
  /** When the next statement may begin; with items waiting, it must begin exactly then. */
  private nextAtMs: Millis = -Infinity

  constructor(clock: VirtualClock, isOver: () => boolean) {
    this.clock = clock
    this.isOver = isOver
  }

  get isIdle(): boolean {
    return this.waiting.size === 0 && this.inFlight.size === 0
  }

  accept(kind: Kind, items: readonly Item[], withinMs: Millis = 0): void {
    const acceptedAtMs = this.clock.nowMs
    for (const item of items) this.waiting.set(item, { kind, acceptedAtMs, dueAtMs: acceptedAtMs + withinMs })
    this.checkAt(acceptedAtMs + withinMs)
  }

  begin(items: readonly Item[]): void {
    const { nowMs } = this.clock
    must(
      nowMs >= this.nextAtMs,
      'driver',
      () => `a commit begins ${this.nextAtMs - nowMs} ms too early after a failed one`,
    )
    for (const item of items) {
      const owed = this.waiting.get(item)
      must(owed, 'driver', () => 'a statement contains what was not asked for, or was refused')
      this.waiting.delete(item)
      this.inFlight.set(item, owed!)
    }
  }

  /** Ends the items' statement. `pauseMs`: the exact pause before the next one. */
  end(items: readonly Item[], pauseMs: Millis = 0): void {
    for (const item of items) this.inFlight.delete(item)
    this.nextAtMs = this.clock.nowMs + pauseMs
    if (this.waiting.size > 0) this.checkAt(this.nextAtMs)
  }

  /** Removes waiting items, which must not reach the queue. */
  refuse(kind: Kind): void {
    for (const [item, owed] of this.waiting) if (owed.kind === kind) this.waiting.delete(item)
  }

  /** Ends the items' failed statement, which the next one will repeat. */
  repeat(items: readonly Item[], pauseMs: Millis): void {
    for (const item of items) this.waiting.set(item, this.inFlight.get(item)!)
    this.end(items, pauseMs)
  }

  owes(isOf: (item: Item) => boolean, beforeMs: Millis): boolean {
    const all = [...this.waiting, ...this.inFlight]
    return all.some(([item, { acceptedAtMs }]) => acceptedAtMs < beforeMs && isOf(item))
  }

  private checkAt(dueAtMs: Millis): void {
    this.clock.at(dueAtMs + SLACK_MS, () => {
      if (!this.isOver() && this.inFlight.size === 0) this.check()
    })
  }

  private check(): void {
    const { nowMs } = this.clock
    const lateAtMs = (owed: Owed) => Math.max(owed.dueAtMs, this.nextAtMs) + SLACK_MS
    for (const owed of this.waiting.values())
      must(nowMs <= lateAtMs(owed), 'driver', () => `${withArticle(owed.kind)} waits for no statement`)
  }
}

export class DriverWatch {
  private readonly clock: VirtualClock
  private readonly commits: Line
  private readonly lines: Readonly<Record<'retry' | 'reject' | 'extension' | 'release', Line>>
  private isCommitting = false
  private failures = 0
  private readonly openedAtMs = new Map<SessionRef, Millis>()
  private readonly leases = new Map<string, number>()
  private readonly returnedAtMs = new Map<DeliveryId, Millis>()
  private readonly voided = new Map<string, number>()

  constructor(clock: VirtualClock, isOver: () => boolean) {
    this.clock = clock
    const line = () => new Line(clock, isOver)
    this.commits = line()
    this.lines = { retry: line(), reject: line(), extension: line(), release: line() }
  }

  append(append: Append): void {
    this.commits.accept('append', [append])
  }

  settle(settle: Settle): void {
    this.commits.accept('settle', [settle], SETTLE_WITHIN_MS)
  }

  asked(kind: keyof DriverWatch['lines'], items: readonly Named[]): void {
    this.lines[kind].accept(kind, items)
  }

  /** Watches a statement other than a commit. */
  async during<T>(kind: keyof DriverWatch['lines'], items: readonly Named[], statement: () => Promise<T>): Promise<T> {
    this.lines[kind].begin(items)
    for (const { delivery } of items) this.returnedAtMs.delete(delivery.id)
    try {
      const result = await statement()
      if (kind === 'retry') for (const { delivery } of items) this.returnedAtMs.set(delivery.id, this.clock.nowMs)
      return result
    } finally {
      this.lines[kind].end(items)
    }
  }

  commitBegins({ appends, settles }: Batch): void {
    must(!this.isCommitting, 'driver', () => 'two commits are in flight')
    this.isCommitting = true
    this.commits.begin([...appends, ...settles])
  }

  committed({ appends, settles }: Batch, { outcomes }: Committed): void {
    this.isCommitting = false
    this.failures = 0
    this.commits.end([...appends, ...settles])
    for (const [i, { meshId, recipient: peer, insertLeaseEpoch: epoch }] of appends.entries()) {
      const outcome = outcomes[i]!
      if (epoch > 0 && outcome.status === 'stored' && outcome.isLeased)
        this.leased({ meshId, peer, epoch }, { id: outcome.id, attempt: 1 })
    }
  }

  /** Refuses waiting appends with the batch, because storing them would reverse the order. */
  commitFailed({ appends, settles }: Batch): void {
    const pauseMs = Math.min(BACK_OFF_MAX_MS, BACK_OFF_MIN_MS * 2 ** this.failures)
    this.isCommitting = false
    this.failures += 1
    this.commits.end(appends)
    this.commits.refuse('append')
    this.commits.repeat(settles, pauseMs)
  }

  /** Returns whether this shard committed a retry since then, and so wakes the recipient after the pause. */
  hasReturned(id: DeliveryId, sinceMs: Millis): boolean {
    return (this.returnedAtMs.get(id) ?? -Infinity) >= sinceMs
  }

  opens(session: SessionRef): void {
    this.openedAtMs.set(session, this.clock.nowMs)
  }

  /** Checks that a session opens after the previous one's statements, unless they took too long. */
  openBegins(session: SessionRef): void {
    const sinceMs = this.openedAtMs.get(session) ?? -Infinity
    this.openedAtMs.delete(session)
    if (this.clock.nowMs - sinceMs >= OPEN_WAITS_MAX_MS) return
    const { meshId, peer } = session
    const isOf = (item: Item) => {
      const { meshId: mesh, recipient, holder } = 'delivery' in item ? item.delivery : (item as Settle)
      return !('envelope' in item) && mesh === meshId && (holder ?? recipient) === peer
    }
    for (const line of [this.commits, ...Object.values(this.lines)])
      must(
        !line.owes(isOf, sinceMs),
        'driver',
        () => `a session opens before the statements of the one before are done`,
      )
  }

  shutDown(tookMs: Millis): void {
    must(this.commits.isIdle || tookMs >= SHUTDOWN_MAX_MS, 'driver', () => 'a shutdown drops accepted work')
  }

  claimed(session: SessionRef, claimed: Claimed | RemoteClaimed): void {
    for (const delivery of 'deliveries' in claimed ? claimed.deliveries : []) this.leased(session, delivery)
  }

  fenceBegins(session: SessionRef): void {
    this.voided.set(nameOf(session), session.epoch)
  }

  pushed(recipient: { meshId: MeshId; peer: PeerNo }, delivery: { id: DeliveryId; attempt: number }): void {
    const name = nameOf(recipient)
    const epoch = this.leases.get(`${name} ${delivery.id} ${delivery.attempt}`)
    must(epoch !== undefined, 'P7', () => `delivery ${delivery.id} is pushed without a lease`)
    must(epoch! > (this.voided.get(name) ?? -1), 'P7', () => `delivery ${delivery.id} is pushed under a void lease`)
  }

  private leased(session: SessionRef, { id, attempt }: { id: DeliveryId; attempt: number }): void {
    this.leases.set(`${nameOf(session)} ${id} ${attempt}`, session.epoch)
  }
}

const nameOf = ({ meshId, peer }: { meshId: MeshId; peer: PeerNo }): string => `${meshId}/${peer}`
const withArticle = (kind: Kind): string => (kind === 'append' || kind === 'extension' ? `an ${kind}` : `a ${kind}`)
