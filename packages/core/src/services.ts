/**
 * Which shard serves whom, as shards tell each other: to a peer of which another one has said so, mail is leased at birth,
 * and that shard collects it without a claim. What is said may be wrong or old; then the lease is under an epoch that has
 * passed, and the delivery as free as without one.
 */
import type { HintOf } from '@sealpost/protocol/hints'
import type { Millis } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Peer } from './roster.ts'
import type { LiveSession } from './session.ts'

/** What was said counts for so long, */
const GOOD_FOR_MS = 30_000
/** is said anew to whoever still goes by it, */
const RENEW_AFTER_MS = 10_000
/** and at most so often to who does not. */
const AGAIN_AFTER_MS = 1_000

/** The session that a peer has elsewhere. */
export interface Service {
  readonly epoch: number
  readonly untilMs: Millis
}

export class Services {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** The epoch to lease under; 0: none. */
  epochOf({ live, service }: Peer): number {
    return !live && service && this.context.nowMs < service.untilMs ? service.epoch : 0
  }

  heard({ meshId, peer, epoch, isOn }: HintOf<'serves'>): void {
    const known = this.context.roster.find(meshId)?.byNo.get(peer)
    if (!known || (known.service && known.service.epoch > epoch)) return
    if (isOn) known.service = { epoch, untilMs: this.context.nowMs + GOOD_FOR_MS }
    else known.service = null
  }

  /** Somebody stored mail for this session and does not know that it is here. */
  say(live: LiveSession): void {
    this.sayAfter(live, AGAIN_AFTER_MS)
  }

  /** Somebody knows. */
  renew(live: LiveSession): void {
    this.sayAfter(live, RENEW_AFTER_MS)
  }

  ended(live: LiveSession): void {
    if (live.saidService && this.context.nowMs - live.saidService.atMs < GOOD_FOR_MS) this.tell(live, false)
  }

  private sayAfter(live: LiveSession, afterMs: Millis): void {
    const { nowMs, limits } = this.context
    if (!limits.isBirthLeaseOn || live.credit.isFenced) return
    const said = live.saidService
    if (said?.epoch === live.epoch && nowMs - said.atMs < afterMs) return
    live.saidService = { epoch: live.epoch, atMs: nowMs }
    this.tell(live, true)
  }

  private tell({ mesh, peer, epoch }: LiveSession, isOn: boolean): void {
    this.context.effects.hint({ type: 'serves', meshId: mesh.meshId, peer: peer.peer, epoch, isOn })
  }
}
