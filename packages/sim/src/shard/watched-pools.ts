/** The pool statements in memory, observed by the oracle: which lease is taken, and why it had ended. */
import type { PoolClaimed, PoolWant } from '@sealpost/protocol'
import type { QueueOptions } from '@sealpost/queue'
import { MemoryPools, type StoredDelivery } from '@sealpost/queue/memory'
import type { ShardId } from '@sealpost/std'
import type { World } from '../world.ts'

type Leases = ReadonlyMap<
  number,
  { readonly row: StoredDelivery; readonly lease: NonNullable<StoredDelivery['lease']> }
>

export class WatchedPools extends MemoryPools {
  protected readonly world: World

  constructor(world: World, shard: ShardId, options: QueueOptions) {
    super(world.store, shard, options)
    this.world = world
  }

  override claim(wants: readonly PoolWant[]): PoolClaimed[] {
    return wants.map((want) => {
      if (this.world.chance('locked')) return { status: 'locked' }
      const before = this.leasesOf(want)
      this.prepareClaim(want)
      const [claimed] = super.claim([want]) as [PoolClaimed]
      if (claimed.status === 'claimed') for (const { delivery } of claimed.dealt) this.watch(before.get(delivery.id))
      return claimed
    })
  }

  protected prepareClaim(_want: PoolWant): void {
    return
  }

  private watch(known: ReturnType<Leases['get']>): void {
    if (known) this.world.oracle.dealtAgain(known.row, this.causeOf(known.row, known.lease))
  }

  private causeOf({ meshId }: StoredDelivery, { epoch, holder, untilMs }: NonNullable<StoredDelivery['lease']>) {
    const { store } = this.world
    if (untilMs <= store.nowMs) return holder === undefined ? 'put off' : 'lapsed'
    const session = holder === undefined ? undefined : store.find(meshId, holder)!.session
    return session && session.openedEpoch !== epoch ? 'another session of its holder' : null
  }

  private leasesOf({ meshId, pool }: PoolWant): Leases {
    const rows = this.world.store.find(meshId, pool)!.deliveries
    return new Map(rows.flatMap((row) => (row.lease ? [[row.id, { row, lease: row.lease }] as const] : [])))
  }
}
