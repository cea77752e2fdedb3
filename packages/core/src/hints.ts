/**
 * What is heard of other shards, and of this one's own clocks and sweeps. All of it are hints: they make a session look,
 * and the database decides what it finds.
 */
import type { Hint, HintOf } from '@sealpost/protocol/hints'
import { type MeshId, type PeerNo, type ShardId, type SpaceId, unreachable } from '@sealpost/std'
import type { Collecting } from './collecting.ts'
import type { Context } from './context.ts'
import type { Deliveries } from './deliveries.ts'
import type { OwnerAnswers } from './owner-answers.ts'
import type { Pools } from './pools.ts'
import type { Presence } from './presence.ts'
import type { Mesh } from './roster.ts'
import type { Standings } from './standings.ts'
import type { Whispers } from './whispers.ts'

type Stale =
  | HintOf<'staleSpace'>
  | HintOf<'staleConsent'>
  | HintOf<'staleGroup'>
  | HintOf<'stalePool'>
  | HintOf<'staleKey'>

export interface HintParts {
  readonly deliveries: Deliveries
  readonly collecting: Collecting
  readonly pools: Pools
  readonly standings: Standings
  readonly presence: Presence
  readonly whispers: Whispers
  readonly owners: OwnerAnswers
}

export class Hints {
  private readonly context: Context
  private readonly parts: HintParts

  constructor(context: Context, parts: HintParts) {
    this.context = context
    this.parts = parts
  }

  /** Another shard said these. */
  heard(from: ShardId, hints: readonly Hint[]): void {
    for (const hint of hints) this.take(from, hint)
    this.parts.standings.flush()
    this.context.flush()
  }

  /** What was said of these meshes before now may have been lost. */
  listening(meshes: readonly MeshId[]): void {
    for (const meshId of meshes) {
      const mesh = this.context.roster.find(meshId)
      for (const { live } of mesh?.byNo.values() ?? []) if (live) this.parts.deliveries.lookAgain(live)
    }
    this.context.flush()
  }

  /** This shard's own word for what another one would hear as a hint. */
  changed(hint: HintOf<'staleSpace'>): void {
    this.forget(this.context.roster.find(hint.meshId), hint)
  }

  /** Something may wait for this peer or pool. */
  wake(meshId: MeshId, peer: PeerNo): void {
    const live = this.context.roster.find(meshId)?.byNo.get(peer)?.live
    if (live) this.parts.deliveries.notice(live)
    else this.parts.pools.noticed(meshId, peer)
  }

  private woken(meshId: MeshId, peer: PeerNo): void {
    this.wake(meshId, peer)
    const live = this.context.roster.find(meshId)?.byNo.get(peer)?.live
    if (live) this.parts.deliveries.services.say(live)
  }

  /** Its session here may be over. */
  private doubt(hint: HintOf<'superseded'> | HintOf<'revoked'>): void {
    const mesh = this.context.roster.find(hint.meshId)
    const peer = mesh?.byNo.get(hint.peer)
    if (hint.type === 'revoked' && peer) mesh!.forget(peer) // but not one that is live
    if (peer?.live && (hint.type === 'revoked' || peer.live.epoch < hint.epoch)) this.parts.standings.ask(peer.live)
  }

  /** What was read before may be something else now. */
  private forget(mesh: Mesh | undefined, hint: Stale): void {
    switch (hint.type) {
      case 'staleConsent':
        return mesh?.doubtConsent(hint.person)
      case 'staleGroup':
        mesh?.doubtGroup(hint.group)
        return doubtSpace(mesh, hint.group)
      case 'staleSpace':
        return doubtSpace(mesh, hint.space)
      case 'stalePool':
        return mesh?.pools.expect(hint.pool, Number.POSITIVE_INFINITY)
      case 'staleKey':
        return mesh && this.parts.owners.keyChanged(mesh, hint.peer)
    }
  }

  private take(from: ShardId, hint: Hint): void {
    switch (hint.type) {
      case 'wake':
        return this.woken(hint.meshId, hint.peer)
      case 'born':
        return this.parts.collecting.heard(hint)
      case 'serves':
        return this.parts.deliveries.services.heard(hint)
      case 'superseded':
      case 'revoked':
        return this.doubt(hint)
      case 'whoIsThere':
      case 'presence':
        return this.parts.presence.heard(from, hint)
      case 'whisper':
        return this.parts.whispers.heard(hint)
      case 'staleConsent':
      case 'staleGroup':
      case 'staleSpace':
      case 'stalePool':
      case 'staleKey':
        return this.forget(this.context.roster.find(hint.meshId), hint)
      case 'shards':
      case 'happened':
        return // whoever it is for hears it beside the engine
      default:
        unreachable(hint)
    }
  }
}

/** What it is, and who belongs to it. */
function doubtSpace(mesh: Mesh | undefined, spaceId: SpaceId): void {
  for (const { live } of mesh?.byNo.values() ?? []) live?.spaces.doubt(spaceId)
}
