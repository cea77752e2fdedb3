/** The effects of pools: the part of the driver that waits for them. */
import type { Asker, Engine, SocketId } from '@sealpost/core'
import type { FrameOf, GiveBack, PoolWant } from '@sealpost/protocol'
import { Drain, type DrainOptions, type Queue } from '@sealpost/queue'
import type { MeshId, Millis } from '@sealpost/std'
import type { PoolRegistrar } from './pool-registrar.ts'

export interface PoolParts {
  readonly queue: Queue
  readonly pools: PoolRegistrar
}

export abstract class PoolDriver {
  abstract readonly engine: Engine
  protected readonly parts: PoolParts
  private readonly poolDrain: Drain<PoolWant>

  constructor(parts: PoolParts, drain: DrainOptions) {
    this.parts = parts
    this.poolDrain = new Drain(
      {
        start: (wants) => void this.dealFrom(wants),
        schedule: (ms: Millis, tick) => void setTimeout(tick, ms),
        nowMs: () => performance.now(),
      },
      drain,
    )
  }

  abstract step(decide: () => void): void
  protected abstract ask<T>(event: string, asked: Promise<T>, answered?: (answer: T) => void, failed?: () => void): void
  protected abstract complain(event: string, error: unknown): void

  protected pullDrains(): void {
    this.poolDrain.pull()
  }

  setPool(socket: SocketId, asker: Asker, setPool: FrameOf<'setPool'>): void {
    this.ask('pool', this.parts.pools.set(asker, setPool), (answer) => {
      if (answer) this.engine.pools.wasSet(socket, asker, setPool, answer)
    })
  }

  listPools(socket: SocketId, meshId: MeshId, pools: FrameOf<'pools'>): void {
    this.ask('pools', this.parts.pools.list(meshId, pools), (page) => this.engine.pools.listed(socket, pools, page))
  }

  findPool(socket: SocketId, meshId: MeshId, join: FrameOf<'joinPool'>): void {
    this.ask('join', this.parts.queue.findPools(meshId, [join.pool]), ([pool = null]) =>
      this.engine.pools.found(socket, join, pool),
    )
  }

  claimPool(want: PoolWant): void {
    this.poolDrain.want(want)
  }

  giveBack(gifts: readonly GiveBack[]): void {
    this.ask('give', this.parts.queue.giveBack(gifts), () => this.engine.pools.gaveBack(gifts))
  }

  private async dealFrom(wants: readonly PoolWant[]): Promise<void> {
    try {
      const claimed = await this.parts.queue.claimPools(wants)
      this.step(() => this.engine.pools.claimed(wants.map((want, i) => ({ want, claimed: claimed[i]! }))))
    } catch (error) {
      this.complain('deal.failed', error)
      this.step(() => this.engine.pools.claimFailed(wants))
    }
    this.poolDrain.ended()
  }
}
