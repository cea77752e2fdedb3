/**
 * Who is online, and what they say of themselves. In memory only: nobody stores a heartbeat.
 *
 * Other shards are asked about a mesh while somebody here wants to know: who watches it, whispers in it, or sends to
 * those who are online. They then say who is there, and every change, until they are asked no more.
 */
import { type Availability, type FrameOf, PRIORITY_MAX } from '@sealpost/protocol'
import type { Hint, HintOf } from '@sealpost/protocol/hints'
import type { MeshId, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import type { Context } from '../context.ts'
import { chunks, type PresenceItem } from '../deliver/outgoing.ts'
import type { LiveSession, Mesh, Peer } from '../model.ts'

/** A member in session, as an operator sees it. */
export interface LivePeer {
  readonly peer: PeerNo
  readonly availability: Availability
  /** Pushed to it, and not settled. */
  readonly unsettled: number
  /** Its socket takes no more for now. */
  readonly isCongested: boolean
}

export class Presence {
  private readonly context: Context
  private others: ReadonlySet<ShardId> = new Set()

  constructor(context: Context) {
    this.context = context
  }

  /** Who is in session here. */
  livePeers(meshId: MeshId): LivePeer[] {
    const peers = [...(this.context.meshes.find(meshId)?.byNo.values() ?? [])]
    return peers.flatMap(({ peer, live }) =>
      live
        ? [
            {
              peer,
              availability: live.availability,
              unsettled: live.credit.unsettled.size,
              isCongested: live.credit.isCongested,
            },
          ]
        : [],
    )
  }

  /** The other shards that are alive. Before it is said there are none, and nobody is asked. */
  setOtherShards(others: ReadonlySet<ShardId>): void {
    this.others = others
    this.tick()
    this.context.flush()
  }

  /** From here on the session hears of every change in its mesh; first, of all as it is now. */
  watch(live: LiveSession, isOn: boolean): void {
    const { mesh } = live
    mesh.watchers.delete(live)
    if (!isOn) return
    mesh.watchers.add(live)
    this.request(mesh)
    const { nowMs } = this.context
    if (nowMs < live.snapshotFromMs) return
    live.snapshotFromMs = nowMs + SNAPSHOT_EVERY_MS
    const here = [...mesh.byNo.values()].filter((peer) => peer.live).map(itemOf)
    const elsewhere = mesh.remotePresence.online(nowMs).filter(({ peer }) => !mesh.byKey.get(peer)?.live)
    for (const peers of chunks([...here, ...elsewhere]))
      this.context.send(live, [{ type: 'presence', peers, isSnapshot: true }])
  }

  setStatus(live: LiveSession, { availability, summary, declinesReceipts }: FrameOf<'status'>): void {
    const { isFree } = live
    Object.assign(live, { availability, summary, declinesReceipts })
    live.credit.priorityMax = live.isFree ? PRIORITY_MAX : 0
    if (live.isFree && !isFree) live.credit.noticeBacklog()
    this.changed(live.peer, live.mesh)
  }

  changed(peer: Peer, mesh: Mesh): void {
    if (mesh.watchers.size > 0) this.push(mesh, this.itemFor(mesh, peer.peerKey))
    if (mesh.remotePresence.isRequested) this.hint(mesh, peer)
  }

  /** It has a session, here or remotePresence. */
  isOnline(mesh: Mesh, peerKey: PeerKey): boolean {
    return this.itemFor(mesh, peerKey).isOnline
  }

  /** The same by ids: see `seek`. */
  isServed(meshId: MeshId, peerKey: PeerKey): boolean {
    const mesh = this.context.meshes.find(meshId)
    return mesh !== undefined && this.isOnline(mesh, peerKey)
  }

  /** Who is online elsewhere is known, as far as it can be. */
  isKnown({ remotePresence }: Mesh): boolean {
    return this.others.size === 0 || remotePresence.isKnown(this.context.nowMs)
  }

  /** Acts as soon as that is known, at once if it is. */
  whenKnown(mesh: Mesh, act: () => void): void {
    this.request(mesh)
    if (this.isKnown(mesh)) return act()
    if (mesh.remotePresence.wait(act)) this.context.effects.awaitPresence(mesh.meshId)
  }

  /** The same for whoever has no session yet. */
  whenMeshKnown(meshId: MeshId, act: () => void): void {
    this.whenKnown(this.context.meshes.open(meshId, this.context.nowMs), act)
  }

  /** Other shards had time to say who is there. */
  repliesDue(meshId: MeshId): void {
    this.context.meshes.find(meshId)?.remotePresence.answered()
    this.context.flush()
  }

  learn(from: ShardId, hint: HintOf<'whoIsThere'> | HintOf<'presence'>): void {
    const mesh = this.context.meshes.find(hint.meshId)
    if (!mesh) return
    if (hint.type === 'whoIsThere') {
      mesh.remotePresence.requested(this.context.nowMs)
      for (const peer of mesh.byNo.values()) if (peer.live) this.hint(mesh, peer)
    } else if (mesh.remotePresence.learn(from, hint, this.context.nowMs) && !mesh.byKey.get(hint.peer)?.live)
      this.push(mesh, this.itemFor(mesh, hint.peer))
  }

  /** About once a second. */
  tick(): void {
    for (const mesh of this.context.meshes.all()) {
      for (const peerKey of mesh.remotePresence.forgetOld(this.context.nowMs, this.others))
        if (!mesh.byKey.get(peerKey)?.live) this.push(mesh, offline(peerKey))
      if (mesh.watchers.size > 0) this.request(mesh)
    }
  }

  private request({ meshId, remotePresence }: Mesh): void {
    if (this.others.size > 0 && remotePresence.request(this.context.nowMs))
      this.context.effects.hint({ type: 'whoIsThere', meshId })
  }

  private push(mesh: Mesh, item: PresenceItem): void {
    for (const watcher of mesh.watchers) {
      watcher.outgoing.presence(item)
      this.context.touch(watcher)
    }
  }

  private hint({ meshId }: Mesh, peer: Peer): void {
    const epoch = peer.live?.epoch ?? peer.epoch
    const moment = this.context.nextTick()
    const hint: Hint = { type: 'presence', meshId, epoch, moment, ...itemOf(peer) }
    this.context.effects.hint(hint)
  }

  private itemFor(mesh: Mesh, peerKey: PeerKey): PresenceItem {
    const peer = mesh.byKey.get(peerKey)
    if (peer?.live) return itemOf(peer)
    return mesh.remotePresence.find(peerKey, this.context.nowMs) ?? offline(peerKey)
  }
}

/** All of a large mesh at once is dear. */
const SNAPSHOT_EVERY_MS = 2_000

const offline = (peer: PeerKey): PresenceItem => ({ peer, isOnline: false, availability: 'idle', summary: '' })

function itemOf({ peerKey, live }: Peer): PresenceItem {
  return live
    ? { peer: peerKey, isOnline: true, availability: live.availability, summary: live.summary }
    : offline(peerKey)
}
