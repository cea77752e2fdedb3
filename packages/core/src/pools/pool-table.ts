/** The pools of a mesh, as far as somebody here writes to them or works for them. */
import type { PoolEntry } from '@sealpost/protocol'
import type { DeliveryId, Millis, PeerKey, PeerNo, PoolId } from '@sealpost/std'
import { WeightedFairQueue } from '../deliver/weighted-fair-queue.ts'
import { unknownMailbox } from '../send/mailboxes.ts'
import type { LiveSession } from '../session/session.ts'

/** A session's place in a pool. */
export interface Seat {
  readonly live: LiveSession
  readonly pool: Pool
  credit: number
  /** Pushed and not settled. What lapsed still counts: who hangs over one is given no other. */
  readonly held: Set<DeliveryId>
  /** Something may wait that it can take. */
  mayFind: boolean
  /** The moment it was given something. */
  servedAt: number
}

export class Pool {
  readonly poolId: PoolId
  /** Its number as a recipient. */
  readonly peer: PeerNo
  /** No session is the pool's. */
  readonly live = null
  readonly seats = new Map<LiveSession, Seat>()
  readonly fairQueue = new WeightedFairQueue()
  readonly mailbox = unknownMailbox()
  epoch = 0
  /** By each key that they have or had. */
  members: ReadonlyMap<PeerKey, PeerNo> = new Map()
  goodUntilMs: Millis = 0
  isClaiming = false
  /** What was dealt last may end its holder's process (`ALONE_AFTER_ATTEMPTS`): a member is given one at a time. */
  isWary = false
  /** Deliveries that came while somebody here was free, and that nobody here was given: other shards are to hear of them. */
  unserved = 0

  constructor({ poolId, pool }: PoolEntry) {
    this.poolId = poolId
    this.peer = pool
  }
}

/** As of groups: how long another shard's change may stay unseen here. The claims see each at once. */
const GOOD_FOR_MS = 15_000

export class PoolTable {
  private readonly byId = new Map<PoolId, Pool>()
  private readonly byNo = new Map<PeerNo, Pool>()

  /** Answers of the database overtake one another: the newest statement stays. */
  add(entry: PoolEntry, nowMs: Millis): Pool {
    const pool = this.byId.get(entry.poolId) ?? new Pool(entry)
    this.byId.set(pool.poolId, pool)
    this.byNo.set(pool.peer, pool)
    pool.goodUntilMs = nowMs + GOOD_FOR_MS
    if (entry.epoch < pool.epoch) return pool
    // Of one epoch the members are the same, and their keys only grow more.
    const known = entry.epoch === pool.epoch ? pool.members : []
    pool.epoch = entry.epoch
    pool.members = new Map([...known, ...entry.members.map(({ peerKey, peer }) => [peerKey, peer] as const)])
    return pool
  }

  /** It has another key now: its pools are to be read anew. */
  memberRotated(member: PeerNo): void {
    for (const pool of this.byId.values()) if ([...pool.members.values()].includes(member)) pool.goodUntilMs = 0
  }

  /** Undefined for one that is to be looked up, perhaps once more. */
  find(poolId: PoolId, nowMs: Millis): Pool | undefined {
    const pool = this.byId.get(poolId)
    return pool && nowMs < pool.goodUntilMs ? pool : undefined
  }

  /** Somebody knows a statement of this epoch: an older one is to be read anew. */
  expect(poolId: PoolId, epoch: number): void {
    const pool = this.byId.get(poolId)
    if (pool && pool.epoch < epoch) pool.goodUntilMs = 0
  }

  numbered(pool: PeerNo): Pool | undefined {
    return this.byNo.get(pool)
  }

  get(poolId: PoolId): Pool | undefined {
    return this.byId.get(poolId)
  }
}
