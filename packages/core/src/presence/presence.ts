/**
 * Tracks the presence of peers: online, availability and summary. Presence is in memory only; no heartbeat is stored. A
 * shard asks the others about a mesh while one of its sessions watches the mesh, sends ephemeral messages in it, or
 * sends only to online peers. The others then report their peers and every change until the requests stop.
 */
import { type Availability, type FrameOf, type NackCode, PRIORITY_MAX } from '@sealpost/protocol'
import { EPHEMERAL_HINT_BYTES_MAX, type Hint, type HintOf } from '@sealpost/protocol/hints'
import type { MeshId, Millis, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import type { Context } from '../context.ts'
import { chunks, type PresenceItem } from '../deliver/outgoing.ts'
import type { LiveSession, Mesh, PeerState } from '../model.ts'

export interface LivePeer {
  readonly peer: PeerNo
  readonly availability: Availability
  readonly unsettled: number
  readonly isCongested: boolean
}

export class Presence {
  private readonly context: Context
  private others: ReadonlySet<ShardId> = new Set()
  /** When the last session of a peer on this shard ended. */
  private readonly leftAtMs = new WeakMap<PeerState, Millis>()

  constructor(context: Context) {
    this.context = context
  }

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

  /** Sets the other live shards. Until then, no shard is asked for presence. */
  setOtherShards(others: ReadonlySet<ShardId>): void {
    this.others = others
    this.tick()
    this.context.flush()
  }

  /** Subscribes the session to presence changes in its mesh, starting with a snapshot, or unsubscribes it. */
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

  changed(peer: PeerState, mesh: Mesh): void {
    if (!peer.live) this.leftAtMs.set(peer, this.context.nowMs)
    if (mesh.watchers.size > 0) this.push(mesh, this.itemFor(mesh, peer.peerKey))
    if (mesh.remotePresence.isRequested) this.hint(mesh, peer)
  }

  /** Returns a peer's presence. `offlineForMs`: null if it is online, or if it had no session here lately. */
  find(meshId: MeshId, peerKey: PeerKey): PresenceItem & { readonly offlineForMs: Millis | null } {
    const mesh = this.context.meshes.find(meshId)
    const item = mesh ? this.itemFor(mesh, peerKey) : offline(peerKey)
    const peer = mesh?.byKey.get(peerKey)
    const leftAtMs = item.isOnline || !peer ? undefined : this.leftAtMs.get(peer)
    return { ...item, offlineForMs: leftAtMs === undefined ? null : this.context.nowMs - leftAtMs }
  }

  /** Returns whether the peer has a session on any shard. */
  isOnline(mesh: Mesh, peerKey: PeerKey): boolean {
    return this.itemFor(mesh, peerKey).isOnline
  }

  isServed(meshId: MeshId, peerKey: PeerKey): boolean {
    const mesh = this.context.meshes.find(meshId)
    return mesh !== undefined && this.isOnline(mesh, peerKey)
  }

  /** Returns whether presence on other shards is known, as far as possible. */
  isKnown({ remotePresence }: Mesh): boolean {
    return this.others.size === 0 || remotePresence.isKnown(this.context.nowMs)
  }

  whenKnown(mesh: Mesh, act: () => void): void {
    this.request(mesh)
    if (this.isKnown(mesh)) return act()
    if (mesh.remotePresence.wait(act)) this.context.effects.awaitPresence(mesh.meshId)
  }

  /** Like `whenKnown`, for a peer without a session. */
  whenMeshKnown(meshId: MeshId, act: () => void): void {
    this.whenKnown(this.context.meshes.open(meshId, this.context.nowMs), act)
  }

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

  private hint({ meshId }: Mesh, peer: PeerState): void {
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

/** The minimum time between a session's snapshots, which are expensive in a large mesh. */
const SNAPSHOT_EVERY_MS = 2_000

const offline = (peer: PeerKey): PresenceItem => ({ peer, isOnline: false, availability: 'idle', summary: '' })

function itemOf({ peerKey, live }: PeerState): PresenceItem {
  return live
    ? { peer: peerKey, isOnline: true, availability: live.availability, summary: live.summary }
    : offline(peerKey)
}

/** Pushes ephemeral messages to connected recipients, on any shard. They are not stored. */
type EphemeralItem = FrameOf<'sendEphemeral'>['items'][number]

export class EphemeralMessages {
  private readonly context: Context
  private readonly presence: Presence

  constructor(context: Context, presence: Presence) {
    this.context = context
    this.presence = presence
  }

  send(from: LiveSession, items: readonly EphemeralItem[]): void {
    for (const item of items) {
      const code = this.refusalOf(from, item)
      if (code) this.refuse(from, item, code)
      else if (from.mesh.byKey.get(item.recipient)?.live) this.route(from, item)
      else this.presence.whenKnown(from.mesh, () => this.route(from, item))
    }
  }

  /**
   * Handles an ephemeral message from a peer on another shard. The envelope authenticates the sender to the recipient.
   */
  received({ meshId, recipient, sender, user, envelopeId, envelope }: HintOf<'ephemeral'>): void {
    const to = this.context.meshes.find(meshId)?.byKey.get(recipient)?.live
    if (to && this.refusalBy(to, user) === null) this.push(to, { sender, envelopeId, envelope })
  }

  private route(from: LiveSession, item: EphemeralItem): void {
    const { mesh, peer } = from
    const { recipient, envelopeId, envelope } = item
    const to = mesh.byKey.get(recipient)
    const code = to?.live ? this.refusalBy(to.live, peer.user) : this.remoteRefusal(from, item)
    if (code) return this.refuse(from, item, code)
    const sender = peer.peerKey
    if (to?.live) return this.push(to.live, { sender, envelopeId, envelope })
    const { meshId } = mesh
    this.context.effects.hint({ type: 'ephemeral', meshId, recipient, sender, user: peer.user, envelopeId, envelope })
  }

  private push(to: LiveSession, item: FrameOf<'pushEphemeral'>['items'][number]): void {
    this.context.counters.ephemeralPushed += 1
    to.outgoing.pushEphemeral(item)
    this.context.touch(to)
  }

  private refuse(from: LiveSession, { envelopeId }: EphemeralItem, code: NackCode): void {
    from.outgoing.nackEphemeral(envelopeId, code)
    this.context.touch(from)
  }

  private refusalOf(from: LiveSession, { envelope }: EphemeralItem): NackCode | null {
    const { limits, nowMs } = this.context
    if (envelope.length > limits.envelopeBytesMax) return 'envelope_too_large'
    return (from.peer.share.sends?.take(nowMs) ?? 0) > 0 ? 'rate_limited' : null
  }

  private refusalBy(to: LiveSession, user: PeerNo): NackCode | null {
    if (to.peer.rule?.admits(user) === false) return 'not_allowed'
    if (!to.isFree) return 'no_responder'
    return to.credit.isCongested ? 'busy' : null
  }

  /**
   * Returns why a message can't be delivered to another shard. If the recipient is offline, a stranger must not learn
   * that it would be refused.
   */
  private remoteRefusal({ mesh, peer }: LiveSession, { recipient, envelope }: EphemeralItem): NackCode | null {
    const to = mesh.remotePresence.find(recipient, this.context.nowMs)
    if (!to) return 'no_responder'
    if (mesh.byKey.get(recipient)?.rule?.admits(peer.user) === false) return 'not_allowed'
    return to.availability === 'dnd' || envelope.length > EPHEMERAL_HINT_BYTES_MAX ? 'no_responder' : null
  }
}
