/**
 * Sessions that this shard sends away: all of them when it stops, and a few at a time when the home of their mesh is
 * another one. None is ended before what it has sent is answered.
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

/** A home that has just begun may be about to end again. */
const SETTLED_AFTER_MS: Millis = 10_000
/** In each second: a share of all, so that a home is not stampeded, and some at least. */
const SHARE_PER_TICK = 1 / 30
const MOVES_MIN = 10
/** An answer that takes longer is one the session does not wait for. */
const ANSWERED_WITHIN_MS: Millis = 5000
const TRY_LATER_MS: Millis = 2000
/** How far apart peers come back to a broker that stops, when there is no other one to go to. */
const SPREAD_MAX_MS: Millis = 1900
const SPREAD_MIN_MS: Millis = 200
/** Those that went elsewhere cost about so much of others' time each: a handshake and the opening of a session. */
const SPREAD_PER_SESSION_MS = 0.2

/** A peer that comes back to another incarnation sends again what was acknowledged lately: up to 4,096 envelopes. */
const DISMISSED_WITHIN_MS = 500
const DISMISSED_PER_SESSION_MS = 5
const DISMISSED_WITHIN_MS_MAX: Millis = 15_000

export class Rebalancing {
  private readonly context: Context
  private readonly placement: MeshPlacement
  private readonly ports: Ports
  /** Told to go, and when its time is over. */
  readonly leaving = new Map<Session, Millis>()
  private isClosing = false

  constructor(context: Context, homes: MeshPlacement, ports: Ports) {
    this.context = context
    this.placement = homes
    this.ports = ports
  }

  /** Within how long all peers of this shard come to others when it stops. */
  get spreadMs(): Millis {
    if (!this.placement.hasOthers) return SPREAD_MAX_MS
    return Math.min(SPREAD_MAX_MS, Math.max(SPREAD_MIN_MS, this.ports.sessions.size * SPREAD_PER_SESSION_MS))
  }

  /** Within how long all peers of this shard come back to it under another incarnation. */
  get dismissMs(): Millis {
    const withinMs = DISMISSED_WITHIN_MS + this.ports.sessions.size * DISMISSED_PER_SESSION_MS
    return Math.min(DISMISSED_WITHIN_MS_MAX, withinMs)
  }

  /** A peer that has proven its key is told where its mesh is at home, unless that is here or it can't get there. */
  redirectsHome(session: Session, meshId: MeshId, proof: Uint8Array): boolean {
    const home = this.placement.otherHome(meshId)
    if (session.mobility.name === 'stranded') session.mobility = { name: 'stranded', from: home?.shardId ?? null }
    if (!home || session.mobility.name !== 'mobile') return false
    this.redirect(session, home, proof)
    return true
  }

  /** Its mesh lives in another cell, where alone it can be served. */
  redirectToCell(session: Session, cell: RedirectTarget, proof: Uint8Array): void {
    if (session.mobility.name === 'mobile') this.redirect(session, cell, proof)
    else this.ports.refuse(session, 'try_later', TRY_LATER_MS)
  }

  redirect(session: Session, { url, certificate }: RedirectTarget, proof: Uint8Array): void {
    this.context.effects.send(session.socket, [{ type: 'moved', url, certificate, proof }])
    this.ports.refuse(session, 'moved', 0)
  }

  /** The shard stops: nothing new is taken, and what was taken is still answered. */
  beginShutdown(retryAfterMs: Millis): void {
    this.isClosing = true
    this.leaving.clear()
    for (const { state } of [...this.ports.sessions.values()])
      if (state.name === 'live') this.context.send(state.live, [{ type: 'goaway', retryAfterMs }])
  }

  endShutdown(code: CloseCode, retryAfterMs: () => Millis): void {
    for (const session of [...this.ports.sessions.values()]) this.ports.refuse(session, code, retryAfterMs())
  }

  /** About once a second. */
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

  /** What sessions have sent may have been answered: those that waited for it go. */
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
