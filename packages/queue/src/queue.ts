/**
 * Defines the port between a broker and its durable queue. Each method is one atomic statement; only a commit with
 * resends takes a second statement. After a `retryable` error, the outcome is unknown and the call can be repeated. A
 * statement that is applied late changes nothing, because its epochs and marks are outdated by then.
 *
 * Two implementations pass the same conformance suite: one on Postgres, and one in memory for the simulator.
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
  /** Stores the appends and deletes the settled deliveries in one commit. Ids ascend in the order of the appends. */
  commit(batch: Batch): Promise<Committed>
  /**
   * For each want, claims up to `limit` deliveries without a valid lease, by priority, then oldest first. Each delivery
   * is leased for `leaseMs` and counts an attempt. A delivery that is not settled by then may be claimed again (P7).
   */
  claim(wants: readonly Want[]): Promise<Claimed[]>
  /**
   * Reads the deliveries that other shards leased on insert to each want's session, in the order of ids. Changes
   * nothing.
   */
  collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]>
  /**
   * Opens the peer's session on this shard and returns its new epoch; `null` if the peer is no longer a member or its
   * epoch has changed. `session` must contain the epoch from `findMembers`, so that a late call can't end a newer
   * session.
   */
  open(session: SessionRef): Promise<number | null>
  /** Voids the leases of a session of this shard. Returns its new epoch, or `null` if another shard has the session. */
  fence(session: SessionRef): Promise<number | null>
  /** Checks whether sessions of this shard are still valid. */
  checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]>
  /** Ends leases, each with a failed attempt, and allows the next one after `afterMs`, at most 5 minutes. */
  retry(retries: readonly Retry[]): Promise<void>
  /**
   * Moves deliveries to the dead letters with the recipient's reason, and queues a receipt for each sender that asked for
   * one.
   */
  reject(rejects: readonly Reject[]): Promise<void>
  /** Extends held leases to `forMs` from now, at most 5 minutes. */
  extend(extensions: readonly Extension[]): Promise<void>
  /** Assigns pools' deliveries to free members, one delivery for each slot. */
  claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]>
  /** Ends leases without a failed attempt. For an untouched delivery, the attempt does not count. */
  release(releases: readonly Release[]): Promise<void>
  findPools(meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]>
  /** Queues a `pushed` receipt for the sender of each delivery. */
  notifyPushed(deliveries: readonly DeliveryRef[]): Promise<void>
  /** Adds a failed attempt to a delivery that may have crashed its recipient's process. */
  countFailedAttempt(delivery: DeliveryRef): Promise<void>
  /** Moves delayed deliveries that are due into the queue. */
  releaseDue(): Promise<Released>
  /** Finds deliveries that left the peer's queue unsettled and were not reported, oldest first. */
  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]>
  /** Marks lost deliveries as reported. */
  lostReported(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void>
  /** Counts each recipient's backlog by sender, up to `max` deliveries. */
  measure(recipients: readonly RecipientRef[], max: number): Promise<SenderBacklog[][]>
  /** Counts the backlog and the dead letters of a mesh by sender, up to `max` rows of each kind. */
  measureMesh(meshId: MeshId, max: number): Promise<SenderBacklog[]>
  /**
   * Scans the next rows of the queue and ledger, and removes those that have expired or failed too often. Call
   * periodically.
   */
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
  readonly recipients: readonly RecipientRef[]
  /** The time until the next delayed delivery is due; null if there is none. */
  readonly nextInMs: Millis | null
}

export interface Swept {
  readonly expired: number
  readonly dead: number
  readonly forgotten: number
  /** Whether the scan reached the end of the queue, so that the next one starts at the beginning. */
  readonly isRound: boolean
}

export interface QueueOptions {
  readonly leaseMs: Millis
  /** How long resends are detected after an envelope was accepted, or longer while its delivery is queued. */
  readonly dedupeMs: Millis
  /**
   * The number of failed attempts after which a delivery becomes a dead letter, if they span at least
   * `failedAttemptsSpanMs`.
   */
  readonly failedAttemptsMax: number
  readonly failedAttemptsSpanMs: Millis
  readonly sweepRows: number
}

export const defaultQueueOptions: QueueOptions = {
  leaseMs: 30_000,
  dedupeMs: 24 * 3600_000,
  failedAttemptsMax: 20,
  failedAttemptsSpanMs: 10 * 60_000,
  sweepRows: 5_000,
}
