/**
 * A member that leaves holds nothing of a pool for long: its leases end with its session, not by expiry. Checked while
 * the database has lost no statement: a lost retry or reject is not repeated, and its delivery waits for its lease.
 */
import type { StoredDelivery } from '@sealpost/queue/memory'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { World } from '../world.ts'

const WITHIN_STATEMENTS = 3
const ROOM_MS = 100

interface EndedSession {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  /** The epoch with which it opened: deliveries of a newer session of the peer don't count. */
  readonly epoch: number
}

export class Leavers {
  private readonly world: World

  constructor(world: World) {
    this.world = world
  }

  /**
   * The session has ended and its shard knows it. If the shard then crashes, it may lose the result of a claim, and
   * what that claimed stays leased until the lease expires.
   */
  left(session: EndedSession, isShardOver: () => boolean): void {
    const { world } = this
    const { databaseMs } = world.plan
    if (isShardOver()) return
    const held = this.heldBy(session)
    if (held.size === 0) return
    world.oracle.mark('pool: a holder left')
    const leftAtMs = world.clock.nowMs
    world.clock.after(WITHIN_STATEMENTS * databaseMs + ROOM_MS, () => {
      if (isShardOver() || world.path.hasLost || world.overlaps.mayLackSince(leftAtMs)) return
      for (const [row, lease] of this.heldBy(session)) if (held.get(row) === lease) world.oracle.keptByLeaver(row)
    })
  }

  /** Returns each lease itself; the member may get another one later. */
  private heldBy({ meshId, peerKey, epoch }: EndedSession) {
    const { store, clock } = this.world
    const holder = store.findByKey(meshId, peerKey)!.peer
    const isHeld = ({ lease }: StoredDelivery) => lease?.holder === holder && lease.epoch === epoch
    const rows = [...store.deliveries()].filter((row) => row.meshId === meshId && isHeld(row))
    return new Map(rows.filter(({ lease }) => lease!.untilMs > clock.nowMs).map((row) => [row, row.lease]))
  }
}
