/**
 * Which shard serves whom, as shards tell each other: to a peer of which another one has said so, mail is leased at birth,
 * and that shard collects it without a claim. What is said may be wrong or old; then the lease is under an epoch that has
 * passed, and the delivery as free as without one.
 */
import type { HintOf } from '@sealpost/protocol/hints'
import type { Millis } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession, Peer } from '../model.ts'

/** What was said counts for so long, */
const GOOD_FOR_MS = 30_000
/** is said anew to whoever still goes by it, */
const RENEW_AFTER_MS = 10_000
/** and at most so often to who does not. */
const REPEAT_AFTER_MS = 1_000

export class SessionLocations {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** The epoch to lease under; 0: none. */
  epochOf({ live, remoteSession }: Peer): number {
    return !live && remoteSession && this.context.nowMs < remoteSession.untilMs ? remoteSession.epoch : 0
  }

  learn({ meshId, peer, epoch, isOn }: HintOf<'serves'>): void {
    const known = this.context.meshes.find(meshId)?.byNo.get(peer)
    if (!known || (known.remoteSession && known.remoteSession.epoch > epoch)) return
    if (isOn) known.remoteSession = { epoch, untilMs: this.context.nowMs + GOOD_FOR_MS }
    else known.remoteSession = null
  }

  /** Somebody stored mail for this session and does not know that it is here. */
  announce(live: LiveSession): void {
    this.announceAfter(live, REPEAT_AFTER_MS)
  }

  /** Somebody knows. */
  renew(live: LiveSession): void {
    this.announceAfter(live, RENEW_AFTER_MS)
  }

  ended(live: LiveSession): void {
    if (live.announcement && this.context.nowMs - live.announcement.atMs < GOOD_FOR_MS) this.hint(live, false)
  }

  private announceAfter(live: LiveSession, afterMs: Millis): void {
    const { nowMs, limits } = this.context
    if (!limits.isInsertLeaseOn || live.credit.isFenced) return
    const said = live.announcement
    if (said?.epoch === live.epoch && nowMs - said.atMs < afterMs) return
    live.announcement = { epoch: live.epoch, atMs: nowMs }
    this.hint(live, true)
  }

  private hint({ mesh, peer, epoch }: LiveSession, isOn: boolean): void {
    this.context.effects.hint({ type: 'serves', meshId: mesh.meshId, peer: peer.peer, epoch, isOn })
  }
}
