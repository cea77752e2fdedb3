/**
 * Applies changes to a user's keys, devices and consent to this shard's state. Sends the signed record to sessions that
 * requested one of the keys or watch the mesh.
 */
import type { Consent, FrameOf, ServerFrame } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession } from '../model.ts'
import type { RemovalReply, Requester } from './request-types.ts'

export interface NewDevice {
  readonly meshId: MeshId
  readonly user: PeerKey
  /** The key that vouched: of the user or of one of its devices. */
  readonly voucher: PeerKey
  readonly statement: Uint8Array
}

export type DoneRemoval = Extract<RemovalReply, { outcome: 'done' }>

export class UserDirectory {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  consented({ meshId, user }: Requester, consent: Consent): void {
    this.#context.meshes.find(meshId)?.consented(user, consent)
  }

  deviceRemoved({ meshId, peerKey }: Requester, { user, ended, removal }: DoneRemoval): void {
    const news: FrameOf<'deviceList'> = { type: 'deviceList', ref: 0, statements: [], removals: [removal] }
    this.#send({ meshId, keys: [user, peerKey, ...ended.map((device) => device.peerKey)] }, news)
  }

  deviceJoined({ meshId, user, voucher, statement }: NewDevice): void {
    this.#send({ meshId, keys: [user, voucher] }, { type: 'deviceList', ref: 0, statements: [statement], removals: [] })
  }

  /** Ends the member's session and sends the succession. The member reconnects with its new key, which has its mail. */
  succeeded({ meshId, peerKey, peer }: Requester, statement: Uint8Array): void {
    this.#send({ meshId, keys: [peerKey] }, { type: 'successions', statements: [statement] })
    const mesh = this.#context.meshes.find(meshId)
    const former = mesh?.byNo.get(peer)
    if (former?.live) this.#context.end(former.live, 'superseded')
    if (former) mesh!.forget(former)
    this.#context.effects.hint({ type: 'revoked', meshId, peer })
    mesh?.pools.memberRotated(peer)
  }

  /**
   * Sends changes of a key to every session that requested it. A scan of all sessions is cheaper than an index, because
   * rotations are rare.
   */
  keyChanged(meshId: MeshId, changed: PeerKey): void {
    for (const { live, peerKey } of this.#context.meshes.find(meshId)?.byNo.values() ?? []) {
      if (!live || peerKey === changed || !follows(live, changed)) continue
      live.outgoing.boxKeyRotated(changed)
      this.#context.touch(live)
    }
  }

  #send({ meshId, keys }: { meshId: MeshId; keys: readonly PeerKey[] }, news: ServerFrame): void {
    for (const { live, peerKey } of this.#context.meshes.find(meshId)?.byNo.values() ?? [])
      if (live && (keys.includes(peerKey) || keys.some((key) => follows(live, key)))) this.#context.send(live, [news])
  }
}

const follows = (live: LiveSession, key: PeerKey): boolean => live.hasLookedUp(key) || live.mesh.watchers.has(live)
