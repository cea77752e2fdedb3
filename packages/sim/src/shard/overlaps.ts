/**
 * A claim that overlaps with the settles of its peer's former session: it picks rows in its starting snapshot, and does
 * not return those that are settled meanwhile. In some worlds one peer writes steadily to another one that moves
 * between the shards; the settles of each session are held back until a claim of the next one has begun. It has a
 * random source of its own, like `Ends`, so that seeds without overlaps keep their worlds.
 */
import type { Settle, Want } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import { type Millis, type Random, seededRandom } from '@sealpost/std'
import type { SimPeer } from '../peer/sim-peer.ts'
import type { World } from '../world.ts'
import type { ShardLife } from './shard-life.ts'

const SALT = 0x0ca1f
const FROM_MS = 500
const SENDS = 50
const MOVES = 3
const MOVE_AFTER_MS = 50
const HELD_MS_MAX = 3_000
/** Held settles are committed in parts, within this time. */
const WAITING_MS = 500

export class Overlaps {
  private readonly world: World
  private readonly random: Random
  private readonly isOn: boolean
  private mover: SimPeer | null = null
  private isMoveDue = false
  private releasedAtMs: Millis = -Infinity
  private held: { readonly shard: ShardLife; readonly begin: () => void }[] = []

  constructor(world: World, seed: number) {
    this.world = world
    this.random = seededRandom(seed ^ SALT)
    this.isOn = this.random.chance(0.2)
  }

  schedule([from, to]: readonly SimPeer[]): void {
    if (!this.isOn) return
    this.mover = to!
    const { clock } = this.world
    const spacingMs = 60 + this.random.below(60)
    for (let i = 0; i < SENDS; i++) clock.after(FROM_MS + i * spacingMs, () => from!.post(to!.peerKey, 'next'))
    for (let i = 0; i < MOVES; i++)
      clock.after(FROM_MS + this.random.next() * SENDS * spacingMs, () => {
        this.isMoveDue = true
      })
  }

  /** Resolves at once, or when a claim of the next session has begun. */
  async mayCommit(shard: ShardLife, { settles }: Batch): Promise<void> {
    if (!this.isMoveDue || !settles.some((settle) => this.isToTalker(settle))) return
    const { clock } = this.world
    this.isMoveDue = false
    clock.after(MOVE_AFTER_MS, () => this.mover!.move())
    clock.after(HELD_MS_MAX, () => this.release())
    await new Promise<void>((begin) => this.held.push({ shard, begin }))
  }

  /**
   * Returns the version of the store that the claim sees. A claim of the next session waits for the commits that were
   * held for it.
   */
  async mayClaim(shard: ShardLife, wants: readonly Want[]): Promise<number | undefined> {
    const isElsewhere = this.held.some((one) => one.shard !== shard)
    const isNext = wants.some(({ session }) => this.isToTalker({ ...session, recipient: session.peer }))
    if (!isElsewhere || !isNext) return undefined
    const { clock, plan, store } = this.world
    const asOf = store.version
    this.release()
    await new Promise<void>((begin) => clock.after(plan.databaseMs + 1, begin))
    return asOf
  }

  /** Returns whether commits since then may have been held here. */
  mayLackSince(ms: Millis): boolean {
    return this.held.length > 0 || ms < this.releasedAtMs + WAITING_MS
  }

  private release(): void {
    if (this.held.length > 0) this.releasedAtMs = this.world.clock.nowMs
    for (const { begin } of this.held.splice(0)) begin()
  }

  private isToTalker({ meshId, recipient }: Pick<Settle, 'meshId' | 'recipient'>): boolean {
    const { mover } = this
    return meshId === mover?.meshId && recipient === this.world.store.findByKey(meshId, mover.peerKey)!.peer
  }
}
