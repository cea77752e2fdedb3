/**
 * Handles hints from other shards and from this shard's timers and sweeps. A hint only causes a query; the database
 * decides.
 */
import type { Hint, HintOf } from '@sealpost/protocol/hints'
import { type MeshId, type PeerNo, type ShardId, type SpaceId, unreachable } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { Deliveries } from '../deliver/deliveries.ts'
import type { RemoteLeases } from '../deliver/remote-leases.ts'
import type { UserDirectory } from '../directory/users.ts'
import type { Mesh } from '../model.ts'
import type { PoolDispatcher } from '../pools/pools.ts'
import type { EphemeralMessages, Presence } from '../presence/presence.ts'
import type { SessionValidity } from '../session/session-scan.ts'

type Stale =
  | HintOf<'staleSpace'>
  | HintOf<'staleConsent'>
  | HintOf<'staleGroup'>
  | HintOf<'stalePool'>
  | HintOf<'staleKey'>

export interface HintParts {
  readonly deliveries: Deliveries
  readonly remoteLeases: RemoteLeases
  readonly pools: PoolDispatcher
  readonly validity: SessionValidity
  readonly presence: Presence
  readonly ephemeral: EphemeralMessages
  readonly users: UserDirectory
}

export class Hints {
  private readonly context: Context
  private readonly parts: HintParts

  constructor(context: Context, parts: HintParts) {
    this.context = context
    this.parts = parts
  }

  received(from: ShardId, hints: readonly Hint[]): void {
    for (const hint of hints) this.take(from, hint)
    this.parts.validity.flush()
    this.context.flush()
  }

  /** Call once the subscription to these meshes has begun, because earlier hints may have been lost. */
  subscribed(meshes: readonly MeshId[]): void {
    for (const meshId of meshes) {
      const mesh = this.context.meshes.find(meshId)
      for (const { live } of mesh?.byNo.values() ?? []) if (live) this.parts.deliveries.scan(live)
    }
    this.context.flush()
  }

  /** Call when a request over HTTP has changed a space or a key. */
  changed(hint: HintOf<'staleSpace'> | HintOf<'staleKey'> | HintOf<'revoked'>): void {
    if (hint.type === 'revoked') this.doubt(hint)
    else this.forget(this.context.meshes.find(hint.meshId), hint)
    this.parts.validity.flush()
    this.context.flush()
  }

  /** Call when a delivery may wait for this peer or pool. */
  wake(meshId: MeshId, peer: PeerNo): void {
    const live = this.context.meshes.find(meshId)?.byNo.get(peer)?.live
    if (live) this.parts.deliveries.scheduleClaim(live, { mayWait: true })
    else this.parts.pools.noticed(meshId, peer)
  }

  private woken(meshId: MeshId, peer: PeerNo): void {
    this.wake(meshId, peer)
    const live = this.context.meshes.find(meshId)?.byNo.get(peer)?.live
    if (live) this.parts.deliveries.locations.announce(live)
  }

  /** Call when the peer's session here may have been superseded or revoked. */
  private doubt(hint: HintOf<'superseded'> | HintOf<'revoked'>): void {
    const mesh = this.context.meshes.find(hint.meshId)
    const peer = mesh?.byNo.get(hint.peer)
    if (hint.type === 'revoked' && peer) mesh!.forget(peer) // A live peer is checked; only others are looked up again.
    if (peer?.live && (hint.type === 'revoked' || peer.live.epoch < hint.epoch)) this.parts.validity.check(peer.live)
  }

  private forget(mesh: Mesh | undefined, hint: Stale): void {
    switch (hint.type) {
      case 'staleConsent':
        return mesh?.doubtConsent(hint.user)
      case 'staleGroup':
        mesh?.doubtGroup(hint.group)
        return doubtSpace(mesh, hint.group)
      case 'staleSpace':
        return doubtSpace(mesh, hint.space)
      case 'stalePool':
        return mesh?.pools.expect(hint.pool, Number.POSITIVE_INFINITY)
      case 'staleKey':
        return this.parts.users.keyChanged(hint.meshId, hint.peer)
    }
  }

  private take(from: ShardId, hint: Hint): void {
    switch (hint.type) {
      case 'wake':
        return this.woken(hint.meshId, hint.peer)
      case 'born':
        return this.parts.remoteLeases.announced(hint)
      case 'serves':
        return this.parts.deliveries.locations.learn(hint)
      case 'superseded':
      case 'revoked':
        return this.doubt(hint)
      case 'whoIsThere':
      case 'presence':
        return this.parts.presence.learn(from, hint)
      case 'ephemeral':
        return this.parts.ephemeral.received(hint)
      case 'staleConsent':
      case 'staleGroup':
      case 'staleSpace':
      case 'stalePool':
      case 'staleKey':
        return this.forget(this.context.meshes.find(hint.meshId), hint)
      case 'shards':
      case 'happened':
        return // handled by a subscriber outside the engine
      default:
        unreachable(hint)
    }
  }
}

function doubtSpace(mesh: Mesh | undefined, spaceId: SpaceId): void {
  for (const { live } of mesh?.byNo.values() ?? []) live?.spaces.doubt(spaceId)
}
