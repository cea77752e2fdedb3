/** The meshes that have a session here: which members are known, and which of them are live on this shard. */
import type { Member } from '@sealpost/protocol'
import { assert, type MeshId, type PeerKey, type PeerNo } from '@sealpost/std'
import type { LiveSession } from './session.ts'

export interface Peer {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  live: LiveSession | null
}

export class Mesh {
  readonly meshId: MeshId
  readonly byKey = new Map<PeerKey, Peer>()
  readonly byNo = new Map<PeerNo, Peer>()
  liveCount = 0
  /** Who wants to hear of every peer's comings and goings. */
  readonly watchers = new Set<LiveSession>()

  constructor(meshId: MeshId) {
    this.meshId = meshId
  }

  add(member: Member): Peer {
    const known = this.byKey.get(member.peerKey)
    if (known) return known
    const peer: Peer = { peer: member.peer, peerKey: member.peerKey, live: null }
    this.byKey.set(peer.peerKey, peer)
    this.byNo.set(peer.peer, peer)
    return peer
  }

  /** The database no longer has it as a recipient; ask again next time. */
  forget(peer: Peer): void {
    if (peer.live) return
    this.byKey.delete(peer.peerKey)
    this.byNo.delete(peer.peer)
  }
}

export class Roster {
  private readonly meshes = new Map<MeshId, Mesh>()
  private readonly senders = new Set<LiveSession>()

  find(meshId: MeshId): Mesh | undefined {
    return this.meshes.get(meshId)
  }

  /** The session becomes its peer's live one; an older one must have left. */
  enter(member: Member, session: (mesh: Mesh, peer: Peer) => LiveSession): LiveSession {
    const mesh = this.meshOf(member)
    const peer = mesh.add(member)
    assert(peer.live === null, 'one live session for each peer')
    mesh.liveCount += 1
    peer.live = session(mesh, peer)
    return peer.live
  }

  /** The session sends for its peer and receives nothing; the peer may have others. */
  enterSender(member: Member, session: (mesh: Mesh, peer: Peer) => LiveSession): LiveSession {
    const mesh = this.meshOf(member)
    const sender = session(mesh, mesh.add(member))
    mesh.liveCount += 1
    this.senders.add(sender)
    return sender
  }

  has(session: LiveSession): boolean {
    return session.peer.live === session || this.senders.has(session)
  }

  leave(session: LiveSession): void {
    if (!this.has(session)) return
    const { mesh, peer } = session
    if (!this.senders.delete(session)) peer.live = null
    mesh.liveCount -= 1
    if (mesh.liveCount === 0) this.meshes.delete(mesh.meshId)
  }

  private meshOf({ meshId }: Member): Mesh {
    const mesh = this.meshes.get(meshId) ?? new Mesh(meshId)
    this.meshes.set(meshId, mesh)
    return mesh
  }
}
