/**
 * The durable side: what a broker asks of its database. Each method is one statement, done whole or not at all, but
 * for a commit that meets resends, which takes a second one. When a method rejects with a `retryable` error, nobody knows
 * what was done; each can therefore be repeated, and a late twin of a statement that timed out can do no harm, because
 * the epochs and marks it names have passed.
 *
 * Two implementations pass one conformance suite: Postgres, and the simulator's memory.
 */
import type {
  Append,
  Claimed,
  Committed,
  DeliveryRef,
  Extension,
  KeyBindingEntry,
  Lost,
  Member,
  PoolClaimed,
  PoolEntry,
  PoolWant,
  Reject,
  Release,
  RemoteClaimed,
  RemoteWant,
  Retry,
  SenderBacklog,
  SessionRef,
  SessionStatus,
  Settle,
  Want,
} from '@sealpost/protocol'
import type { DeliveryId, MeshId, Millis, PeerKey, PeerNo, PoolId } from '@sealpost/std'

export interface Queue {
  /** Stores and deletes, in one commit. Ids ascend in the order of the appends. */
  commit(batch: Batch): Promise<Committed>
  /**
   * For each want, up to `limit` deliveries that nobody holds a valid lease on, by priority, then oldest first. Each
   * gets a lease of `leaseMs` and counts an attempt; one not settled by then may be claimed again (P7).
   */
  claim(wants: readonly Want[]): Promise<Claimed[]>
  /**
   * For each want what other shards leased to its session at birth, in the order of ids. It changes nothing: asked again, it
   * brings the same.
   */
  collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]>
  /**
   * This shard serves the peer from now on, under a new epoch. `session` names the one that was read (`findMembers`):
   * without it an opening that timed out and is applied late would end the session its peer has opened since. `null`:
   * not a member, revoked, or the epoch has passed: someone opened or fenced meanwhile.
   */
  open(session: SessionRef): Promise<number | null>
  /** A new epoch for a session of this shard, which voids its leases. `null`: it is served elsewhere. */
  fence(session: SessionRef): Promise<number | null>
  /** Whether sessions of this shard may go on. */
  checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]>
  /** Free for another attempt after `afterMs`, at most 5 minutes, each with a strike. */
  retry(retries: readonly Retry[]): Promise<void>
  /** To the dead letters, with what the recipient said; the sender hears of it if it asked to. */
  reject(rejects: readonly Reject[]): Promise<void>
  /** The leases of what this session holds go on for `forMs` from now, at most 5 minutes. */
  extend(extensions: readonly Extension[]): Promise<void>
  /** Deals what waits in pools to members that are free; each may take one for each of its slots. */
  claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]>
  /** Free for the other members of their pools, at once and without a strike. */
  release(releases: readonly Release[]): Promise<void>
  findPools(meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]>
  /** Puts a receipt `pushed` into the senders' queues. */
  notifyPushed(deliveries: readonly DeliveryRef[]): Promise<void>
  countFailedAttempt(delivery: DeliveryRef): Promise<void>
  /** Puts what was delayed and is due into the queue. */
  releaseDue(): Promise<Released>
  /** What left the peer's queue unsettled and it was not told of, oldest first. */
  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]>
  lostReported(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void>
  /** What waits for each recipient, of each sender; it looks at `max` deliveries of one recipient at most. */
  measure(recipients: readonly RecipientRef[], max: number): Promise<SenderBacklog[][]>
  /** The same in the whole of a mesh, dead letters included; it looks at `max` rows of each kind at most. */
  measureMesh(meshId: MeshId, max: number): Promise<SenderBacklog[]>
  /** Looks at the next rows of the queue and of the ledger, and moves out what is over. Call it again and again. */
  sweep(): Promise<Swept>
  findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]>
  findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]>
}

export interface RecipientRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
}

export interface Batch {
  readonly appends: readonly Append[]
  readonly settles: readonly Settle[]
}

export interface Released {
  /** Whose queues have something new. */
  readonly recipients: readonly RecipientRef[]
  /** Until the next one is due; null: there is none. */
  readonly nextInMs: Millis | null
}

export interface Swept {
  readonly expired: number
  readonly dead: number
  /** Ledger rows whose time had passed. */
  readonly forgotten: number
  /** The scan reached the end of the queue; the next one starts at its beginning. */
  readonly isRound: boolean
}

export interface QueueOptions {
  readonly leaseMs: Millis
  /** A resend is known this long after its envelope was accepted, and for as long as that is queued. */
  readonly dedupeMs: Millis
  /** A delivery with this many strikes, spread over at least `failedAttemptsSpanMs`, becomes a dead letter. */
  readonly failedAttemptsMax: number
  readonly failedAttemptsSpanMs: Millis
  /** Rows one sweep looks at. */
  readonly sweepRows: number
}

export const defaultQueueOptions: QueueOptions = {
  leaseMs: 30_000,
  dedupeMs: 24 * 3600_000,
  failedAttemptsMax: 20,
  failedAttemptsSpanMs: 10 * 60_000,
  sweepRows: 5_000,
}
