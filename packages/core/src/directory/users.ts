/**
 * What this shard does when the keys, the devices or the consent of a user change: it applies the change to what it knows,
 * and sends the signed record to those who asked for one of the keys in this session, or watch the mesh.
 */
import type { Consent, FrameOf, ServerFrame } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession } from '../model.ts'
import type { Requester } from './request-types.ts'

/** A device that has just joined, and the user that vouches for it. */
export interface NewDevice {
  readonly meshId: MeshId
  readonly user: PeerKey
  readonly statement: Uint8Array
}

export class UserDirectory {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  consented({ meshId, user }: Requester, consent: Consent): void {
    this.#context.meshes.find(meshId)?.consented(user, consent)
  }

  /** Sends the removal, also when the requester left meanwhile. */
  deviceRemoved({ meshId, peerKey }: Requester, device: PeerKey, removal: Uint8Array): void {
    const news: FrameOf<'deviceList'> = { type: 'deviceList', ref: 0, statements: [], removals: [removal] }
    this.#send({ meshId, keys: [peerKey, device] }, news)
  }

  deviceJoined({ meshId, user, statement }: NewDevice): void {
    this.#send({ meshId, keys: [user] }, { type: 'deviceList', ref: 0, statements: [statement], removals: [] })
  }

  /** The mail that waits, and what else belongs to the member, is its successor's: it comes back with the new key. */
  succeeded({ meshId, peerKey, peer }: Requester, statement: Uint8Array): void {
    this.#send({ meshId, keys: [peerKey] }, { type: 'successions', statements: [statement] })
    const mesh = this.#context.meshes.find(meshId)
    const former = mesh?.byNo.get(peer)
    if (former?.live) this.#context.end(former.live, 'superseded')
    if (former) mesh!.forget(former)
    this.#context.effects.hint({ type: 'revoked', meshId, peer })
    mesh?.pools.memberRotated(peer)
  }

  /** Rotations are rare, and a look at every session of a mesh is cheaper than an index that each lookup maintains. */
  keyChanged(meshId: MeshId, changed: PeerKey): void {
    for (const { live, peerKey } of this.#context.meshes.find(meshId)?.byNo.values() ?? []) {
      if (!live || peerKey === changed || !follows(live, changed)) continue
      live.outgoing.boxKeyRotated(changed)
      this.#context.touch(live)
    }
  }

  /** To the users themselves as well. */
  #send({ meshId, keys }: { meshId: MeshId; keys: readonly PeerKey[] }, news: ServerFrame): void {
    for (const { live, peerKey } of this.#context.meshes.find(meshId)?.byNo.values() ?? [])
      if (live && (keys.includes(peerKey) || keys.some((key) => follows(live, key)))) this.#context.send(live, [news])
  }
}

const follows = (live: LiveSession, key: PeerKey): boolean => live.hasLookedUp(key) || live.mesh.watchers.has(live)
