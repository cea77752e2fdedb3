/**
 * Pushes mail that other shards leased on insert to sessions of this shard. A hint announces the mail, and a collect
 * reads it without a claim.
 */
import type { RemoteClaimed } from '@sealpost/protocol'
import type { HintOf } from '@sealpost/protocol/hints'
import type { Context } from '../context.ts'
import type { ClaimWantOf } from '../effects.ts'
import type { Deliveries, RoutedRemoteWant } from './deliveries.ts'

export class RemoteLeases {
  private readonly context: Context
  private readonly deliveries: Deliveries

  constructor(context: Context, deliveries: Deliveries) {
    this.context = context
    this.deliveries = deliveries
  }

  announced({ meshId, peer, epoch, id }: HintOf<'born'>): void {
    const live = this.context.meshes.find(meshId)?.byNo.get(peer)?.live
    if (!live) return
    this.deliveries.locations.renew(live)
    // A delivery leased under another epoch is free, so claim it.
    if (epoch !== live.epoch || !live.credit.remoteLeases.announced(id))
      this.deliveries.scheduleClaim(live, { mayWait: true })
    else this.deliveries.scheduleClaim(live)
  }

  claimed(want: ClaimWantOf<'remote'>, collected: RemoteClaimed): void {
    this.take(want, collected)
  }

  /** A collect leases nothing, so its failure needs no fence. */
  claimFailed(want: ClaimWantOf<'remote'>): void {
    this.take(want, null)
  }

  private take(want: ClaimWantOf<'remote'>, collected: RemoteClaimed | null): void {
    const { live } = want as RoutedRemoteWant
    if (live.isOver) return
    const isCurrent = want.session.epoch === live.epoch && !live.credit.isFenced
    const found = isCurrent && collected?.status === 'collected' ? collected : null
    // A claim reveals why the session is stale: another shard has it, or its mesh moves.
    live.credit.claimAnswered({ mayHaveMore: found?.hasMore ?? true })
    if (found) {
      live.credit.remoteLeases.collectedOf(want.ids, found.deliveries, this.context.nowMs)
      this.context.counters.collected += found.deliveries.length
      this.deliveries.pushFound(live, found.deliveries)
    }
    this.deliveries.scheduleClaim(live)
  }
}
