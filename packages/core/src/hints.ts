/**
 * What is heard of other shards, and of this one's own clocks and sweeps. All of it are hints: they make a session look,
 * and the database decides what it finds.
 */
import type { Hint, HintOf } from '@sealpost/protocol/hints'
import { type MeshId, type PeerNo, type ShardId, unreachable } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Deliveries } from './deliveries.ts'
import type { Pools } from './pools.ts'
import type { Standings } from './standings.ts'

export interface HintParts {
  readonly deliveries: Deliveries
  readonly pools: Pools
  readonly standings: Standings
}

export class Hints {
  private readonly context: Context
  private readonly deliveries: Deliveries
  private readonly pools: Pools
  private readonly standings: Standings

  constructor(context: Context, parts: HintParts) {
    this.context = context
    this.deliveries = parts.deliveries
    this.pools = parts.pools
    this.standings = parts.standings
  }

  /** Another shard said these. */
  heard(_from: ShardId, hints: readonly Hint[]): void {
    for (const hint of hints) this.take(hint)
    this.standings.flush()
    this.context.flush()
  }

  /** What was said of these meshes before now may have been lost. */
  listening(meshes: readonly MeshId[]): void {
    for (const meshId of meshes) {
      const mesh = this.context.roster.find(meshId)
      for (const { live } of mesh?.byNo.values() ?? []) if (live) this.deliveries.lookAgain(live)
    }
    this.context.flush()
  }

  /** Something may wait for this peer or pool. */
  wake(meshId: MeshId, peer: PeerNo): void {
    const live = this.context.roster.find(meshId)?.byNo.get(peer)?.live
    if (live) this.deliveries.notice(live)
    else this.pools.noticed(meshId, peer)
  }

  /** Its session here may be over. */
  private doubt(hint: HintOf<'superseded'> | HintOf<'revoked'>): void {
    const live = this.context.roster.find(hint.meshId)?.byNo.get(hint.peer)?.live
    if (live && (hint.type === 'revoked' || live.epoch < hint.epoch)) this.standings.ask(live)
  }

  private take(hint: Hint): void {
    switch (hint.type) {
      case 'wake':
        return this.wake(hint.meshId, hint.peer)
      case 'superseded':
      case 'revoked':
        return this.doubt(hint)
      case 'shards':
        return // its driver knows where they are
      default:
        unreachable(hint)
    }
  }
}
