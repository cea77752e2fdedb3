/** The memory queue's statements, observed by the oracle, with the marks of a run. */
import {
  type Append,
  type Claimed,
  type Member,
  type RemoteClaimed,
  type RemoteWant,
  readMarking,
  type SessionRef,
  type Want,
} from '@sealpost/protocol'
import type { Batch, QueueOptions, StatementOutcomes, Swept } from '@sealpost/queue'
import { type MemoryPools, MemoryShard, type StoredDelivery } from '@sealpost/queue/memory'
import type { MeshId, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import type { World } from '../world.ts'
import { WatchedPools } from './watched-pools.ts'

export class WatchedStatements extends MemoryShard {
  override readonly pools: MemoryPools
  protected readonly world: World

  constructor(world: World, shard: ShardId, options: QueueOptions) {
    super(world.store, shard, options)
    this.world = world
    this.pools = this.watchPools(options)
  }

  protected watchPools(options: QueueOptions): MemoryPools {
    return new WatchedPools(this.world, this.shard, options)
  }

  override commitAtOnce(batch: Batch): StatementOutcomes {
    const { oracle } = this.world
    for (const ref of batch.settles) {
      const row = this.store.findDelivery(ref)
      if (ref.holder !== undefined && row?.lease?.holder !== ref.holder) continue
      if (row && !isReceipt(row)) oracle.removed(row.meshId, this.keyOf(row.meshId, row.sender), row)
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
    for (const want of wants) this.prepareClaim(want)
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
      const isDue =
        letter.reason === 'expired' ? row.expiresAtMs <= store.nowMs : row.strikes >= this.options.strikesMax
      world.oracle.died({ ...letter, sender: this.keyOf(letter.meshId, letter.sender) }, isDue)
    }
    const left = new Set(store.deliveries())
    for (const row of before.values())
      if (!isReceipt(row) && !left.has(row)) world.oracle.swept(row.meshId, this.keyOf(row.meshId, row.sender), row)
    return swept
  }

  override open(session: SessionRef): number | null {
    const former = this.store.find(session.meshId, session.peer)!.session.shard
    const epoch = super.open(session)
    if (epoch !== null && this.world.revocations.isOut(session.meshId, session.peer)) this.world.oracle.letIn()
    if (epoch === null) this.world.oracle.mark('open: overtaken')
    else if (former !== null && former !== this.shard) this.world.oracle.mark('takeover')
    return epoch
  }

  protected prepareClaim(_want: Want): void {
    return
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

  /** Returns why an earlier lease is void (P7), or null if it is valid. */
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

const isReceipt = ({ terms }: StoredDelivery): boolean => terms !== null && readMarking(terms)?.kind === 'receipt'
