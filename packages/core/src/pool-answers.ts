/** What the database answers about pools, as it comes back to the engine. */
import type { FrameOf, GiveBack, PoolClaimed, PoolEntry, PoolWant } from '@sealpost/protocol'
import type { Context } from './context.ts'
import type { Asker, SocketId } from './effects.ts'
import type { Pools } from './pools.ts'
import type { LiveSession } from './session.ts'

/** What became of a pool's statement; the pool as it is now, when it stands. */
export type PoolAnswer =
  | { readonly outcome: 'done'; readonly pool: PoolEntry | null }
  | { readonly outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'> }

export interface PoolPage {
  readonly statements: readonly Uint8Array[]
  readonly isLast: boolean
}

export class PoolAnswers {
  private readonly context: Context
  private readonly pools: Pools
  private readonly live: (socket: SocketId) => LiveSession | null

  constructor(context: Context, pools: Pools, live: (socket: SocketId) => LiveSession | null) {
    this.context = context
    this.pools = pools
    this.live = live
  }

  /** Also when the asker left meanwhile: who was taken out hears of it. */
  wasSet(socket: SocketId, { meshId }: Asker, { ref }: FrameOf<'setPool'>, answer: PoolAnswer): void {
    const live = this.live(socket)
    if (live) this.context.send(live, [{ type: 'groupSet', ref, outcome: answer.outcome }])
    const mesh = this.context.roster.find(meshId)
    if (answer.outcome === 'done' && answer.pool) {
      this.context.effects.hint({ type: 'stalePool', meshId, pool: answer.pool.poolId })
      if (mesh) this.pools.learn({ mesh }, answer.pool)
    }
    this.context.flush()
  }

  listed(socket: SocketId, { ref }: FrameOf<'pools'>, { statements, isLast }: PoolPage): void {
    const live = this.live(socket)
    if (live) this.context.send(live, [{ type: 'groupList', ref, statements: [...statements], isLast }])
  }

  found(socket: SocketId, frame: FrameOf<'joinPool'>, pool: PoolEntry | null): void {
    const live = this.live(socket)
    if (live) this.pools.found(live, frame, pool)
    this.context.flush()
  }

  claimed(answers: readonly { want: PoolWant; claimed: PoolClaimed }[]): void {
    for (const { want, claimed } of answers) this.pools.claimed(want, claimed)
    this.context.flush()
  }

  claimFailed(wants: readonly PoolWant[]): void {
    for (const want of wants) this.pools.claimFailed(want)
  }

  gaveBack(gifts: readonly GiveBack[]): void {
    this.pools.gaveBack(gifts)
    this.context.flush()
  }
}
