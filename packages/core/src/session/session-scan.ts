/**
 * Scans every session once a second for deadlines, heartbeats and the backstop poll. Scans in parts, because ten
 * thousand sessions at once would block the event loop and load the database.
 */
import type { CloseCode, SessionStatus } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { Deliveries } from '../deliver/deliveries.ts'
import type { SessionCheck, SocketId } from '../effects.ts'
import { type LiveSession, refOf } from '../model.ts'
import type { Session } from './session.ts'

interface Ports {
  readonly sessions: ReadonlyMap<SocketId, Session>
  readonly validity: SessionValidity
  readonly deliveries: Deliveries
  readonly refuse: (session: Session, code: CloseCode) => void
}

const SCANNED_MIN = 200
/** The number of parts in a scan. At 20 ms each, it ends well before the next one. */
const PARTS_PER_SCAN = 25

export class SessionScan {
  private readonly context: Context
  private readonly ports: Ports
  private begunAtMs: Millis
  private resumedAtMs: Millis = 0
  /** The sessions that remain in this scan. A map's iterator skips ended ones. */
  private remaining: Iterator<Session> | null = null

  constructor(context: Context, ports: Ports) {
    this.context = context
    this.ports = ports
    this.begunAtMs = context.nowMs
  }

  get isUnderWay(): boolean {
    return this.remaining !== null
  }

  begin(): void {
    const { nowMs, limits } = this.context
    // This process was paused, so its peers must not count as silent.
    if (nowMs - this.begunAtMs > limits.heartbeatMs) this.resumedAtMs = nowMs
    this.begunAtMs = nowMs
    this.remaining ??= this.ports.sessions.values()
    this.continueScan()
  }

  continueScan(): void {
    const count = Math.max(SCANNED_MIN, Math.ceil(this.ports.sessions.size / PARTS_PER_SCAN))
    for (let i = 0; this.remaining && i < count; i++) {
      const { value, done } = this.remaining.next()
      if (done) this.remaining = null
      else this.scan(value)
    }
    this.ports.validity.flush()
  }

  private scan(session: Session): void {
    const { nowMs, effects, limits } = this.context
    session.heardAtMs = Math.max(session.heardAtMs, this.resumedAtMs)
    if (session.state.name !== 'live') {
      if (nowMs - session.connectedAtMs >= limits.authWithinMs) this.ports.refuse(session, 'auth_timeout')
      return
    }
    if (nowMs - session.heardAtMs >= 3 * limits.heartbeatMs) return this.ports.refuse(session, 'heartbeat_missed')
    const { live } = session.state
    if (nowMs - session.quietSince(live) >= limits.heartbeatMs) {
      session.pinged(nowMs)
      effects.ping(session.socket)
    }
    // The client's pings wait in the paused socket: send a pong, or it would switch to another broker.
    if (live.isPaused) this.context.send(live, [{ type: 'pong', ref: 0 }])
    this.ports.validity.checkIfOld(live)
    if (nowMs - live.polledAtMs < limits.pollMs) return
    live.polledAtMs = nowMs
    this.ports.deliveries.poll(live, session.arrivedUntilMs)
  }
}

export class SessionValidity {
  private readonly context: Context
  private due: LiveSession[] = []

  constructor(context: Context) {
    this.context = context
  }

  check(live: LiveSession): void {
    live.checkedAtMs = this.context.nowMs
    this.due.push(live)
  }

  checkIfOld(live: LiveSession): void {
    if (this.context.nowMs - live.checkedAtMs >= this.context.limits.checkMs) this.check(live)
  }

  /** Sends all due checks as one statement. */
  flush(): void {
    if (this.due.length === 0) return
    this.context.effects.checkSessions(this.due.map((live) => ({ session: refOf(live), live })))
    this.due = []
  }

  checked(checks: readonly SessionCheck[], statuses: readonly SessionStatus[]): void {
    for (const [i, { live }] of checks.entries()) if (!live.isOver) this.apply(live, statuses[i]!)
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
