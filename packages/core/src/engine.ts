/**
 * Implements the engine, which makes every decision of a broker and never waits. Frames, database replies and the
 * passage of time arrive as method calls; commands leave through `Effects`. The engine is synchronous and reads no
 * clock, so a simulator can drive it from a seed. This file contains the lifecycle of a session; `router.ts` passes
 * envelopes to the queue, and `deliveries.ts` passes deliveries to their recipients.
 */
import type {
  Append,
  ClientFrame,
  CloseCode,
  Committed,
  FrameOf,
  Member,
  PoolEntry,
  Release,
  SenderBacklog,
  Settle,
} from '@sealpost/protocol'
import { type MeshId, type Millis, type PeerKey, type PeerNo, unreachable } from '@sealpost/std'
import { Context, type Counters, type Timed } from './context.ts'
import { type ConnectionEnd, Deliveries } from './deliver/deliveries.ts'
import { RemoteLeases } from './deliver/remote-leases.ts'
import { type FoundGroups, GroupDirectory } from './directory/groups.ts'
import type { SpaceFacts } from './directory/permissions.ts'
import type { Reply, Request, RevokedMember } from './directory/request-types.ts'
import { isRated, isRequest, MemberRequests } from './directory/requests.ts'
import { UserDirectory } from './directory/users.ts'
import type { ClaimResult, ClaimWant, Effects } from './effects.ts'
import { LiveSession, type PendingAppend, type SocketId } from './model.ts'
import { PoolDispatcher } from './pools/pools.ts'
import { EphemeralMessages, Presence } from './presence/presence.ts'
import { Router } from './send/router.ts'
import { type Authentication, type Enrolment, mobilityOf, Session, type Welcome, welcomeOf } from './session/session.ts'
import { SessionScan, SessionValidity } from './session/session-scan.ts'
import { Hints } from './shards/hints.ts'
import { MeshPlacement, type Placement } from './shards/homes.ts'
import { Rebalancing } from './shards/rebalancing.ts'

export interface EngineOptions extends Welcome {
  readonly nowMs: Millis
  readonly timed?: Timed
  /** The public addresses of the cell this broker belongs to. Default: none, for a cluster with only one cell. */
  readonly cellUrls?: readonly string[]
}

interface Claimer {
  claimed(want: ClaimWant, claimed: ClaimResult['claimed']): void
  claimFailed(want: ClaimWant): void
}

type EnrolFrame = FrameOf<'enrol' | 'enrolDevice'>

const TRY_LATER_MS = 2000
const NO_GROUPS: FoundGroups = new Map()
const NO_PROOF = new Uint8Array(64)

export class Engine {
  readonly rebalancing: Rebalancing
  readonly presence: Presence
  readonly hints: Hints
  readonly validity: SessionValidity
  private readonly options: EngineOptions
  private readonly context: Context
  private readonly deliveries: Deliveries
  private readonly remoteLeases: RemoteLeases
  private readonly router: Router
  private readonly ephemeral: EphemeralMessages
  private readonly pools: PoolDispatcher
  private readonly users: UserDirectory
  private readonly requests: MemberRequests
  private readonly placement = new MeshPlacement()
  private readonly scan: SessionScan
  private readonly sessions = new Map<SocketId, Session>()
  private liveSessions = 0

  constructor(effects: Effects, options: EngineOptions) {
    this.options = options
    this.context = new Context(effects, options)
    this.context.end = (live, code, retryAfterMs) => {
      const session = this.sessions.get(live.socket)
      if (session) this.refuse(session, code, retryAfterMs)
    }
    this.pools = new PoolDispatcher(this.context)
    this.users = new UserDirectory(this.context)
    this.validity = new SessionValidity(this.context)
    this.deliveries = new Deliveries(this.context, this.pools)
    this.remoteLeases = new RemoteLeases(this.context, this.deliveries)
    const groups = new GroupDirectory(this.context)
    this.presence = new Presence(this.context)
    this.ephemeral = new EphemeralMessages(this.context, this.presence)
    const { deliveries, remoteLeases, presence, validity, ephemeral, pools, users } = this
    const parts = { deliveries, remoteLeases, groups, presence, validity, ephemeral, pools, users }
    this.router = new Router(this.context, parts)
    this.hints = new Hints(this.context, parts)
    this.requests = new MemberRequests({
      live: (socket) => this.live(socket),
      send: (to, frames) => this.context.send(to, frames),
      effects,
      groups,
      pools,
      users,
      disconnectMember: (member) => this.disconnectMember(member),
    })
    const { sessions } = this
    const refuse = (session: Session, code: CloseCode, retryAfterMs?: Millis) =>
      this.refuse(session, code, retryAfterMs)
    this.rebalancing = new Rebalancing(this.context, this.placement, { sessions, refuse })
    this.scan = new SessionScan(this.context, { sessions, validity, deliveries, refuse })
  }

  get counters(): Readonly<Counters> {
    return this.context.counters
  }
  get sessionCount(): number {
    return this.liveSessions
  }
  get waitingCount(): number {
    return this.router.waitingCount
  }

  /** While true, the engine refuses sends as `busy`. */
  set isOverloaded(is: boolean) {
    this.router.isOverloaded = is
  }

  /** Sets the homes of meshes. Before the first call, this shard is the home of every mesh. */
  placed(placement: Placement): void {
    this.placement.placed(placement, this.context.nowMs)
  }

  /** Advances the engine's monotonic clock. Call it before the other methods. */
  advance(nowMs: Millis): void {
    this.context.nowMs = Math.max(nowMs, this.context.nowMs)
  }

  /**
   * Starts a scan of deadlines, heartbeats and the backstop poll, which `continueScan` completes. Call about once a
   * second.
   */
  tick(): void {
    this.scan.begin()
    this.pools.tick()
    this.presence.tick()
    this.context.forgetOld()
    this.context.flush()
    this.rebalancing.tick()
  }

  get isScanning(): boolean {
    return this.scan.isUnderWay
  }

  /** Scans the next part of the sessions. Call about 20 ms after the previous part. */
  continueScan(): void {
    this.scan.continueScan()
    this.context.flush()
  }

  connected(socket: SocketId, hello: FrameOf<'hello'>): void {
    this.sessions.set(socket, new Session(socket, { name: 'greeted', hello }, this.context.nowMs))
    this.context.effects.send(socket, [hello])
  }

  /** Admits a peer that was authenticated without a handshake, for example by HTTP. */
  proven(socket: SocketId, member: Member, credit: number): void {
    const session = new Session(socket, { name: 'opening', member, credit, proof: NO_PROOF }, this.context.nowMs)
    this.sessions.set(socket, session)
    if (member.isRevoked) return this.refuse(session, 'revoked')
    this.context.effects.open(socket, { meshId: member.meshId, peer: member.peer, epoch: member.sessionEpoch })
  }

  /**
   * Admits a session that only sends. It has no epoch, receives nothing, and does not end any other session of its
   * peer.
   */
  provenSender(socket: SocketId, member: Member): void {
    const { nowMs, limits, meshes } = this.context
    const place = { socket, epoch: 0, credit: 0, nowMs, tick: this.context.nextTick() }
    const live = meshes.enterSender(member, nowMs, (mesh, peer) => new LiveSession({ ...place, mesh, peer }, limits))
    this.sessions.set(socket, new Session(socket, { name: 'live', live }, nowMs))
    this.liveSessions += 1
  }

  ponged(socket: SocketId): void {
    this.sessions.get(socket)?.ponged(this.context.nowMs)
  }

  received(socket: SocketId, frame: ClientFrame): void {
    const session = this.sessions.get(socket)
    if (!session) return
    session.heardAtMs = this.context.nowMs
    if (session.state.name === 'live') this.receivedLive(session, session.state.live, frame)
    else if (session.state.name === 'greeted' && frame.type === 'auth')
      this.receivedAuth(session, session.state.hello, frame)
    else if (session.state.name === 'greeted' && (frame.type === 'enrol' || frame.type === 'enrolDevice'))
      this.receivedEnrol(session, session.state.hello, frame)
    else this.refuse(session, 'frame_unexpected')
    this.context.flush()
  }

  /** Returns the name under which a user's sessions share limits; undefined unless the session is live. */
  limitNameOf(socket: SocketId): string | undefined {
    return this.live(socket)?.name
  }

  /** Call when a frame could not be decoded, or when the connection broke a rule that the driver enforces. */
  refused(socket: SocketId, code: CloseCode): void {
    const session = this.sessions.get(socket)
    if (session) this.refuse(session, code)
  }

  closed(socket: SocketId, end: ConnectionEnd = 'broken'): void {
    const session = this.sessions.get(socket)
    if (!session) return
    if (session.state.name === 'live') this.deliveries.left(session.state.live, end, session.arrivedUntilMs)
    this.over(session)
  }

  drained(socket: SocketId): void {
    const live = this.live(socket)
    if (!live) return
    live.credit.isCongested = false
    this.context.touch(live)
    this.pools.refresh(live)
    this.deliveries.scheduleClaim(live, { mayWait: true })
    this.context.flush()
  }

  authenticated(socket: SocketId, found: Authentication | null): void {
    const session = this.sessions.get(socket)
    if (session?.state.name !== 'proving') return
    if (found === null) return this.refuse(session, 'try_later')
    if (found.cell && found.isSignatureGood) return this.rebalancing.redirectToCell(session, found.cell, found.proof)
    // The code must be the same for an unknown mesh, an unknown key and a bad signature: clients must not learn which.
    if (!found.member || !found.isSignatureGood) return this.refuse(session, 'auth_failed')
    if (found.member.isRevoked) return this.refuse(session, 'revoked')
    if (this.rebalancing.redirectsHome(session, found.member.meshId, found.proof)) return
    session.state = { name: 'opening', member: found.member, credit: session.state.credit, proof: found.proof }
    const { meshId, peer, sessionEpoch } = found.member
    this.context.effects.open(socket, { meshId, peer, epoch: sessionEpoch })
  }

  /**
   * Call once a session was opened. `epoch` is null if another attempt won the race, the peer was revoked, or the
   * database did not reply. The next attempt will show which.
   */
  opened(socket: SocketId, epoch: number | null): void {
    const session = this.sessions.get(socket)
    if (session?.state.name !== 'opening') return
    if (epoch === null) return this.refuse(session, 'try_later')
    this.enter(session, session.state, epoch)
    this.context.flush()
  }

  /**
   * Call once an enrolment has ended. `enrolment` is null if too many wait or the database did not reply, in which case
   * the invite remains usable.
   */
  enrolled(socket: SocketId, enrolment: Enrolment | null): void {
    const session = this.sessions.get(socket)
    if (session?.state.name !== 'enrolling') return
    if (enrolment === null) return this.refuse(session, 'try_later')
    if (enrolment.status === 'moved') return this.rebalancing.redirect(session, enrolment.cell, enrolment.proof)
    if (enrolment.status !== 'enrolled') return this.refuse(session, enrolment.status)
    const { proof, name, device } = enrolment
    if (device) this.users.deviceJoined(device)
    this.over(session)
    this.context.effects.send(socket, [{ type: 'enrolled', proof, name }])
    this.context.effects.close(socket, null)
  }

  /**
   * Call when a commit of these appends begins. Completes the appends' fields from the outcome of the previous commit.
   */
  commitStarts(appends: readonly Append[]): void {
    this.deliveries.commitStarts(appends as readonly PendingAppend[])
  }

  committed(appends: readonly Append[], committed: Committed): void {
    if (appends.length > 0) this.router.committed(appends, committed)
    this.context.flush()
    if (this.rebalancing.leaving.size > 0) this.rebalancing.closeAnswered()
  }

  commitFailed(appends: readonly Append[]): void {
    this.router.commitFailed(appends)
    this.context.flush()
    this.rebalancing.closeAnswered()
  }

  claimed(results: readonly ClaimResult[]): void {
    for (const { want, claimed } of results) this.claimerOf(want).claimed(want, claimed)
    this.context.flush()
  }

  claimFailed(wants: readonly ClaimWant[]): void {
    for (const want of wants) this.claimerOf(want).claimFailed(want)
    this.context.flush()
  }

  released(releases: readonly Release[]): void {
    this.pools.released(releases)
    this.context.flush()
  }

  /** Call once these settles and rejects, whose senders requested receipts, are committed. */
  receiptsCommitted(settles: readonly Settle[]): void {
    this.deliveries.receiptsCommitted(settles)
    this.context.flush()
  }

  fenced(socket: SocketId, epoch: number | null): void {
    const live = this.live(socket)
    if (live) this.deliveries.fenced(live, epoch)
    this.context.flush()
  }

  /**
   * Call once a lookup has completed. `asked`: the keys that were looked up. `successors` maps former keys to current
   * ones.
   */
  resolved(
    socket: SocketId,
    asked: readonly string[],
    members: readonly Member[] | null,
    groups: FoundGroups = NO_GROUPS,
    successors: ReadonlyMap<PeerKey, PeerKey> = new Map(),
    pools: readonly PoolEntry[] = [],
    spaces: readonly SpaceFacts[] = [],
  ): void {
    const live = this.live(socket)
    if (live) this.router.resolved(live, asked, members, { groups, pools, spaces, successors })
    this.context.flush()
  }

  replied(request: Request, reply: Reply): void {
    this.requests.replied(request, reply)
    this.context.flush()
  }

  /** Call once a measurement has completed. `found`: the backlog by sender; null if the database did not reply. */
  measured(meshId: MeshId, scope: PeerNo | 'mesh', found: readonly SenderBacklog[] | null): void {
    const mesh = this.context.meshes.find(meshId)
    const owner = scope === 'mesh' ? mesh?.whole : (mesh?.byNo.get(scope) ?? mesh?.pools.numbered(scope))
    if (owner) this.context.quotas.measured(owner, found)
  }

  /** Refuses new work. Accepted sends still get their acks. */
  beginShutdown(retryAfterMs: Millis): void {
    this.router.isClosing = true
    this.rebalancing.beginShutdown(retryAfterMs)
  }

  endShutdown(code: CloseCode, retryAfterMs: () => Millis): void {
    this.rebalancing.endShutdown(code, retryAfterMs)
  }

  private claimerOf({ kind }: ClaimWant): Claimer {
    switch (kind) {
      case 'mailbox':
        return this.deliveries
      case 'remote':
        return this.remoteLeases
      case 'pool':
        return this.pools
      default:
        return unreachable(kind)
    }
  }

  private receivedAuth(session: Session, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): void {
    if (!hello.versions.includes(auth.version)) return this.refuse(session, 'version_unsupported')
    session.mobility = mobilityOf(auth)
    session.state = { name: 'proving', credit: auth.credit }
    this.context.effects.verify(session.socket, hello, auth)
  }

  private receivedEnrol(session: Session, hello: FrameOf<'hello'>, enrol: EnrolFrame): void {
    if (!hello.versions.includes(enrol.version)) return this.refuse(session, 'version_unsupported')
    session.state = { name: 'enrolling' }
    this.context.effects.verify(session.socket, hello, enrol)
  }

  /** Ends every session that the member has or is about to open here. */
  disconnectMember({ meshId, peer }: RevokedMember): void {
    this.context.effects.hint({ type: 'revoked', meshId, peer })
    for (const session of [...this.sessions.values()]) {
      const { state } = session
      const isLive = state.name === 'live' && state.live.mesh.meshId === meshId && state.live.peer.peer === peer
      const isOpening = state.name === 'opening' && state.member.meshId === meshId && state.member.peer === peer
      if (isLive || isOpening) this.refuse(session, 'revoked')
    }
  }

  private receivedLive(session: Session, live: LiveSession, frame: ClientFrame): void {
    if (frame.type === 'send') return this.router.send(live, frame.envelopes)
    if (frame.type === 'settle') return this.deliveries.settle(live, frame.ids)
    if (isRated(frame) && live.requestBucket.take(this.context.nowMs) > 0) return this.refuse(session, 'rate_exceeded')
    if (isRequest(frame)) return this.requests.ask(live, frame)
    switch (frame.type) {
      case 'sendWith':
        return this.router.sendWith(live, frame.envelopes)
      case 'broadcast':
      case 'broadcastKept':
        return this.router.broadcast(live, frame)
      case 'sendEphemeral':
        return this.ephemeral.send(live, frame.items)
      case 'retry':
        return this.deliveries.retry(live, frame.items)
      case 'reject':
        return this.deliveries.reject(live, frame.items)
      case 'extend':
        return this.deliveries.extend(live, frame.ids, frame.forMs)
      case 'status':
        this.presence.setStatus(live, frame)
        this.pools.refresh(live)
        return this.deliveries.scheduleClaim(live)
      case 'watch':
        return this.presence.watch(live, frame.isOn)
      case 'credit':
        live.credit.resize(Math.min(frame.credit, this.options.limits.creditMax))
        return this.deliveries.scheduleClaim(live)
      case 'sendPool':
        return this.router.sendPool(live, frame)
      case 'ping':
        return this.deliveries.pinged(live, frame.ref)
      case 'enrol':
      case 'enrolDevice':
      case 'auth':
        return this.refuse(session, 'frame_unexpected')
      default:
        unreachable(frame)
    }
  }

  private enter(session: Session, opening: Extract<Session['state'], { name: 'opening' }>, epoch: number): void {
    const { member, credit, proof } = opening
    const { nowMs, limits, meshes, effects } = this.context
    const rival = meshes.find(member.meshId)?.byKey.get(member.peerKey)?.live
    // Attempts may complete in either order, but a higher epoch is newer.
    if (rival && rival.epoch > epoch) return this.refuse(session, 'superseded')
    if (rival) this.context.end(rival, 'superseded')
    const tick = this.context.nextTick()
    const { meshId, peer } = member
    // If this shard issued the last epoch, no other shard has a session of the peer, so none is notified.
    const lastEpoch = meshes.find(meshId)?.byNo.get(peer)?.epoch ?? 0
    if (member.sessionEpoch !== lastEpoch) effects.hint({ type: 'superseded', meshId, peer, epoch })
    const live = meshes.enter(
      member,
      nowMs,
      (mesh, peer) => new LiveSession({ socket: session.socket, mesh, peer, epoch, credit, nowMs, tick }, limits),
    )
    this.liveSessions += 1
    session.state = { name: 'live', live }
    session.heardAtMs = nowMs // The peer sent nothing while its session was opened, so restart its silence.
    this.context.send(live, [welcomeOf(this.options, member, { epoch, proof })])
    if (proof !== NO_PROOF) this.sendNews(live, member)
    this.requests.ask(live, { type: 'findLost' })
    this.presence.changed(live.peer, live.mesh)
    this.deliveries.scheduleClaim(live)
  }

  private sendNews(live: LiveSession, { meshId, dueBinding }: Member): void {
    const urls = this.placement.alternativesFor(meshId)
    const cell = [...(this.options.cellUrls ?? [])]
    if (urls.length + cell.length > 0) this.context.send(live, [{ type: 'shards', urls, cell }])
    if (dueBinding) this.context.send(live, [{ type: 'directory', ref: 0, bindings: [dueBinding], unknown: [] }])
  }

  private refuse(session: Session, code: CloseCode, retryAfterMs: Millis = TRY_LATER_MS): void {
    if (session.state.name === 'over') return
    if (session.state.name === 'live') this.deliveries.ending(session.state.live, code)
    this.over(session)
    this.context.effects.close(session.socket, { code, retryAfterMs })
  }

  private over(session: Session): void {
    if (session.state.name === 'live') {
      const { live } = session.state
      live.mesh.watchers.delete(live)
      this.deliveries.over(live)
      const wasThere = live.peer.live === live
      this.context.meshes.leave(live, this.context.nowMs)
      this.context.forget(live)
      if (wasThere) this.presence.changed(live.peer, live.mesh)
      this.liveSessions -= 1
    }
    session.state = { name: 'over' }
    this.sessions.delete(session.socket)
  }

  private live(socket: SocketId): LiveSession | null {
    const state = this.sessions.get(socket)?.state
    return state?.name === 'live' ? state.live : null
  }
}
