/** Tracks the meshes that have a session here or had one recently. */
import type { Member } from '@sealpost/protocol'
import { assert, type MeshId, type Millis } from '@sealpost/std'
import type { Effects } from '../effects.ts'
import { type LiveSession, Mesh, type PeerState } from '../model.ts'

/**
 * How long a mesh without sessions is remembered. Each HTTP request is a session: without this, each would find all
 * mailboxes unmeasured, and be accepted.
 */
const IDLE_FOR_MS = 10 * 60_000

export class MeshRegistry {
  private readonly effects: Pick<Effects, 'follow' | 'unfollow'>
  private readonly meshes = new Map<MeshId, Mesh>()
  private readonly senders = new Set<LiveSession>()

  constructor(effects: Pick<Effects, 'follow' | 'unfollow'>) {
    this.effects = effects
  }

  find(meshId: MeshId): Mesh | undefined {
    return this.meshes.get(meshId)
  }

  /** Adds a session, after an older one of the peer has left. */
  enter(member: Member, nowMs: Millis, session: (mesh: Mesh, peer: PeerState) => LiveSession): LiveSession {
    const mesh = this.open(member.meshId, nowMs)
    const peer = mesh.add(member, nowMs)
    assert(peer.live === null, 'one live session for each peer')
    mesh.liveCount += 1
    peer.live = session(mesh, peer)
    return peer.live
  }

  /** Adds a session that only sends, alongside the peer's other sessions. */
  enterSender(member: Member, nowMs: Millis, session: (mesh: Mesh, peer: PeerState) => LiveSession): LiveSession {
    const mesh = this.open(member.meshId, nowMs)
    const sender = session(mesh, mesh.add(member, nowMs))
    mesh.liveCount += 1
    this.senders.add(sender)
    return sender
  }

  leave(session: LiveSession, nowMs: Millis): void {
    if (session.isOver) return
    session.isOver = true
    const { mesh, peer } = session
    if (!this.senders.delete(session)) {
      peer.live = null
      peer.epoch = session.epoch
    }
    mesh.liveCount -= 1
    if (mesh.liveCount === 0) mesh.idleSinceMs = nowMs
  }

  forgetIdle(nowMs: Millis): void {
    for (const { meshId, liveCount, idleSinceMs } of this.meshes.values()) {
      if (liveCount > 0 || nowMs - idleSinceMs < IDLE_FOR_MS) continue
      this.meshes.delete(meshId)
      this.effects.unfollow(meshId)
    }
  }

  all(): Iterable<Mesh> {
    return this.meshes.values()
  }

  open(meshId: MeshId, nowMs: Millis): Mesh {
    const known = this.meshes.get(meshId)
    if (known) return known
    const mesh = new Mesh(meshId)
    mesh.idleSinceMs = nowMs
    this.meshes.set(meshId, mesh)
    this.effects.follow(meshId)
    return mesh
  }
}
