/**
 * Whether the sessions of this shard may go on: asked when another shard hints at it, and every ten seconds in any case,
 * since a hint may be lost. What ends a session is the answer, never the hint.
 */
import type { SessionStatus } from '@sealpost/protocol'
import type { Context } from '../context.ts'
import type { SessionCheck } from '../effects.ts'
import { type LiveSession, refOf } from '../model.ts'

export class SessionValidity {
  private readonly context: Context
  private due: LiveSession[] = []

  constructor(context: Context) {
    this.context = context
  }

  /** Something may have ended it. */
  check(live: LiveSession): void {
    live.checkedAtMs = this.context.nowMs
    this.due.push(live)
  }

  /** About once a second. */
  checkIfOld(live: LiveSession): void {
    if (this.context.nowMs - live.checkedAtMs >= this.context.limits.checkMs) this.check(live)
  }

  /** All that was asked for, as one question. */
  flush(): void {
    if (this.due.length === 0) return
    this.context.effects.checkSessions(this.due.map((live) => ({ session: refOf(live), live })))
    this.due = []
  }

  /** In the order of the checks. */
  checked(checks: readonly SessionCheck[], standings: readonly SessionStatus[]): void {
    for (const [i, { live }] of checks.entries()) if (!live.isOver) this.apply(live, standings[i]!)
    this.context.flush()
  }

  private apply(live: LiveSession, { peerKey, isRevoked, isElsewhere, isAway }: SessionStatus): void {
    const { mesh, peer } = live
    if (isAway) return this.context.meshMoving(live)
    if (isRevoked || peerKey === null) return this.context.end(live, 'revoked')
    const isTurned = peerKey !== peer.peerKey
    if (isTurned || (isElsewhere && peer.live === live)) this.context.end(live, 'superseded')
    if (!isTurned) return
    mesh.forget(peer)
    mesh.pools.memberRotated(peer.peer)
  }
}
