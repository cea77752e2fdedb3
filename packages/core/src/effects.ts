/**
 * Defines the commands of the engine. The engine never waits: if a command has a reply, its comment names the engine
 * method that the driver calls with it. `packages/driver` implements this interface.
 */
import type {
  Append,
  Claimed,
  CloseCode,
  DeliveryRef,
  Extension,
  FrameOf,
  PoolClaimed,
  PoolWant,
  Reject,
  Release,
  RemoteClaimed,
  RemoteWant,
  Retry,
  ServerFrame,
  SessionRef,
  Settle,
  Want,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { DeliveryId, GroupId, MeshId, Millis, PeerKey, PeerNo, PoolId, SpaceId } from '@sealpost/std'

import type { Request, Requester } from './directory/request-types.ts'
import type { LiveSession, SocketId } from './model.ts'

export type { SocketId } from './model.ts'

/** A session whose validity the driver checks in the database. */
export interface SessionCheck {
  readonly session: SessionRef
  readonly live: LiveSession
}

/**
 * `buffered`: accepted, but the socket is full; the driver will call `drained`. `dropped`: not accepted, and the
 * connection is over, since frames after a gap would break the order.
 */
export type SendOutcome = 'sent' | 'buffered' | 'dropped'

/** Recipients, groups, pools and spaces that must be looked up. */
export interface Lookup {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  readonly pools: readonly PoolId[]
  /** Spaces that the sender records messages in. */
  readonly spaces: readonly PeerSpace[]
}

export interface PeerSpace {
  readonly peer: PeerNo
  readonly spaceId: SpaceId
}

export interface SessionRefusal {
  readonly code: CloseCode
  readonly retryAfterMs: Millis
}

export type HandshakeFrame = FrameOf<'auth' | 'enrol' | 'enrolDevice'>

/** A change to deliveries other than a settle. If the change is lost, the delivery is pushed again after its lease. */
export type DeliveryUpdate =
  /** Returns deliveries to the queue for another attempt. */
  | { readonly type: 'retry'; readonly retries: readonly Retry[] }
  /** Moves deliveries to the dead letters. Reply for deliveries with a receipt: `receiptsCommitted`. */
  | { readonly type: 'reject'; readonly rejects: readonly Reject[]; readonly withReceipt: readonly Settle[] }
  | { readonly type: 'extend'; readonly extensions: readonly Extension[] }
  /** Returns deliveries to their queues without a failed attempt. Reply for deliveries of pools: `released`. */
  | { readonly type: 'release'; readonly releases: readonly Release[] }
  /** Counts a failed attempt because the recipient left while it held the delivery. */
  | { readonly type: 'failAttempt'; readonly delivery: DeliveryRef }
  /** Sends receipts to the senders of these pushed deliveries. Reply: `receiptsCommitted`. */
  | { readonly type: 'notifyPushed'; readonly deliveries: readonly Settle[] }
  /** Marks lost deliveries as reported to the requester. */
  | { readonly type: 'forgetLost'; readonly requester: Requester; readonly ids: readonly DeliveryId[] }

interface Claims {
  /** Deliveries that wait for the session's own peer. */
  mailbox: { readonly want: Want; readonly claimed: Claimed }
  /** Deliveries that other shards leased to the session on insert. */
  remote: { readonly want: RemoteWant; readonly claimed: RemoteClaimed }
  /** Deliveries of a pool that sessions on this shard work for. */
  pool: { readonly want: PoolWant; readonly claimed: PoolClaimed }
}
export type ClaimKind = keyof Claims
export type ClaimWantOf<Kind extends ClaimKind> = Claims[Kind]['want'] & { readonly kind: Kind }
/** Wants of one kind share a database statement. */
export type ClaimWant = { [Kind in ClaimKind]: ClaimWantOf<Kind> }[ClaimKind]
export interface ClaimResultOf<Kind extends ClaimKind> {
  readonly want: ClaimWantOf<Kind>
  readonly claimed: Claims[Kind]['claimed']
}
export type ClaimResult = { [Kind in ClaimKind]: ClaimResultOf<Kind> }[ClaimKind]

export interface Effects {
  /** Sends frames in order, in one write if the socket allows it. */
  send(socket: SocketId, frames: readonly ServerFrame[]): SendOutcome
  /** Ends the connection, and sends the refusal if there is one. The driver need not call `closed`. */
  close(socket: SocketId, refusal: SessionRefusal | null): void
  ping(socket: SocketId): void
  /** Stops reading from a socket whose sender outpaces the database. */
  pause(socket: SocketId): void
  resume(socket: SocketId): void

  /**
   * Checks the peer's proof in a handshake. `auth`: looks up the key and checks the signature, against a dummy key if
   * the key is unknown; reply: `authenticated`. Otherwise checks an invite, or a user's statement about a device, and
   * makes the peer a member; reply: `enrolled`.
   */
  verify(socket: SocketId, hello: FrameOf<'hello'>, proof: HandshakeFrame): void
  /** Opens the peer's session on this shard, unless the epoch has changed since it was read. Reply: `opened`. */
  open(socket: SocketId, session: SessionRef): void
  /**
   * Assigns the session a new epoch after a reply was lost, which voids all its leases. Reply: `fenced`, however late.
   */
  fence(socket: SocketId, session: SessionRef): void

  /**
   * Checks whether these sessions are still valid. Reply: `validity.checked`, or none if the database is unavailable;
   * the engine then checks again later.
   */
  checkSessions(checks: readonly SessionCheck[]): void

  /** Stores an envelope with the next group commit. Reply: `committed` or `commitFailed`, in the order of the appends. */
  append(append: Append): void
  /** Deletes a delivery with a later group commit. There is no reply: a delivery that is not settled is pushed again. */
  settle(delivery: Settle): void
  /** Calls back when everything that the session's peer settled, rejected or retried is committed, or after 2 s. */
  whenSettled(session: SessionRef, then: () => void): void
  updateDeliveries(update: DeliveryUpdate): void
  /** Adds the want to the next claim statement of its kind. Reply: `claimed` or `claimFailed`. */
  claim(want: ClaimWant): void

  /** Measures the backlog of a recipient or of the whole mesh. Reply: `measured`. */
  measure(meshId: MeshId, scope: PeerNo | 'mesh'): void
  /** Looks up members by key, and the newest statements of groups, pools and spaces. Reply: `resolved`. */
  resolve(socket: SocketId, meshId: MeshId, lookup: Lookup): void
  /** Carries out a member's request. Reply: `replied`, or none if the database is unavailable; the client retries. */
  request(request: Request): void
  /** Publishes a hint to the other shards. It may be lost. */
  hint(hint: Hint): void
  /** Subscribes to hints about a mesh. Replies: `hints.received`, `hints.subscribed`. */
  follow(meshId: MeshId): void
  /** Waits until the other shards have had time to report who is online in the mesh. Reply: `presence.repliesDue`. */
  awaitPresence(meshId: MeshId): void
  unfollow(meshId: MeshId): void
}
