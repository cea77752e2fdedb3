/**
 * Redirects sessions to other shards: all of them at shutdown, and a few at a time when their mesh has another home. No
 * session ends before its accepted sends are acked.
 */
import type { CloseCode } from '@sealpost/protocol'
import type { MeshId, Millis } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { SocketId } from '../effects.ts'
import type { LiveSession } from '../model.ts'
import type { Session } from '../session/session.ts'
import type { MeshPlacement, RedirectTarget } from './homes.ts'

interface Ports {
  readonly sessions: ReadonlyMap<SocketId, Session>
  readonly refuse: (session: Session, code: CloseCode, retryAfterMs: Millis) => void
}

/** The uptime after which a home receives sessions, because it may stop again shortly after its start. */
const SETTLED_AFTER_MS: Millis = 10_000
/** The share of all sessions that is redirected per second, so that the new home is not overwhelmed. */
const SHARE_PER_TICK = 1 / 30
const MOVES_MIN = 10
/** How long a redirected session may wait for its acks. */
const ANSWERED_WITHIN_MS: Millis = 5000
const TRY_LATER_MS: Millis = 2000
/** The maximum time over which peers reconnect. */
const SPREAD_MAX_MS: Millis = 1900
const SPREAD_MIN_MS: Millis = 200
/** The time that a shard needs to accept a session. */
const SPREAD_PER_SESSION_MS = 0.2

/** The time over which peers reconnect after a failover. Each resends up to 4,096 recently acked envelopes. */
const DISMISSED_WITHIN_MS = 500
const DISMISSED_PER_SESSION_MS = 5
const DISMISSED_WITHIN_MS_MAX: Millis = 15_000

export class Rebalancing {
  private readonly context: Context
  private readonly placement: MeshPlacement
  private readonly ports: Ports
  /** Redirected sessions, with their deadlines. */
  readonly leaving = new Map<Session, Millis>()
  private isClosing = false

  constructor(context: Context, homes: MeshPlacement, ports: Ports) {
    this.context = context
    this.placement = homes
    this.ports = ports
  }

  /** The time over which the peers of this shard reconnect when it stops. */
  get spreadMs(): Millis {
    if (!this.placement.hasOthers) return SPREAD_MAX_MS
    return Math.min(SPREAD_MAX_MS, Math.max(SPREAD_MIN_MS, this.ports.sessions.size * SPREAD_PER_SESSION_MS))
  }

  get dismissMs(): Millis {
    const withinMs = DISMISSED_WITHIN_MS + this.ports.sessions.size * DISMISSED_PER_SESSION_MS
    return Math.min(DISMISSED_WITHIN_MS_MAX, withinMs)
  }

  /** Redirects a peer to the home of its mesh, if that is another shard that the peer can reach. */
  redirectsHome(session: Session, meshId: MeshId, proof: Uint8Array): boolean {
    const home = this.placement.otherHome(meshId)
    if (session.mobility.name === 'stranded') session.mobility = { name: 'stranded', from: home?.shardId ?? null }
    if (!home || session.mobility.name !== 'mobile') return false
    this.redirect(session, home, proof)
    return true
  }

  /** Redirects a peer to the cell of its mesh, the only one that can serve it. */
  redirectToCell(session: Session, cell: RedirectTarget, proof: Uint8Array): void {
    if (session.mobility.name === 'mobile') this.redirect(session, cell, proof)
    else this.ports.refuse(session, 'try_later', TRY_LATER_MS)
  }

  redirect(session: Session, { url, certificate }: RedirectTarget, proof: Uint8Array): void {
    this.context.effects.send(session.socket, [{ type: 'moved', url, certificate, proof }])
    this.ports.refuse(session, 'moved', 0)
  }

  /** Refuses new sends, and redirects each session once its accepted sends are acked. */
  beginShutdown(retryAfterMs: Millis): void {
    this.isClosing = true
    this.leaving.clear()
    for (const { state } of [...this.ports.sessions.values()])
      if (state.name === 'live') this.context.send(state.live, [{ type: 'goaway', retryAfterMs }])
  }

  endShutdown(code: CloseCode, retryAfterMs: () => Millis): void {
    for (const session of [...this.ports.sessions.values()]) this.ports.refuse(session, code, retryAfterMs())
  }

  tick(): void {
    this.closeAnswered()
    if (this.isClosing || !this.placement.redirectsHome) return
    let left = Math.max(MOVES_MIN, Math.ceil(this.ports.sessions.size * SHARE_PER_TICK))
    for (const session of [...this.ports.sessions.values()]) {
      if (left === 0) return
      if (session.state.name !== 'live' || !this.isElsewhere(session, session.state.live)) continue
      this.redirectHome(session, session.state.live)
      left -= 1
    }
  }

  /** Ends redirected sessions whose sends are all acked. */
  closeAnswered(): void {
    for (const [session, untilMs] of this.leaving) {
      const { state } = session
      if (state.name !== 'live') this.leaving.delete(session)
      else if (isAnswered(state.live) || this.context.nowMs >= untilMs) this.closeMoved(session)
    }
  }

  private isElsewhere(session: Session, { mesh }: LiveSession): boolean {
    if (session.mobility.name === 'fixed' || this.leaving.has(session)) return false
    const home = this.placement.otherHome(mesh.meshId)
    if (!home || (session.mobility.name === 'stranded' && session.mobility.from === home.shardId)) return false
    return this.context.nowMs - this.placement.knownSince(home) >= SETTLED_AFTER_MS
  }

  private redirectHome(session: Session, live: LiveSession): void {
    live.isLeaving = true
    this.leaving.set(session, this.context.nowMs + ANSWERED_WITHIN_MS)
    this.context.send(live, [{ type: 'goaway', retryAfterMs: 0 }])
    if (isAnswered(live)) this.closeMoved(session)
  }

  private closeMoved(session: Session): void {
    this.leaving.delete(session)
    this.ports.refuse(session, 'moved', 0)
  }
}

const isAnswered = ({ inFlight }: LiveSession): boolean => inFlight === 0
