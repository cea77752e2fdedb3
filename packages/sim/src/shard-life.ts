/**
 * One life of a broker process, from its start to its crash: the real engine, writer and drain, driven as the broker
 * drives them, on the simulated network and database. It decides nothing; mutants are subclasses of it.
 */
import {
  type Effects,
  Engine,
  type EngineLimits,
  type FoundGroups,
  type SendOutcome,
  type SocketId,
  type Sought,
  type StandingCheck,
} from '@sealpost/core'
import {
  type Append,
  BATCH_MAX,
  type ClientFrame,
  type CloseCode,
  type CollectWant,
  type Committed,
  closeNumber,
  type DeliveryRef,
  type Extension,
  type FrameOf,
  type PoolWant,
  PROTOCOL_VERSIONS,
  type Reject,
  type Retry,
  type ServerFrame,
  type SessionRef,
  type Settle,
  type Want,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import { type Batch, type Decided, Drain, isDecided, mergeDecided, undecidedOf, Writer } from '@sealpost/queue'
import { type MemoryShard, measureIn, measureMeshIn, standingIn } from '@sealpost/queue/memory'
import type { DeliveryId, GroupId, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import type { Link } from './link.ts'
import { MemberLife } from './member-life.ts'
import { type Socket, watchFrame } from './watched-socket.ts'
import type { World } from './world.ts'

const FENCE_RETRY_MS = 500
const CLOSING_WAIT_MS = 2_000
const TICK_MS = 1_000
const SETTLE_WITHIN_MS = 20
const SWEEP_MS = 3_000
const RELEASE_MS = 500
const ANSWERS_MS = 250
/** Small, so that batches have to be cut. */
const WRITER = { appendsMax: 12, appendBytesMax: 4_096, settlesMax: 6, settlesDueAt: 4 }
const DRAIN = { tickMs: 5, wantsMax: 3 }
export const BROKER_KEY = 'bb'.repeat(32) as PeerKey

export class ShardLife extends MemberLife implements Effects {
  readonly engine: Engine
  readonly statements: MemoryShard
  protected readonly world: World
  protected readonly writer: Writer
  protected readonly drain: Drain
  protected readonly poolDrain: Drain<PoolWant>
  protected readonly collectDrain: Drain<CollectWant>
  protected readonly sockets = new Map<SocketId, Socket>()
  private lastSocket = 0
  private isFlushDue = false
  private isOver = false

  constructor(world: World, statements: MemoryShard, limits: EngineLimits) {
    super()
    this.world = world
    this.statements = statements
    this.engine = new Engine(this, {
      limits,
      nowMs: world.clock.nowMs,
      incarnation: '0'.repeat(32),
      durability: 'fsync',
    })
    const { overlaps } = world
    this.writer = new Writer((batch) => overlaps.commit(this, batch, () => this.commit(batch)), WRITER)
    const time = {
      schedule: (afterMs: Millis, tick: () => void) => world.clock.after(afterMs, () => !this.isOver && tick()),
      nowMs: () => world.clock.nowMs,
    }
    const claim = (wants: readonly Want[]) => overlaps.claim(this, wants, (asOf) => this.claimFor(wants, asOf))
    this.drain = new Drain({ start: claim, ...time }, DRAIN)
    this.collectDrain = new Drain({ start: (wants) => this.collectFor(wants), ...time }, DRAIN)
    this.poolDrain = new Drain({ start: (wants) => this.dealFrom(wants), ...time }, DRAIN)
    this.every(TICK_MS, () => this.step(() => this.engine.tick()))
    this.every(SWEEP_MS, () => this.statements.sweep())
    this.every(RELEASE_MS, () => this.release())
  }

  crash(): void {
    this.isOver = true
    for (const { link } of this.sockets.values()) link.breakServer()
  }

  /** As the broker ends: no new work, answers for what was taken, then goodbye. */
  shutdown(ended: () => void): void {
    const retryAfterMs = () => 100 + Math.floor(this.world.random.next() * 1_900)
    const deadlineMs = this.world.clock.nowMs + CLOSING_WAIT_MS
    const wait = () => {
      if (!this.writer.isIdle && this.world.clock.nowMs < deadlineMs) return this.after(10, wait)
      this.step(() => this.engine.endShutdown('restarting', retryAfterMs))
      this.isOver = true
      ended()
    }
    this.step(() => this.engine.beginShutdown(retryAfterMs()))
    this.after(10, wait)
  }

  connect(link: Link): void {
    this.lastSocket += 1
    const no = this.lastSocket
    this.sockets.set(no, { link, peer: null, member: null, epoch: 0, outstanding: new Map() })
    link.accept({
      received: (frame) => this.received(no, frame),
      closed: () => {
        const socket = this.sockets.get(no)
        if (!socket || !this.sockets.delete(no)) return
        this.step(() => this.engine.closed(no))
        if (socket.peer) this.world.leavers.left({ ...socket.peer, epoch: socket.epoch }, this.isOver)
      },
    })
    const nothing = new Uint8Array(32)
    this.step(() =>
      this.engine.connected(no, {
        type: 'hello',
        versions: [...PROTOCOL_VERSIONS],
        brokerKey: BROKER_KEY,
        connectionId: nothing.subarray(16),
        nonce: nothing,
        issuedAtMs: this.world.clock.nowMs,
        authWithinMs: 5_000,
      }),
    )
  }

  heardHint(from: ShardLife, hint: Hint): void {
    this.step(() => this.engine.hints.heard(from.statements.shard, [hint]))
  }

  send(no: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    const socket = this.sockets.get(no)
    if (!socket) return 'sent'
    const { revocations, oracle } = this.world
    if (socket.peer && revocations.isLeaver(socket.peer) && revocations.isHeardBy(this)) oracle.served()
    for (const frame of frames) {
      watchFrame(this.world, socket, frame, this.statements.options.leaseMs)
      if (frame.type === 'welcome') this.heard.heardOfMembers([socket.member!])
    }
    if (this.world.chance('sendDropped')) {
      this.world.oracle.mark('send: dropped')
      return this.sendDropped(socket)
    }
    for (const frame of frames) socket.link.sendToClient(frame)
    if (!this.world.chance('sendBuffered')) return 'sent'
    this.world.oracle.mark('send: buffered')
    const forMs = this.world.random.next() * 400
    socket.link.clog(forMs)
    this.after(forMs, () => this.sockets.has(no) && this.step(() => this.engine.drained(no)))
    return 'buffered'
  }

  close(no: SocketId, code: CloseCode, retryAfterMs: Millis): void {
    const socket = this.sockets.get(no)
    if (!socket) return
    this.sockets.delete(no)
    this.world.oracle.closed(code)
    // A socket that dropped a frame takes no other one.
    if (code === 'slow_consumer') return socket.link.breakServer()
    socket.link.sendToClient({ type: 'refused', code, retryAfterMs, reason: '' })
    socket.link.closeFromServer(closeNumber(code))
  }

  hangUp(no: SocketId): void {
    const socket = this.sockets.get(no)
    this.sockets.delete(no)
    socket?.link.closeFromServer(1000)
  }

  ping(no: SocketId): void {
    this.after(50, () => this.sockets.get(no)?.link.isWhole && this.step(() => this.engine.ponged(no)))
  }
  pause(no: SocketId): void {
    this.world.oracle.mark('paused')
    this.sockets.get(no)?.link.pause()
  }
  resume(no: SocketId): void {
    this.sockets.get(no)?.link.resume()
  }

  authenticate(no: SocketId, _hello: FrameOf<'hello'>, { meshId, peerKey }: FrameOf<'auth'>): void {
    this.ask(
      'authenticate',
      () => this.statements.findMembers(meshId, [peerKey])[0] ?? null,
      (member) => {
        const socket = this.sockets.get(no)
        if (socket) socket.member = member
        this.engine.authenticated(no, { member, isSignatureGood: true, proof: new Uint8Array(64) })
      },
      () => this.engine.authenticated(no, null),
    )
  }

  open(no: SocketId, session: SessionRef): void {
    this.ask(
      'open',
      () => this.statements.open(session),
      (epoch) => this.engine.opened(no, epoch),
      () => this.engine.opened(no, null),
    )
  }

  fence(no: SocketId, session: SessionRef): void {
    this.ask(
      'fence',
      () => this.statements.fence(session),
      (epoch) => {
        this.world.oracle.mark(epoch === null ? 'fence: served elsewhere' : 'fence: new epoch')
        this.engine.fenced(no, epoch)
      },
      () => this.after(FENCE_RETRY_MS, () => this.sockets.has(no) && this.fence(no, session)),
    )
  }

  checkStandings(checks: readonly StandingCheck[]): void {
    this.ask(
      'standings',
      () => checks.map(({ session }) => standingIn(this.statements.store, this.statements.shard, session)),
      (standings) => this.engine.standings.found(checks, standings),
    )
  }

  append(append: Append): void {
    if (this.heard.bars(append)) this.world.oracle.unwelcome()
    this.writer.append(append)
  }
  settle(delivery: Settle): void {
    this.writer.settle(delivery)
    this.after(SETTLE_WITHIN_MS, () =>
      this.step(() => {
        this.writer.callSettles()
      }),
    )
  }
  claim(want: Want): void {
    this.drain.want(want)
  }
  collect(want: CollectWant): void {
    this.collectDrain.want(want)
  }
  retry(retries: readonly Retry[]): void {
    this.ask('retry', () => this.statements.retry(retries))
  }
  reject(rejects: readonly Reject[], told: readonly Settle[]): void {
    this.ask(
      'reject',
      () => this.statements.reject(rejects),
      () => this.engine.told(told),
    )
  }
  extend(extensions: readonly Extension[]): void {
    this.ask('extend', () => this.statements.extend(extensions))
  }
  tellPushed(deliveries: readonly Settle[]): void {
    this.ask(
      'tell',
      () => this.statements.tellPushed(deliveries),
      () => this.engine.told(deliveries),
    )
  }
  whenSettled = (_: SessionRef, then: () => void): void => then()
  findLost(no: SocketId, session: SessionRef): void {
    this.ask(
      'lost',
      () => this.statements.findLost(session.meshId, session.peer, BATCH_MAX),
      (lost) => this.engine.owners.lost(no, session, lost, lost.length < BATCH_MAX),
    )
  }
  toldLost({ meshId, peer }: SessionRef, ids: readonly DeliveryId[]): void {
    this.ask('told', () => this.statements.toldLost(meshId, peer, ids))
  }
  strike(delivery: DeliveryRef): void {
    this.ask('strike', () => this.statements.strike(delivery))
  }

  resolve(no: SocketId, meshId: MeshId, { peers, groups, pools }: Sought): void {
    const asked = [...peers, ...pools]
    this.ask(
      'resolve',
      () => ({ members: this.statements.findMembers(meshId, peers), found: this.statements.pools.find(meshId, pools) }),
      ({ members, found }) => {
        this.heard.heardOfMembers(members)
        this.engine.resolved(no, asked, members, this.foundGroups(meshId, groups), undefined, found)
      },
      () => this.engine.resolved(no, asked, null),
    )
  }

  private foundGroups(meshId: MeshId, asked: readonly GroupId[]): FoundGroups {
    const group = this.world.groupIn(meshId)
    return new Map(asked.map((id) => [id, id === group.groupId ? group : null]))
  }

  measure(meshId: MeshId, peer: PeerNo): void {
    this.ask(
      'measure',
      () => measureIn(this.statements.store, { meshId, peer }, 10_000),
      (found) => this.engine.measured(meshId, peer, found),
      () => this.engine.measured(meshId, peer, null),
    )
  }

  measureMesh(meshId: MeshId): void {
    this.ask(
      'measure',
      () => measureMeshIn(this.statements.store, meshId, 10_000),
      (found) => this.engine.meshMeasured(meshId, found),
      () => this.engine.meshMeasured(meshId, null),
    )
  }

  claimPool(want: PoolWant): void {
    this.poolDrain.want(want)
  }
  hint(hint: Hint): void {
    this.world.hint(this, hint)
  }
  awaitAnswers(meshId: MeshId): void {
    this.after(ANSWERS_MS, () => this.step(() => this.engine.presence.answered(meshId)))
  }
  follow(): void {
    return // every shard hears of both meshes
  }
  unfollow(): void {
    return
  }

  protected received(no: SocketId, frame: ClientFrame): void {
    const socket = this.sockets.get(no)
    if (!socket) return
    if (frame.type === 'auth') socket.peer = { meshId: frame.meshId, peerKey: frame.peerKey, credit: frame.credit }
    if (frame.type === 'settle') for (const id of frame.ids) socket.outstanding.delete(id)
    if (frame.type === 'retry' || frame.type === 'reject')
      for (const { id } of frame.items) socket.outstanding.delete(id)
    this.step(() => this.engine.received(no, frame))
  }

  /** Gives the engine the time, lets it decide, and starts what it asked for. */
  protected step(decide: () => void): void {
    if (this.isOver) return
    this.engine.advance(this.world.clock.nowMs)
    decide()
    this.world.inside.look(this.engine)
    this.drain.pull()
    this.poolDrain.pull()
    this.collectDrain.pull()
    if (this.isFlushDue) return
    this.isFlushDue = true
    this.after(0, () => {
      this.isFlushDue = false
      this.writer.flush()
    })
  }

  private release(): void {
    this.ask(
      'release',
      () => this.statements.releaseDue(),
      ({ recipients }) => {
        for (const { meshId, peer } of recipients) {
          this.engine.hints.wake(meshId, peer)
          this.hint({ type: 'wake', meshId, peer })
        }
      },
    )
  }

  protected commit(batch: Batch): void {
    const failed = () => this.commitFailed()
    const sent = { ...batch, appends: batch.appends.map(asSent) }
    this.ask(
      'commit',
      () => this.statements.commitAtOnce(sent),
      (decided) => this.decideRest(batch, decided, failed),
      failed,
    )
  }

  private decideRest(batch: Batch, decided: Decided, failed: () => void): void {
    const rest = undecidedOf(batch.appends, decided)
    if (rest.length === 0) {
      const outcomes = decided.decisions.filter(isDecided)
      return this.commitAnswered(batch, { outcomes, enqueuedAtMs: decided.enqueuedAtMs })
    }
    this.ask(
      'careful commit',
      // Another statement of these senders was faster, every time it was tried.
      () => (this.world.chance('raced') ? null : this.statements.commitCarefully(rest)),
      (careful) => {
        if (careful === null) return failed()
        this.decideRest(batch, mergeDecided(batch.appends, decided, careful), failed)
      },
      failed,
    )
  }

  protected commitAnswered(batch: Batch, committed: Committed): void {
    this.writer.succeeded()
    this.engine.committed(batch.appends, committed)
    this.engine.told(batch.settles.filter(({ toldTo }) => toldTo))
    this.writer.flush()
  }

  protected commitFailed(): void {
    this.engine.commitFailed(this.writer.failed())
  }

  protected claimFor(wants: readonly Want[], asOf?: number): void {
    this.ask(
      'claim',
      () => this.statements.claim(wants, asOf),
      (claimed) => {
        this.engine.claimed(wants.map((want, i) => ({ want, claimed: claimed[i]! })))
        this.drain.ended()
      },
      () => {
        this.claimFailed(wants)
        this.drain.ended()
      },
    )
  }

  private collectFor(wants: readonly CollectWant[]): void {
    this.ask(
      'collect',
      () => this.statements.collect(wants),
      (answers) => {
        this.engine.collecting.collected(wants.map((want, i) => ({ want, collected: answers[i]! })))
        this.collectDrain.ended()
      },
      () => {
        this.engine.collecting.failed(wants)
        this.collectDrain.ended()
      },
    )
  }

  private dealFrom(wants: readonly PoolWant[]): void {
    this.ask(
      'deal',
      () => this.statements.pools.claim(wants),
      (claimed) => {
        this.engine.pools.claimed(wants.map((want, i) => ({ want, claimed: claimed[i]! })))
        this.poolDrain.ended()
      },
      () => {
        this.engine.pools.claimFailed(wants)
        this.poolDrain.ended()
      },
    )
  }

  protected claimFailed(wants: readonly Want[]): void {
    this.engine.claimFailed(wants)
  }

  protected sendDropped(_socket: Socket): SendOutcome {
    return 'dropped'
  }

  protected ask<T>(name: string, apply: () => T, answered?: (answer: T) => void, failed?: () => void): void {
    this.world.path.ask(
      name,
      apply,
      (answer) => this.step(() => answered?.(answer)),
      () => this.step(() => failed?.()),
    )
  }

  protected after(delayMs: Millis, run: () => void): void {
    this.world.clock.after(delayMs, () => {
      if (!this.isOver) run()
    })
  }

  private every(periodMs: Millis, run: () => void): void {
    this.after(periodMs, () => {
      run()
      this.every(periodMs, run)
    })
  }
}

/** What an append says of itself when its commit begins, however late that reaches the database. */
const asSent = (append: Append): Append =>
  Object.create(append, { birthFloor: { value: append.birthFloor, enumerable: true } })
