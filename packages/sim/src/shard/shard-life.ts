/**
 * One run of a broker process, from its start to its crash: the real driver and engine, on virtual time, with the
 * simulated database path, connections and hints.
 */
import type { Engine, EngineLimits } from '@sealpost/core'
import type { Clock, DriverPorts, DriverReport, HintBus } from '@sealpost/driver'
import { type ClientFrame, type FrameOf, PROTOCOL_VERSIONS } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, Millis, PeerKey, ShardId } from '@sealpost/std'
import type { SimulatedLink } from '../network/link.ts'
import { HeardConsents } from '../oracle/consents.ts'
import type { World } from '../world.ts'
import { SimulatedConnection } from './simulated-connection.ts'
import type { SimulatedQueue } from './simulated-queue.ts'
import type { SimulatedRequests } from './simulated-requests.ts'
import type { WatchedDriver } from './watched-driver.ts'
import type { WatchedStatements } from './watched-statements.ts'

const SWEEP_MS: Millis = 3_000
const REPLY_MS: Millis = 250
const FOLLOW_MS_MAX: Millis = 50
const BATCH = { appendsMax: 12, appendBytesMax: 4_096, settlesMax: 6, settlesDueAt: 4 }
const CLAIMS = { tickMs: 5, wantsMax: 3 }
export const BROKER_KEY = 'bb'.repeat(32) as PeerKey

export class ShardLife {
  readonly world: World
  readonly shard: ShardId
  readonly statements: WatchedStatements
  readonly queue: SimulatedQueue
  readonly requests: SimulatedRequests
  readonly driver: WatchedDriver
  readonly heard = new HeardConsents()
  isOver = false
  endsSinceMs: Millis = Infinity
  readonly #connections = new Map<string, SimulatedConnection>()
  readonly #followed = new Set<MeshId>()
  #listener: Parameters<HintBus['subscribe']>[0] | null = null

  constructor(world: World, statements: WatchedStatements, limits: EngineLimits) {
    this.world = world
    this.statements = statements
    this.shard = statements.shard
    this.queue = new world.parts.Queue(this, statements, world)
    this.requests = new world.parts.Requests(this)
    this.driver = new world.parts.Driver(this, this.#ports(), {
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
    for (const connection of this.#connections.values()) connection.link.breakServer()
  }

  /** Shuts down like a broker: refuses new work, finishes accepted work, and closes its connections. */
  shutdown(ended: () => void): void {
    this.endsSinceMs = this.world.clock.nowMs
    this.driver.shutdown().then(
      () => {
        this.isOver = true
        ended()
      },
      (error) => this.world.fail(error),
    )
  }

  connect(link: SimulatedLink): void {
    const connection = new SimulatedConnection(this, link, `connection ${this.#connections.size}`)
    this.#connections.set(connection.authority, connection)
    link.accept({
      received: (frame) => this.received(connection, frame),
      closed: () => {
        if (!connection.isOpen) return
        connection.isOpen = false
        this.driver.disconnected(connection.socket)
        const { peer, epoch } = connection
        if (peer) this.world.leavers.left({ ...peer, epoch }, () => this.isOver)
      },
    })
    connection.socket = this.driver.connected(connection, helloAt(this.world.clock.nowMs))
  }

  connectionOf(authority: string): SimulatedConnection {
    return this.#connections.get(authority)!
  }

  heardHint(from: ShardLife, hint: Hint): void {
    if ('meshId' in hint && !this.#followed.has(hint.meshId)) return
    if (!this.isOver) this.#listener?.onHints(from.shard, [hint])
  }

  received(connection: SimulatedConnection, frame: ClientFrame): void {
    if (!connection.isOpen || this.isOver) return
    connection.noteReceived(frame)
    this.driver.step(() => this.engine.received(connection.socket, frame))
  }

  after(delayMs: Millis, run: () => void): void {
    this.world.clock.after(delayMs, () => {
      if (!this.isOver) run()
    })
  }

  #ports(): DriverPorts {
    return {
      clock: this.#clock(),
      random: this.world.random.next,
      queue: this.queue,
      bus: this.#bus(),
      requests: this.requests,
      report: this.#report(),
    }
  }

  #clock(): Clock {
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

  #bus(): HintBus {
    return {
      replyMs: REPLY_MS,
      publish: (hint) => this.world.hint(this, hint),
      follow: (meshId) =>
        this.after(this.world.random.next() * FOLLOW_MS_MAX, () => {
          this.#followed.add(meshId)
          this.#listener?.onFollowing([meshId])
        }),
      unfollow: (meshId) => void this.#followed.delete(meshId),
      subscribe: (listener) => {
        this.#listener = listener
      },
    }
  }

  #report(): DriverReport {
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
