/**
 * The driver: the only place that waits. It runs the engine against real sockets, the real database and the real clock:
 * each effect of the engine becomes a call here, each answer a call back. It decides nothing.
 */
import type { Bus } from '@sealpost/bus'
import {
  type Authentication,
  type Effects,
  Engine,
  type EngineOptions,
  type SendOutcome,
  type SocketId,
  type Sought,
} from '@sealpost/core'
import {
  type Append,
  BATCH_MAX,
  type CloseCode,
  type DeliveryRef,
  type Extension,
  type FrameOf,
  type Reject,
  type Retry,
  type ServerFrame,
  type SessionRef,
  type Settle,
  type Want,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import { type Batch, Drain, type DrainOptions, Writer, type WriterOptions } from '@sealpost/queue'
import { type DeliveryId, type MeshId, type Millis, OperatingError, type PeerNo, type ShardId } from '@sealpost/std'
import type { Authenticator } from './authenticator.ts'
import { restAfter } from './commit-rest.ts'
import { DeliveryEnds } from './delivery-ends.ts'
import { errorFields, type Log } from './log.ts'
import { Measurements } from './measurements.ts'
import { MemberDriver, type MemberParts } from './member-driver.ts'
import type { Metrics } from './metrics.ts'
import { Rejections } from './rejections.ts'
import { Releases } from './releases.ts'
import { Serial } from './serial.ts'
import type { SpaceNews } from './space-news.ts'
import { Sweeps } from './sweeps.ts'

const TICK_MS = 1000
const GO_ON_MS = 20
const FENCE_RETRY_MS = 500
const RETRIES_MAX = 1000
/** What a crash makes come again is bounded by it. */
const SETTLE_WITHIN_MS = 20
const COMMIT_PAUSE_MS = 50
const COMMIT_PAUSE_MAX_MS = 1000
const COMPLAIN_EVERY_MS = 1000
const CLOSING_WAIT_MS = 6000
const RETRY_WAKE_MS = 60_000

/** One connection, as the driver needs it. */
export interface Connection {
  readonly authority: string
  send(frames: readonly ServerFrame[]): SendOutcome
  close(code: CloseCode, retryAfterMs: Millis): void
  hangUp(): void
  ping(): void
  pause(): void
  resume(): void
}

export interface DriverOptions {
  readonly engine: Omit<EngineOptions, 'nowMs'>
  readonly writer: WriterOptions
  readonly drain: DrainOptions
  readonly sweepMs: Millis
}

interface Parts extends MemberParts {
  readonly authenticator: Authenticator
  readonly bus: Bus
  readonly news: SpaceNews
  readonly log: Log
  readonly metrics: Metrics
}

export class Driver extends MemberDriver implements Effects {
  readonly engine: Engine
  protected override readonly parts: Parts
  private readonly connections = new Map<SocketId, Connection>()
  private readonly writer: Writer
  readonly ends: DeliveryEnds
  private readonly drain: Drain
  private readonly releases: Releases
  private readonly sweeps: Sweeps
  private readonly measurements: Measurements
  private readonly meshCountMax: number
  private readonly timers: ReturnType<typeof setInterval>[] = []
  private lastSocket = 0
  private isFlushing = false
  private areSettlesCalled = false
  private readonly rejections = new Rejections({
    reject: (rejects) => this.parts.queue.reject(rejects),
    told: (told) => this.step(() => this.engine.told(told)),
    failed: (error) => this.complain('reject.failed', error),
  })
  private readonly retries = new Serial<Retry>(RETRIES_MAX, (retries) => this.putOff(retries))
  private readonly extensions = new Serial<Extension>(RETRIES_MAX, async (extensions) => {
    await this.parts.queue.extend(extensions).catch((error) => this.complain('extend.failed', error))
    return true
  })
  private commitPauseMs: Millis = 0
  private commitsFromMs: Millis = 0
  private readonly complainedAtMs = new Map<string, Millis>()

  constructor(parts: Parts, options: DriverOptions) {
    super(parts, options.drain)
    this.parts = parts
    this.engine = new Engine(this, { ...options.engine, nowMs: now() })
    this.writer = new Writer((batch) => void this.commit(batch), options.writer)
    this.ends = new DeliveryEnds(this.writer, () => this.flushSoon())
    this.drain = new Drain(
      { start: (wants) => void this.claimFor(wants), schedule: (ms, tick) => setTimeout(tick, ms), nowMs: now },
      options.drain,
    )
    this.timers.push(
      setInterval(() => {
        this.step(() => this.engine.tick())
        this.goOn()
      }, TICK_MS),
    )
    this.sweeps = new Sweeps(
      {
        sweep: () => this.parts.queue.sweep(),
        swept: ({ expired, dead }) => {
          if (expired + dead > 0) this.parts.log.info('sweep.moved', { expired, dead })
          this.parts.metrics.swept(expired, dead)
        },
        failed: (error) => this.complain('sweep.failed', error),
      },
      options.sweepMs,
    )
    this.releases = new Releases({
      release: () => this.parts.queue.releaseDue(),
      released: ({ meshId, peer }) => {
        this.step(() => this.engine.hints.wake(meshId, peer))
        this.hint({ type: 'wake', meshId, peer })
      },
      failed: (error) => this.complain('release.failed', error),
    })
    this.meshCountMax = options.engine.limits.mesh?.countMax ?? 0
    this.measurements = new Measurements({
      ask: (recipients) => this.parts.queue.measure(recipients, (options.engine.limits.mailbox?.countMax ?? 0) + 1),
      found: ({ meshId, peer }, found) => this.step(() => this.engine.measured(meshId, peer, found)),
      failed: (error) => this.complain('measure.failed', error),
    })
    parts.bus.subscribe({
      heard: (from, hints) => this.step(() => this.engine.hints.heard(from, hints)),
      listening: (meshes) => this.step(() => this.engine.hints.listening(meshes)),
    })
    parts.news.onChange((hint) => this.step(() => this.engine.hints.changed(hint)))
  }

  get connectionCount(): number {
    return this.connections.size
  }

  connected(connection: Connection, hello: FrameOf<'hello'>): SocketId {
    return this.joined(connection, (socket) => this.engine.connected(socket, hello))
  }

  /** A connection that `enter` makes known to the engine: one for HTTP has no handshake. */
  joined(connection: Connection, enter: (socket: SocketId) => void): SocketId {
    this.lastSocket += 1
    const socket = this.lastSocket
    this.connections.set(socket, connection)
    this.step(() => enter(socket))
    return socket
  }

  disconnected(socket: SocketId): void {
    if (this.connections.delete(socket)) this.step(() => this.engine.closed(socket))
  }

  /** Gives the engine the time, lets it decide, and starts what it asked for. */
  step(decide: () => void): void {
    this.engine.advance(now())
    decide()
    this.drain.pull()
    this.pullDrains()
    this.flushSoon()
  }

  /** These others live on the same database. */
  shardsAre(others: ReadonlySet<ShardId>): void {
    this.sweeps.shardCount = others.size + 1
    this.step(() => this.engine.presence.shardsAre(others))
  }

  /** Settles when this shard knows, as far as it can, who of the mesh has a session on any. */
  knowsPresence(meshId: MeshId): Promise<void> {
    return new Promise((resolve) => this.step(() => this.engine.presence.seek(meshId, resolve)))
  }

  /** After an outage, before the pause of failed commits is over. */
  databaseIsBack(): void {
    this.commitPauseMs = this.commitsFromMs = 0
    this.flushSoon()
  }

  /** Ends all sessions at once; peers come back within a time that grows with their number. */
  dismiss(): void {
    const withinMs = this.engine.departures.dismissMs
    this.end('try_later', () => Math.ceil(Math.random() * withinMs))
  }

  /** Refuses new work, answers what was taken, then says goodbye. */
  async shutdown(): Promise<void> {
    this.step(() => this.engine.beginShutdown(this.jitter()))
    const deadline = now() + CLOSING_WAIT_MS
    while (!this.writer.isIdle && now() < deadline) await wait(10)
    this.end('restarting', () => this.jitter())
  }

  private end(code: CloseCode, retryAfterMs: () => Millis): void {
    for (const timer of this.timers) clearInterval(timer)
    for (const worker of [this.sweeps, this.releases]) worker.stop()
    this.step(() => this.engine.endShutdown(code, retryAfterMs))
  }

  send(socket: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    return this.connections.get(socket)?.send(frames) ?? 'sent'
  }

  close(socket: SocketId, code: CloseCode, retryAfterMs: Millis): void {
    this.parts.metrics.closed(code)
    this.parts.log.debug('session.closed', { socket, code })
    const connection = this.connections.get(socket)
    this.connections.delete(socket)
    connection?.close(code, retryAfterMs)
  }

  hangUp(socket: SocketId): void {
    const connection = this.connections.get(socket)
    this.connections.delete(socket)
    connection?.hangUp()
  }

  ping(socket: SocketId): void {
    this.connections.get(socket)?.ping()
  }
  pause(socket: SocketId): void {
    this.connections.get(socket)?.pause()
  }
  resume(socket: SocketId): void {
    this.connections.get(socket)?.resume()
  }

  authenticate(socket: SocketId, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): void {
    const { authority = '' } = this.connections.get(socket) ?? {}
    const prover = { authority, isThere: () => this.connections.has(socket) }
    const answered = (found: Authentication | null) => this.engine.authenticated(socket, found)
    const asked = this.parts.authenticator.authenticate(prover, hello, auth)
    this.ask('authenticate', asked, answered, () => answered(null))
  }

  enrol(socket: SocketId, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): void {
    const authority = this.connections.get(socket)?.authority ?? ''
    this.ask(
      'enrol',
      this.parts.registrar.enrol(authority, hello, enrol),
      (enrolment) => this.engine.enrolled(socket, enrolment),
      () => this.engine.enrolled(socket, null),
    )
  }

  enrolDevice(socket: SocketId, hello: FrameOf<'hello'>, enrol: FrameOf<'enrolDevice'>): void {
    const authority = this.connections.get(socket)?.authority ?? ''
    this.ask(
      'enrol',
      this.parts.persons.enrolDevice(authority, hello, enrol),
      (enrolment) => this.engine.enrolled(socket, enrolment),
      () => this.engine.enrolled(socket, null),
    )
  }

  open(socket: SocketId, session: SessionRef): void {
    this.ask(
      'open',
      this.ends.before(session, () => this.parts.queue.open(session)),
      (epoch) => this.engine.opened(socket, epoch),
      () => this.engine.opened(socket, null),
    )
  }

  fence(socket: SocketId, session: SessionRef): void {
    this.ask(
      'fence',
      this.parts.queue.fence(session),
      (epoch) => this.engine.fenced(socket, epoch),
      () => setTimeout(() => this.connections.has(socket) && this.fence(socket, session), FENCE_RETRY_MS),
    )
  }

  append(append: Append): void {
    this.writer.append(append)
  }
  settle(delivery: Settle): void {
    this.writer.settle(delivery)
    this.callSettlesSoon()
  }
  claim(want: Want): void {
    this.drain.want(want)
  }
  retry(retries: readonly Retry[]): void {
    this.ends.track(this.retries.add(retries))
  }
  reject(rejects: readonly Reject[], told: readonly Settle[]): void {
    this.ends.track(this.rejections.add(rejects, told))
  }
  extend(extensions: readonly Extension[]): void {
    this.ends.track(this.extensions.add(extensions))
  }
  tellPushed(deliveries: readonly Settle[]): void {
    this.ask('tell', this.parts.queue.tellPushed(deliveries), () => this.engine.told(deliveries))
  }
  whenSettled(session: SessionRef, then: () => void): void {
    this.ends.whenCommitted(session, then, () => this.step(then))
  }
  findLost(socket: SocketId, session: SessionRef): void {
    this.ask('lost', this.parts.queue.findLost(session.meshId, session.peer, BATCH_MAX), (lost) =>
      this.engine.owners.lost(socket, session, lost, lost.length < BATCH_MAX),
    )
  }
  toldLost({ meshId, peer }: SessionRef, ids: readonly DeliveryId[]): void {
    this.ask('told', this.parts.queue.toldLost(meshId, peer, ids))
  }
  strike(delivery: DeliveryRef): void {
    this.ask('strike', this.parts.queue.strike(delivery))
  }

  resolve(socket: SocketId, meshId: MeshId, sought: Sought): void {
    const asked = [...sought.peers, ...sought.pools]
    this.ask(
      'resolve',
      this.seek(meshId, sought),
      ([{ members, successors }, found, foundPools, spaces]) =>
        this.engine.resolved(socket, asked, members, found, successors, foundPools, spaces),
      () => this.engine.resolved(socket, asked, null),
    )
  }

  measure(meshId: MeshId, peer: PeerNo): void {
    this.measurements.add({ meshId, peer })
  }

  measureMesh(meshId: MeshId): void {
    this.ask(
      'measure',
      this.parts.queue.measureMesh(meshId, this.meshCountMax + 1),
      (found) => this.engine.meshMeasured(meshId, found),
      () => this.engine.meshMeasured(meshId, null),
    )
  }

  hint(hint: Hint): void {
    this.parts.bus.publish(hint)
  }
  awaitAnswers(meshId: MeshId): void {
    setTimeout(() => this.step(() => this.engine.presence.answered(meshId)), this.parts.bus.answerMs)
  }
  follow(meshId: MeshId): void {
    this.parts.bus.follow(meshId)
  }
  unfollow(meshId: MeshId): void {
    this.parts.bus.unfollow(meshId)
  }

  /** Peers of a broker that stops must not all come to others at once. */
  private jitter(): Millis {
    return 100 + Math.floor(Math.random() * this.engine.departures.spreadMs)
  }

  /** The engine decides how much of its round a turn of the event loop can bear. */
  private goOn(): void {
    if (!this.engine.isOnItsRound) return
    setTimeout(() => {
      this.step(() => this.engine.goOn())
      this.goOn()
    }, GO_ON_MS)
  }

  private callSettlesSoon(): void {
    if (this.areSettlesCalled) return
    this.areSettlesCalled = true
    setTimeout(() => {
      this.areSettlesCalled = false
      this.writer.callSettles()
      this.flushSoon()
    }, SETTLE_WITHIN_MS)
  }

  /** Everything that came in during this turn of the event loop joins one commit. */
  private flushSoon(): void {
    if (this.isFlushing) return
    this.isFlushing = true
    setImmediate(() => {
      this.isFlushing = false
      if (now() >= this.commitsFromMs) this.writer.flush()
    })
  }

  private async commit(batch: Batch): Promise<void> {
    const startedAtMs = now()
    const committed = await this.parts.queue.commit(batch).catch((error) => {
      this.complain('commit.failed', error)
      this.parts.metrics.commitFailed(batch, now() - startedAtMs)
      this.pauseCommits()
      this.step(() => this.engine.commitFailed(this.writer.failed()))
    })
    if (!committed) return
    const tookMs = now() - startedAtMs
    this.commitPauseMs = 0
    this.parts.metrics.committed(batch, tookMs)
    this.writer.succeeded()
    this.commitNext(restAfter(batch, tookMs))
    this.parts.news.said(batch.appends)
    this.step(() => {
      this.engine.committed(batch.appends, committed)
      for (const { notBeforeMs } of batch.appends) if (notBeforeMs > 0) this.releases.by(notBeforeMs)
      const told = batch.settles.filter(({ toldTo }) => toldTo)
      if (told.length > 0) this.engine.told(told)
    })
  }

  private async putOff(retries: readonly Retry[]): Promise<boolean> {
    try {
      await this.parts.queue.retry(retries)
      for (const retry of retries) this.lookAgain(retry)
      return true
    } catch (error) {
      this.complain('retry.failed', error) // what was not given back is pushed again after its lease
      return false
    }
  }

  /** Looking before the statement is done would find nothing; what is put off for longer is left to the poll. */
  private lookAgain({ delivery: { meshId, recipient }, afterMs }: Retry): void {
    if (afterMs > RETRY_WAKE_MS) return
    setTimeout(() => this.step(() => this.engine.hints.wake(meshId, recipient)), afterMs).unref()
  }

  private async claimFor(wants: readonly Want[]): Promise<void> {
    const startedAtMs = now()
    const claimed = await this.parts.queue.claim(wants).catch((error) => {
      this.complain('claim.failed', error)
      this.step(() => this.engine.claimFailed(wants))
    })
    if (claimed) {
      this.parts.metrics.claimed(claimed, now() - startedAtMs)
      this.step(() => this.engine.claimed(wants.map((want, i) => ({ want, claimed: claimed[i]! }))))
    }
    this.drain.ended()
  }

  /** A database that is away is asked again after a while, and longer each time. */
  private pauseCommits(): void {
    this.commitPauseMs = Math.min(COMMIT_PAUSE_MAX_MS, Math.max(COMMIT_PAUSE_MS, this.commitPauseMs * 2))
    this.commitNext(this.commitPauseMs)
  }

  private commitNext(afterMs: Millis): void {
    if (afterMs === 0) return this.flushSoon()
    this.commitsFromMs = now() + afterMs
    setTimeout(() => this.flushSoon(), afterMs + 1)
  }

  /** An outage fails everything that is asked: of each kind of failure one line a second is enough. */
  protected complain(event: string, error: unknown): void {
    if (!(error instanceof OperatingError)) throw error
    const nowMs = now()
    if (nowMs - (this.complainedAtMs.get(event) ?? Number.NEGATIVE_INFINITY) < COMPLAIN_EVERY_MS) return
    this.complainedAtMs.set(event, nowMs)
    this.parts.log.warn(event, errorFields(error))
  }

  protected ask<T>(event: string, asked: Promise<T>, answered?: (answer: T) => void, failed?: () => void): void {
    void asked.then(
      (answer) => answered && this.step(() => answered(answer)),
      (error) => {
        this.complain(`${event}.failed`, error)
        if (failed) this.step(failed)
      },
    )
  }
}

const wait = (ms: Millis) => new Promise((resolve) => setTimeout(resolve, ms))
/** Monotonic milliseconds: a clock that is set must not move a deadline. */
const now = (): Millis => performance.now()
