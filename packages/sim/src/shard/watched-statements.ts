/** Runs the memory queue's statements, reports them to the oracle, and marks the states reached. */

import {
  type Append,
  type Claimed,
  type Member,
  type PoolClaimed,
  type PoolWant,
  type ReceiptEvent,
  type RemoteClaimed,
  type RemoteWant,
  readMarking,
  type SessionRef,
  type Want,
} from '@sealpost/protocol'
import type { Batch, QueueOptions, StatementOutcomes, Swept } from '@sealpost/queue'
import { MemoryPools, MemoryShard, type StoredDelivery } from '@sealpost/queue/memory'
import type { DeliveryId, MeshId, Millis, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import type { Surroundings } from '../surroundings.ts'

export class WatchedStatements extends MemoryShard {
  override readonly pools: WatchedPools
  private readonly world: Surroundings

  constructor(world: Surroundings, shard: ShardId, options: QueueOptions) {
    super(world.store, shard, options)
    this.world = world
    this.pools = new WatchedPools(world, shard, options)
  }

  override commitAtOnce(batch: Batch): StatementOutcomes {
    const { oracle } = this.world
    for (const ref of batch.settles) {
      const row = this.store.findDelivery(ref)
      if (ref.holder !== undefined && row?.lease?.holder !== ref.holder) continue
      if (row && receiptEventOf(row) === null) oracle.removed(row.meshId, this.keyOf(row.meshId, row.sender), row)
    }
    const committed = super.commitAtOnce(batch)
    this.watchStored(batch.appends, committed)
    committed.outcomes.forEach((outcome, i) => {
      const { insertLeaseEpoch, insertLeaseFloor } = batch.appends[i]!
      if (insertLeaseEpoch === 0) return
      if (insertLeaseFloor > 0) oracle.mark('insert lease: looked from a floor')
      const isGiven = outcome.status === 'stored' && outcome.isLeased
      oracle.mark(isGiven ? 'insert lease: given' : 'insert lease: refused')
    })
    return committed
  }

  override commitChecked(appends: readonly Append[]): StatementOutcomes {
    const committed = super.commitChecked(appends)
    this.watchStored(appends, committed)
    for (const { status } of committed.outcomes) this.world.oracle.mark(`checked commit: ${status}`)
    return committed
  }

  override claim(wants: readonly Want[], asOf = this.store.version): Claimed[] {
    const locked = wants.filter(() => this.world.chance('locked')).map((want) => want.session)
    for (const { meshId, peer } of locked) this.store.lock(meshId, peer)
    const before = wants.map(({ session }) => this.leasesOf(session))
    if (wants.some((want) => want.ids.from > 0)) this.world.oracle.mark('claim: of known ids')
    const answers = super.claim(wants, asOf)
    for (const { meshId, peer } of locked) this.store.unlock(meshId, peer)
    for (const [i, claimed] of answers.entries()) this.watch(wants[i]!, claimed, before[i]!)
    return answers
  }

  override collect(wants: readonly RemoteWant[]): RemoteClaimed[] {
    const answers = super.collect(wants)
    for (const answer of answers) {
      const isBarred = answer.status === 'collected' && answer.hasMore
      this.world.oracle.mark(`collect: ${isBarred ? 'more waits' : answer.status}`)
    }
    return answers
  }

  override findMembers(meshId: MeshId, peers: readonly PeerKey[]): Member[] {
    const { consents } = this.world
    return super.findMembers(meshId, peers).map((member) => ({ ...member, consent: consents.of(meshId, member.peer) }))
  }

  override sweep(): Swept {
    const { store, world } = this
    const before = new Map([...store.deliveries()].map((row) => [row.id, row]))
    const known = store.deadLetters.length
    const swept = super.sweep()
    for (const letter of store.deadLetters.slice(known)) {
      const row = before.get(letter.id)!
      const isDue = letter.reason === 'expired' ? row.expiresAtMs <= store.nowMs : this.hasItsFailedAttempts(row)
      world.oracle.died({ ...letter, sender: this.keyOf(letter.meshId, letter.sender) }, isDue)
    }
    const left = new Set(store.deliveries())
    for (const row of before.values()) {
      if (left.has(row)) continue
      const event = receiptEventOf(row)
      if (event === null) world.oracle.swept(row.meshId, this.keyOf(row.meshId, row.sender), row)
      else {
        const { meshId, envelopeId } = row
        const receipt = { meshId, to: this.keyOf(meshId, row.recipient), envelopeId, event }
        world.oracle.receiptDied(receipt, this.hasItsFailedAttempts(row))
      }
    }
    return swept
  }

  private hasItsFailedAttempts({ failedAttempts }: StoredDelivery): boolean {
    return failedAttempts >= this.options.failedAttemptsMax
  }

  override open(session: SessionRef): number | null {
    const former = this.store.find(session.meshId, session.peer)!.session.shard
    const epoch = super.open(session)
    if (epoch !== null && this.world.revocations.isOut(session.meshId, session.peer)) this.world.oracle.letIn()
    if (epoch === null) this.world.oracle.mark('open: overtaken')
    else if (former !== null && former !== this.shard) this.world.oracle.mark('takeover')
    return epoch
  }

  private watchStored(appends: readonly Append[], { outcomes: decisions }: StatementOutcomes): void {
    const { revocations, oracle } = this.world
    for (const [i, { meshId, sender, recipient }] of appends.entries())
      if (decisions[i]!.status === 'stored' && [sender, recipient].some((peer) => revocations.isOut(meshId, peer)))
        oracle.tookFromLeaver()
  }

  private watch(want: Want, claimed: Claimed, before: Leases): void {
    const { oracle } = this.world
    if (claimed.status !== 'claimed') return oracle.mark(`claim: ${claimed.status}`)
    if (claimed.hasMore && claimed.deliveries.length < want.limit) oracle.mark('claim: short of what it picked')
    for (const { id } of claimed.deliveries) {
      const lease = before.get(id)
      if (!lease) continue
      oracle.claimedAgain(lease.row, this.causeOf(want.session, lease))
    }
  }

  /** Returns why an earlier lease is void (P7); null if it is valid. */
  private causeOf(session: SessionRef, { epoch, untilMs }: LeaseFacts): string | null {
    if (epoch !== null && epoch < session.epoch) return 'another epoch'
    if (untilMs > this.store.nowMs) return null
    return epoch === null ? 'put off' : 'lapsed'
  }

  private leasesOf({ meshId, peer }: SessionRef): Leases {
    const rows = this.store.find(meshId, peer)?.deliveries ?? []
    return new Map(
      rows.flatMap((row) => (row.lease && row.attempts > 0 ? [[row.id, { row, ...row.lease }] as const] : [])),
    )
  }

  private keyOf(meshId: MeshId, peer: PeerNo) {
    return this.store.find(meshId, peer)!.binding.peer
  }
}

interface LeaseFacts {
  readonly row: StoredDelivery
  readonly epoch: number | null
  readonly untilMs: number
}
type Leases = ReadonlyMap<number, LeaseFacts>

/** Returns the requested receipt, if any. */
function receiptEventOf({ terms }: StoredDelivery): ReceiptEvent | null {
  const marking = terms && readMarking(terms)
  return marking?.kind === 'receipt' ? marking.event : null
}

type PoolLeases = ReadonlyMap<
  number,
  { readonly row: StoredDelivery; readonly lease: NonNullable<StoredDelivery['lease']> }
>

class WatchedPools extends MemoryPools {
  private readonly world: Surroundings

  constructor(world: Surroundings, shard: ShardId, options: QueueOptions) {
    super(world.store, shard, options)
    this.world = world
  }

  override claim(wants: readonly PoolWant[]): PoolClaimed[] {
    return wants.map((want) => {
      if (this.world.chance('locked')) return { status: 'locked' }
      const before = this.leasesOf(want)
      const [claimed] = super.claim([want]) as [PoolClaimed]
      if (claimed.status === 'claimed') for (const { delivery } of claimed.dealt) this.watch(before.get(delivery.id))
      return claimed
    })
  }

  private watch(known: ReturnType<PoolLeases['get']>): void {
    if (known) this.world.oracle.dealtAgain(known.row, this.causeOf(known.row, known.lease))
  }

  private causeOf({ meshId }: StoredDelivery, { epoch, holder, untilMs }: NonNullable<StoredDelivery['lease']>) {
    const { store } = this.world
    if (untilMs <= store.nowMs) return holder === undefined ? 'put off' : 'lapsed'
    const session = holder === undefined ? undefined : store.find(meshId, holder)!.session
    return session && session.openedEpoch !== epoch ? 'another session of its holder' : null
  }

  private leasesOf({ meshId, pool }: PoolWant): PoolLeases {
    const rows = this.world.store.find(meshId, pool)!.deliveries
    return new Map(rows.flatMap((row) => (row.lease ? [[row.id, { row, lease: row.lease }] as const] : [])))
  }
}

const LEAVES_WITHIN_STATEMENTS = 3
const LEAVES_WITHIN_MS: Millis = 100

interface EndedSession {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  /** The epoch with which the session opened. */
  readonly epoch: number
}

/**
 * Checks that the pool leases of a member that leaves end with its session, not by expiry. Call once its shard has
 * noticed. Checks nothing after a crash or a lost statement, whose deliveries stay leased.
 */
export function watchLeaver(world: Surroundings, session: EndedSession, isShardOver: () => boolean): void {
  const { clock, oracle, overlaps, path, plan } = world
  if (isShardOver()) return
  const held = heldBy(world, session)
  if (held.size === 0) return
  oracle.mark('pool: a holder left')
  const leftAtMs = clock.nowMs
  clock.after(LEAVES_WITHIN_STATEMENTS * plan.databaseMs + LEAVES_WITHIN_MS, () => {
    if (isShardOver() || path.lostAtMs > -Infinity || overlaps.mayLackSince(leftAtMs)) return
    for (const [row, lease] of heldBy(world, session)) if (held.get(row) === lease) oracle.keptByLeaver(row)
  })
}

/** Returns the lease objects, because the member may get other leases later. */
function heldBy({ store, clock }: Surroundings, { meshId, peerKey, epoch }: EndedSession) {
  const holder = store.findByKey(meshId, peerKey)!.peer
  const isHeld = ({ lease }: StoredDelivery) => lease?.holder === holder && lease.epoch === epoch
  const rows = [...store.deliveries()].filter((row) => row.meshId === meshId && isHeld(row))
  return new Map(rows.filter(({ lease }) => lease!.untilMs > clock.nowMs).map((row) => [row, row.lease]))
}

interface UntouchedDeliveries extends EndedSession {
  readonly ids: ReadonlySet<DeliveryId>
}

/**
 * Checks that the attempts of the deliveries that a client has not touched don't count, also if its next session on the
 * same shard has claimed them. Call before the shard notices that the client has closed its connection normally. Checks
 * nothing after a crash, a lost statement or a clock jump.
 */
export function watchUntouched(
  world: Surroundings,
  { meshId, peerKey, epoch, ids }: UntouchedDeliveries,
  isShardOver: () => boolean,
): void {
  const { clock, oracle, overlaps, path, plan, store } = world
  const { session, deliveries } = store.findByKey(meshId, peerKey)!
  const { shard, openedEpoch } = session
  const isHeld = ({ id, lease }: StoredDelivery) => ids.has(id) && lease?.epoch === session.epoch
  const before = deliveries.filter(isHeld).map((row) => ({ row, lease: row.lease, attempts: row.attempts }))
  if (before.length === 0 || openedEpoch !== epoch || isShardOver()) return
  oracle.mark('closed normally with untouched deliveries')
  const closedAtMs = clock.nowMs
  const offsetMs = store.nowMs - closedAtMs
  clock.after(LEAVES_WITHIN_STATEMENTS * plan.databaseMs + LEAVES_WITHIN_MS, () => {
    const isUnsure = path.lostAtMs > -Infinity || overlaps.mayLackSince(closedAtMs)
    if (isShardOver() || isUnsure || store.nowMs - clock.nowMs !== offsetMs) return
    const isNextHere = session.shard === shard && session.epoch === epoch + 2
    for (const { row, lease, attempts } of before.filter(({ row }) => store.findDelivery(row) === row)) {
      const isFree = row.lease === null
      const isClaimed = isNextHere && row.lease?.epoch === session.epoch
      if (row.lease === lease || (isFree && row.attempts >= Math.max(attempts, 1))) oracle.countedUntouched(row)
      if (isClaimed && row.attempts > Math.max(attempts, 1)) oracle.countedUntouched(row)
    }
  })
}
