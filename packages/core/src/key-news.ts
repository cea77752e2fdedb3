/** Tells those who have asked for a peer's box key, or watch the mesh, that it is another one now. */
import type { PeerKey } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Mesh } from './roster.ts'
import type { LiveSession } from './session.ts'

export class KeyNews {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** Rotations are rare, and looking at every session of a mesh is cheaper than an index that each lookup keeps. */
  changed(mesh: Mesh, peerKey: PeerKey): void {
    for (const { live, peerKey: key } of mesh.byNo.values()) if (live && key !== peerKey) this.tell(live, peerKey)
  }

  private tell(live: LiveSession, peerKey: PeerKey): void {
    if (!live.hasAskedAbout(peerKey) && !live.mesh.watchers.has(live)) return
    live.outgoing.rebound(peerKey)
    this.context.touch(live)
  }
}
