/**
 * Implements the driver, the only part of a shard that waits. It turns effects of the engine into calls of ports, and
 * results into calls of the engine, without decisions of its own.
 */
import {
  type ClaimKind,
  type ClaimResult,
  type ClaimResultOf,
  type ClaimWant,
  type ClaimWantOf,
  type ConnectionEnd,
  type DeliveryUpdate,
  type Effects,
  Engine,
  type EngineOptions,
  type HandshakeFrame,
  type Lookup,
  type Request,
  type SendOutcome,
  type SessionRefusal,
  type SocketId,
} from '@sealpost/core'
import type {
  Append,
  ClientFrame,
  CloseCode,
  Committed,
  FrameOf,
  ServerFrame,
  SessionRef,
  Settle,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { Batch, RecipientRef } from '@sealpost/queue'
import { type MeshId, type Millis, type PeerNo, type ShardId, unreachable } from '@sealpost/std'
import { BackgroundTimers, Failures } from './background.ts'
import { ClaimLoop, type ClaimLoopOptions } from './claim-loop.ts'
import { type BatchLimits, CommitLoop } from './commit-loop.ts'
import { DeliveryEnds } from './delivery-ends.ts'
import type { Connection, DriverPorts } from './ports.ts'
import { Releases, Sweeps } from './releases.ts'
import { SingleStatements } from './single-statements.ts'

const TICK_MS: Millis = 1000
/** The pause between two parts of a session scan. */
const SCAN_PAUSE_MS: Millis = 20
const SHUTDOWN_WAIT_MAX_MS: Millis = 6000
const SHUTDOWN_LOOK_MS: Millis = 10
const JITTER_MIN_MS: Millis = 100

export interface DriverOptions {
  readonly engine: Omit<EngineOptions, 'nowMs'>
  readonly batch: BatchLimits
  readonly claims: ClaimLoopOptions
  readonly sweepMs: Millis
}

type ClaimLoopOf<Kind extends ClaimKind> = ClaimLoop<ClaimWantOf<Kind>, ClaimResultOf<Kind>>

export class Driver implements Effects {
  readonly engine: Engine
  readonly ends: DeliveryEnds
  readonly #ports: DriverPorts
  readonly #options: DriverOptions
  readonly #failures: Failures
  readonly #timers: BackgroundTimers
  readonly #connections = new Map<SocketId, Connection>()
  readonly #commits: CommitLoop
  readonly #claims: { readonly [Kind in ClaimKind]: ClaimLoopOf<Kind> }
  readonly #statements: SingleStatements
  readonly #sweeps: Sweeps
  readonly #releases: Releases
  #lastSocket = 0
  #isClaiming = false

  constructor(ports: DriverPorts, options: DriverOptions) {
    const { clock, queue, report } = ports
    this.#ports = ports
    this.#options = options
    this.engine = new Engine(this, { ...options.engine, nowMs: clock.nowMs() })
    this.#failures = new Failures(clock, report)
    this.#timers = new BackgroundTimers(clock)
    const parts = { ...ports, engine: this.engine, failures: this.#failures, timers: this.#timers }
    const step = (decide: () => void) => this.step(decide)
    this.#commits = new CommitLoop(
      {
        ...parts,
        committed: (batch, committed) => this.#committed(batch, committed),
        failed: (appends) => step(() => this.engine.commitFailed(appends)),
      },
      options.batch,
    )
    this.ends = new DeliveryEnds({
      ...parts,
      commits: this.#commits,
      receiptsCommitted: (receipts) => step(() => this.engine.receiptsCommitted(receipts)),
      released: (releases) => step(() => this.engine.released(releases)),
      retryDue: ({ meshId, peer }) => step(() => this.engine.hints.wake(meshId, peer)),
    })
    this.#claims = {
      mailbox: this.#claimLoop('claim.failed', async (wants) => {
        const startedAtMs = clock.nowMs()
        const claimed = await queue.claim(wants)
        report.claimed(claimed, clock.nowMs() - startedAtMs)
        return wants.map((want, i) => ({ want, claimed: claimed[i]! }))
      }),
      remote: this.#claimLoop('collect.failed', async (wants) => {
        const claimed = await queue.collect(wants)
        return wants.map((want, i) => ({ want, claimed: claimed[i]! }))
      }),
      pool: this.#claimLoop('deal.failed', async (wants) => {
        const claimed = await queue.claimPools(wants)
        return wants.map((want, i) => ({ want, claimed: claimed[i]! }))
      }),
    }
    this.#statements = new SingleStatements(
      {
        ...parts,
        step,
        isConnected: (socket) => this.#connections.has(socket),
        before: (session, open) => this.ends.before(session, open),
      },
      options.engine.limits,
    )
    this.#sweeps = new Sweeps(parts)
    this.#releases = new Releases({ ...parts, released: (recipient) => this.#released(recipient) })
    this.#begin()
  }

  get connectionCount(): number {
    return this.#connections.size
  }

  connected(connection: Connection, hello: FrameOf<'hello'>): SocketId {
    return this.joined(connection, (socket) => this.engine.connected(socket, hello))
  }

  /** Adds a connection without a handshake, such as an HTTP request. */
  joined(connection: Connection, enter: (socket: SocketId) => void): SocketId {
    this.#lastSocket += 1
    const socket = this.#lastSocket
    this.#connections.set(socket, connection)
    this.step(() => enter(socket))
    return socket
  }

  disconnected(socket: SocketId, end: ConnectionEnd = 'broken'): void {
    if (this.#connections.delete(socket)) this.step(() => this.engine.closed(socket, end))
  }

  received(socket: SocketId, frame: ClientFrame): void {
    this.engine.advance(this.#ports.clock.nowMs())
    this.engine.received(socket, frame)
    if (this.#isClaiming) this.#pullClaims()
  }

  refuse(socket: SocketId, code: CloseCode): void {
    this.step(() => this.engine.refused(socket, code))
  }

  /** Advances the engine's clock, calls `decide`, and starts what the engine requested. */
  step(decide: () => void): void {
    this.engine.advance(this.#ports.clock.nowMs())
    decide()
    if (this.#isClaiming) this.#pullClaims()
  }

  #pullClaims(): void {
    this.#isClaiming = false
    this.#claims.mailbox.pull()
    this.#claims.remote.pull()
    this.#claims.pool.pull()
  }

  shardsAre(others: ReadonlySet<ShardId>): void {
    this.#sweeps.shardCount = others.size + 1
    this.step(() => this.engine.presence.setOtherShards(others))
  }

  /** Resolves once presence in the mesh is known, as far as possible. */
  knowsPresence(meshId: MeshId): Promise<void> {
    return new Promise((resolve) => this.step(() => this.engine.presence.whenMeshKnown(meshId, resolve)))
  }

  databaseIsBack(): void {
    this.#commits.resume()
  }

  /** Ends all sessions. Peers reconnect over a period that grows with their number. */
  dismiss(): void {
    const withinMs = this.engine.rebalancing.dismissMs
    this.#end('try_later', () => Math.ceil(this.#ports.random() * withinMs))
  }

  /** Refuses new work, completes accepted work, then ends all sessions. */
  async shutdown(): Promise<void> {
    const { clock } = this.#ports
    this.step(() => this.engine.beginShutdown(this.#jitterMs()))
    const deadlineMs = clock.nowMs() + SHUTDOWN_WAIT_MAX_MS
    while (!this.#commits.isIdle && clock.nowMs() < deadlineMs)
      await new Promise<void>((resolve) => clock.after(SHUTDOWN_LOOK_MS, resolve))
    this.#end('restarting', () => this.#jitterMs())
  }

  send(socket: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    return this.#connections.get(socket)?.send(frames) ?? 'sent'
  }
  close(socket: SocketId, refusal: SessionRefusal | null): void {
    const connection = this.#connections.get(socket)
    this.#connections.delete(socket)
    if (!refusal) return connection?.hangUp()
    this.#ports.report.closed(socket, refusal.code)
    connection?.close(refusal.code, refusal.retryAfterMs)
  }
  ping(socket: SocketId): void {
    this.#connections.get(socket)?.ping()
  }
  pause(socket: SocketId): void {
    this.#connections.get(socket)?.pause()
  }
  resume(socket: SocketId): void {
    this.#connections.get(socket)?.resume()
  }

  append(append: Append): void {
    this.#commits.append(append)
  }
  settle(delivery: Settle): void {
    this.#commits.settle(delivery)
  }
  updateDeliveries(update: DeliveryUpdate): void {
    switch (update.type) {
      case 'retry':
        return this.ends.retry(update.retries)
      case 'reject':
        return this.ends.reject(update.rejects, update.withReceipt)
      case 'extend':
        return this.ends.extend(update.extensions)
      case 'notifyPushed':
        return this.#statements.notifyPushed(update.deliveries)
      case 'release':
        return this.ends.release(update.releases)
      case 'failAttempt':
        return this.#statements.failAttempt(update.delivery)
      case 'forgetLost':
        return this.#statements.forgetLost(update.requester, update.ids)
      default:
        return unreachable(update)
    }
  }
  whenSettled(session: SessionRef, then: () => void): void {
    this.ends.whenCommitted(session, then, () => this.step(then))
  }
  claim(want: ClaimWant): void {
    this.#isClaiming = true
    if (want.kind === 'mailbox') this.#claims.mailbox.want(want)
    else if (want.kind === 'remote') this.#claims.remote.want(want)
    else this.#claims.pool.want(want)
  }

  verify(socket: SocketId, hello: FrameOf<'hello'>, proof: HandshakeFrame): void {
    const authority = this.#connections.get(socket)?.authority ?? ''
    if (proof.type !== 'auth') return this.#statements.enrol(socket, authority, hello, proof)
    this.#statements.authenticate(socket, { authority, isThere: () => this.#connections.has(socket) }, hello, proof)
  }
  open(socket: SocketId, session: SessionRef): void {
    this.#statements.open(socket, session)
  }
  fence(socket: SocketId, session: SessionRef): void {
    this.#statements.fence(socket, session)
  }
  checkSessions(checks: Parameters<Effects['checkSessions']>[0]): void {
    this.#statements.checkSessions(checks)
  }
  measure(meshId: MeshId, scope: PeerNo | 'mesh'): void {
    this.#statements.measure(meshId, scope)
  }
  resolve(socket: SocketId, meshId: MeshId, sought: Lookup): void {
    this.#statements.resolve(socket, meshId, sought)
  }
  request(request: Request): void {
    this.#statements.request(request)
  }

  hint(hint: Hint): void {
    this.#ports.bus.publish(hint)
  }
  awaitPresence(meshId: MeshId): void {
    const { clock, bus } = this.#ports
    clock.after(bus.replyMs, () => this.step(() => this.engine.presence.repliesDue(meshId)))
  }
  follow(meshId: MeshId): void {
    this.#ports.bus.follow(meshId)
  }
  unfollow(meshId: MeshId): void {
    this.#ports.bus.unfollow(meshId)
  }

  #begin(): void {
    this.#timers.every(this.#options.sweepMs, () => this.#sweeps.tick())
    this.#timers.every(TICK_MS, () => {
      this.step(() => this.engine.tick())
      this.#continueScan()
    })
    this.#ports.bus.subscribe({
      onHints: (from, hints) => this.step(() => this.engine.hints.received(from, hints)),
      onFollowing: (meshes) => this.step(() => this.engine.hints.subscribed(meshes)),
    })
  }

  #end(code: CloseCode, retryAfterMs: () => Millis): void {
    this.#timers.stop()
    this.step(() => this.engine.endShutdown(code, retryAfterMs))
  }

  #jitterMs(): Millis {
    return JITTER_MIN_MS + Math.floor(this.#ports.random() * this.engine.rebalancing.spreadMs)
  }

  #continueScan(): void {
    if (!this.engine.isScanning) return
    this.#timers.after(SCAN_PAUSE_MS, () => {
      this.step(() => this.engine.continueScan())
      this.#continueScan()
    })
  }

  #committed({ appends, settles }: Batch, committed: Committed): void {
    this.engine.advance(this.#ports.clock.nowMs())
    this.engine.committed(appends, committed)
    let hasRecords = false
    for (const { notBeforeMs, body } of appends) {
      if (notBeforeMs > 0) this.#releases.by(notBeforeMs)
      if (body?.record) hasRecords = true
    }
    if (hasRecords) this.#ports.report.recorded(appends)
    const withReceipt = settles.length === 0 ? settles : settles.filter(({ receiptTo }) => receiptTo)
    if (withReceipt.length > 0) this.engine.receiptsCommitted(withReceipt)
    if (this.#isClaiming) this.#pullClaims()
  }

  #released({ meshId, peer }: RecipientRef): void {
    this.step(() => this.engine.hints.wake(meshId, peer))
    this.hint({ type: 'wake', meshId, peer })
  }

  #claimLoop<Want extends ClaimWant, Result extends ClaimResult>(
    failedEvent: string,
    ask: (wants: readonly Want[]) => Promise<readonly Result[]>,
  ): ClaimLoop<Want, Result> {
    return new ClaimLoop<Want, Result>(
      {
        clock: this.#ports.clock,
        failures: this.#failures,
        ask,
        countOf: deliveriesIn,
        found: (results) => this.step(() => this.engine.claimed(results)),
        failed: (wants, error) => {
          this.#failures.report(failedEvent, error)
          this.step(() => this.engine.claimFailed(wants))
        },
      },
      this.#options.claims,
    )
  }
}

const deliveriesIn = ({ claimed }: ClaimResult): number =>
  'deliveries' in claimed ? claimed.deliveries.length : 'dealt' in claimed ? claimed.dealt.length : 0
