/** Mail that other shards leased at birth to sessions of this one: heard of, collected without a claim, pushed. */
import type { Collected, CollectWant } from '@sealpost/protocol'
import type { HintOf } from '@sealpost/protocol/hints'
import type { Context } from './context.ts'
import type { Deliveries, RoutedCollect } from './deliveries.ts'
import type { LiveSession } from './session.ts'

export class Collecting {
  private readonly context: Context
  private readonly deliveries: Deliveries

  constructor(context: Context, deliveries: Deliveries) {
    this.context = context
    this.deliveries = deliveries
  }

  heard({ meshId, peer, epoch, id }: HintOf<'born'>): void {
    const live = this.context.roster.find(meshId)?.byNo.get(peer)?.live
    if (!live) return
    this.deliveries.services.renew(live)
    // Under an epoch that has passed it is free.
    if (epoch !== live.epoch || !live.credit.collects.heard(id)) this.deliveries.notice(live)
    else this.deliveries.claimSoon(live)
  }

  collected(answers: readonly { want: CollectWant; collected: Collected }[]): void {
    for (const { want, collected } of answers) this.take(want, collected)
    this.context.flush()
  }

  /** Nothing was leased, so nothing is to be voided. */
  failed(wants: readonly CollectWant[]): void {
    for (const want of wants) this.take(want, null)
    this.context.flush()
  }

  private take(want: CollectWant, collected: Collected | null): void {
    const { live } = want as RoutedCollect
    if (!this.isLive(live)) return
    const isCurrent = want.session.epoch === live.epoch && !live.credit.isFenced
    const found = isCurrent && collected?.status === 'collected' ? collected : null
    // Of a session that is stale a claim says why: its peer is served elsewhere, or its mesh moves.
    live.credit.claimAnswered({ mayHaveMore: found?.hasMore ?? true })
    if (found) {
      live.credit.collects.collectedOf(want.ids, found.deliveries, this.context.nowMs)
      this.context.counters.collected += found.deliveries.length
      this.deliveries.pushFound(live, found.deliveries)
    }
    this.deliveries.claimSoon(live)
  }

  private isLive(live: LiveSession): boolean {
    return live.peer.live === live
  }
}
