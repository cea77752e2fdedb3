/**
 * Simulates a broker process from its start to its crash: the real driver and engine in virtual time, over simulated
 * statements, connections and hints.
 */
import type { DeliveryUpdate, Engine, SocketId } from '@sealpost/core'
import {
  type Clock,
  Driver,
  type DriverOptions,
  type DriverPorts,
  type DriverReport,
  type HintBus,
} from '@sealpost/driver'
import {
  type Append,
  type ClientFrame,
  type FrameOf,
  PROTOCOL_VERSIONS,
  type SessionRef,
  type Settle,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, Millis, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import { NORMAL, type SimulatedLink } from '../network.ts'
import { DriverWatch } from '../oracle/driver-watch.ts'
import { HeardConsents } from '../oracle/membership.ts'
import type { ShardRun, ShardRunOptions, Surroundings } from '../surroundings.ts'
import { SimulatedConnection, SimulatedRequests } from './simulated-connection.ts'
import { SimulatedQueue } from './simulated-queue.ts'
import { WatchedStatements, watchLeaver, watchUntouched } from './watched-statements.ts'

const SWEEP_MS: Millis = 3_000
const REPLY_MS: Millis = 250
const FOLLOW_MS_MAX: Millis = 50
const BATCH = { appendsMax: 12, appendBytesMax: 4_096, settlesMax: 6, settlesDueAt: 4 }
const CLAIMS = { tickMs: 5, wantsMax: 3, deliveriesAim: 8 }
export const BROKER_KEY = 'bb'.repeat(32) as PeerKey

export class ShardLife implements ShardRun {
  readonly world: Surroundings
  readonly driver: Driver
  readonly heard = new HeardConsents()
  readonly watch: DriverWatch
  isOver = false
  private readonly queue: SimulatedQueue
  private readonly requests: SimulatedRequests
  readonly shard: ShardId
  private readonly connections = new Map<string, SimulatedConnection>()
  private readonly followed = new Set<MeshId>()
  private listener: Parameters<HintBus['subscribe']>[0] | null = null

  constructor(world: Surroundings, shard: ShardId, { limits, queue }: ShardRunOptions) {
    this.world = world
    this.shard = shard
    this.watch = new DriverWatch(world.clock, () => this.isOver)
    const statements = new WatchedStatements(world, shard, queue)
    this.queue = new SimulatedQueue(this, statements)
    const connectionOf = (authority: string) => this.connections.get(authority)!
    this.requests = new SimulatedRequests(this, { queue: this.queue, statements, connectionOf })
    this.driver = new WatchedDriver(this, this.ports(), {
      engine: { limits, incarnation: '0'.repeat(32), durability: 'fsync' },
      batch: BATCH,
      claims: CLAIMS,
      sweepMs: SWEEP_MS,
    })
  }

  get engine(): Engine {
    return this.driver.engine
  }

  crash(): void {
    this.isOver = true
    for (const connection of this.connections.values()) connection.link.breakServer()
  }

  /** Refuses new work, finishes accepted work, and closes its connections. */
  shutdown(ended: () => void): void {
    const { clock } = this.world
    const startedAtMs = clock.nowMs
    const over = () => {
      if (this.isOver) return // the shard has crashed in the meantime
      this.watch.shutDown(clock.nowMs - startedAtMs)
      this.isOver = true
      ended()
    }
    this.driver
      .shutdown()
      .then(over)
      .catch((error) => this.world.fail(error))
  }

  connect(link: SimulatedLink): void {
    const connection = new SimulatedConnection(this, link, `connection ${this.connections.size}`)
    this.connections.set(connection.authority, connection)
    link.accept({
      received: (frame) => this.received(connection, frame),
      closed: (closeNumber) => {
        if (!connection.isOpen) return
        connection.isOpen = false
        const { peer, epoch, socket } = connection
        const isOver = () => this.isOver
        const isNormal = closeNumber === NORMAL
        if (peer && isNormal) watchUntouched(this.world, { ...peer, epoch, ids: connection.untouched }, isOver)
        this.driver.disconnected(socket, isNormal ? 'normal' : 'broken')
        if (peer) watchLeaver(this.world, { ...peer, epoch }, isOver)
      },
    })
    connection.socket = this.driver.connected(connection, helloAt(this.world.clock.nowMs))
  }

  connectionOf(authority: string): SimulatedConnection {
    return this.connections.get(authority)!
  }

  heardHint(from: ShardLife, hint: Hint): void {
    if ('meshId' in hint && !this.followed.has(hint.meshId)) return
    if (!this.isOver) this.listener?.onHints(from.shard, [hint])
  }

  received(connection: SimulatedConnection, frame: ClientFrame): void {
    if (!connection.isOpen || this.isOver) return
    connection.noteReceived(frame)
    this.driver.step(() => this.engine.received(connection.socket, frame))
  }

  connectionFor(meshId: MeshId, no: PeerNo): SimulatedConnection | undefined {
    const isOf = ({ peer, member, isOpen }: SimulatedConnection) =>
      isOpen && peer?.meshId === meshId && member?.peer === no
    return [...this.connections.values()].findLast(isOf)
  }

  after(delayMs: Millis, run: () => void): void {
    this.world.clock.after(delayMs, () => {
      if (!this.isOver) run()
    })
  }

  private ports(): DriverPorts {
    return {
      clock: this.clock(),
      random: this.world.random.next,
      queue: this.queue,
      bus: this.bus(),
      requests: this.requests,
      report: this.report(),
    }
  }

  private clock(): Clock {
    const { clock } = this.world
    return {
      nowMs: () => clock.nowMs,
      wallMs: () => clock.nowMs,
      after: (delayMs, run) => {
        let isCancelled = false
        this.after(delayMs, () => !isCancelled && run())
        return () => {
          isCancelled = true
        }
      },
      soon: (run) => this.after(0, run),
    }
  }

  private bus(): HintBus {
    return {
      replyMs: REPLY_MS,
      publish: (hint) => this.world.hint(this, hint),
      follow: (meshId) =>
        this.after(this.world.random.next() * FOLLOW_MS_MAX, () => {
          this.followed.add(meshId)
          this.listener?.onFollowing([meshId])
        }),
      unfollow: (meshId) => void this.followed.delete(meshId),
      subscribe: (listener) => {
        this.listener = listener
      },
    }
  }

  private report(): DriverReport {
    const { oracle } = this.world
    return {
      failed: (event) => oracle.mark(`driver: ${event}`),
      fault: (error) => this.world.fail(error),
      committed: () => undefined,
      commitFailed: () => undefined,
      recorded: () => undefined,
      claimed: () => undefined,
      swept: () => undefined,
      closed: (_, code) => oracle.closed(code),
    }
  }
}

class WatchedDriver extends Driver {
  private readonly life: ShardLife

  constructor(life: ShardLife, ports: DriverPorts, options: DriverOptions) {
    super(ports, options)
    this.life = life
  }

  override step(decide: () => void): void {
    if (this.life.isOver) return
    super.step(() => {
      decide()
      this.life.world.inside.look(this.engine)
    })
  }

  override append(append: Append): void {
    const { heard, watch, world } = this.life
    if (heard.bars(append)) world.oracle.unwelcome()
    if (append.insertLeaseEpoch !== 0 && this.life.connectionFor(append.meshId, append.recipient)?.isResting)
      world.oracle.disturbed()
    watch.append(append)
    super.append(append)
  }

  override settle(settle: Settle): void {
    this.life.watch.settle(settle)
    super.settle(settle)
  }

  override updateDeliveries(update: DeliveryUpdate): void {
    const { watch } = this.life
    if (update.type === 'retry') watch.asked('retry', update.retries)
    if (update.type === 'reject') watch.asked('reject', update.rejects)
    if (update.type === 'extend') watch.asked('extension', update.extensions)
    if (update.type === 'release') watch.asked('release', update.releases)
    super.updateDeliveries(update)
  }

  override open(socket: SocketId, session: SessionRef): void {
    this.life.watch.opens(session)
    super.open(socket, session)
  }
}

const NOTHING = new Uint8Array(32)
const helloAt = (nowMs: Millis): FrameOf<'hello'> => ({
  type: 'hello',
  versions: [...PROTOCOL_VERSIONS],
  brokerKey: BROKER_KEY,
  connectionId: NOTHING.subarray(16),
  nonce: NOTHING,
  issuedAtMs: nowMs,
  authWithinMs: 5_000,
})
