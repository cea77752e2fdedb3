/**
 * What the engine commands. It never waits: each command is answered, if at all, by a later call of the engine's method
 * named beside it. `packages/driver` implements it.
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

/** A session whose validity the database is asked about. */
export interface SessionCheck {
  readonly session: SessionRef
  readonly live: LiveSession
}

/**
 * `buffered`: taken, but the socket is full; the driver will call `drained`. `dropped`: not taken, and the connection
 * is over, since going on after a hole would break order.
 */
export type SendOutcome = 'sent' | 'buffered' | 'dropped'

/** Those that someone writes to and that are not known, or were not asked about lately. */
export interface Lookup {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  readonly pools: readonly PoolId[]
  /** The sender's. */
  readonly spaces: readonly PeerSpace[]
}

/** A space, as one peer asks for it. */
export interface PeerSpace {
  readonly peer: PeerNo
  readonly spaceId: SpaceId
}

export interface SessionRefusal {
  readonly code: CloseCode
  readonly retryAfterMs: Millis
}

export type HandshakeFrame = FrameOf<'auth' | 'enrol' | 'enrolDevice'>

/** A change of deliveries that is no settle. What the database does not get to know is pushed again after its lease. */
export type DeliveryUpdate =
  /** Returns deliveries to the queue for another attempt. */
  | { readonly type: 'retry'; readonly retries: readonly Retry[] }
  /** Moves deliveries to the dead letters. Reply for those with a receipt: `receiptsCommitted`. */
  | { readonly type: 'reject'; readonly rejects: readonly Reject[]; readonly withReceipt: readonly Settle[] }
  /** Extends leases. */
  | { readonly type: 'extend'; readonly extensions: readonly Extension[] }
  /** Leaves deliveries of pools to other members. Reply: `released`. */
  | { readonly type: 'release'; readonly releases: readonly Release[] }
  /** The recipient left while its oldest delivery had been with it for long. */
  | { readonly type: 'failAttempt'; readonly delivery: DeliveryRef }
  /** Sends the senders a receipt that these were pushed. Reply: `receiptsCommitted`. */
  | { readonly type: 'notifyPushed'; readonly deliveries: readonly Settle[] }
  /** The requester was sent these of its lost deliveries. */
  | { readonly type: 'forgetLost'; readonly requester: Requester; readonly ids: readonly DeliveryId[] }

interface Claims {
  /** What waits for the session's own peer. */
  mailbox: { readonly want: Want; readonly claimed: Claimed }
  /** What other shards leased to the session. */
  remote: { readonly want: RemoteWant; readonly claimed: RemoteClaimed }
  /** What waits for a pool that sessions work for. */
  pool: { readonly want: PoolWant; readonly claimed: PoolClaimed }
}
export type ClaimKind = keyof Claims
export type ClaimWantOf<Kind extends ClaimKind> = Claims[Kind]['want'] & { readonly kind: Kind }
/** Wants of one kind share a statement. */
export type ClaimWant = { [Kind in ClaimKind]: ClaimWantOf<Kind> }[ClaimKind]
export interface ClaimResultOf<Kind extends ClaimKind> {
  readonly want: ClaimWantOf<Kind>
  readonly claimed: Claims[Kind]['claimed']
}
export type ClaimResult = { [Kind in ClaimKind]: ClaimResultOf<Kind> }[ClaimKind]

export interface Effects {
  /** Sends frames in order, as one write where the socket allows it. */
  send(socket: SocketId, frames: readonly ServerFrame[]): SendOutcome
  /** Ends the connection, and sends the refusal if there is one. The driver need not call `closed`. */
  close(socket: SocketId, refusal: SessionRefusal | null): void
  ping(socket: SocketId): void
  /** Stop and go on reading from a socket whose sender is ahead of the database. */
  pause(socket: SocketId): void
  resume(socket: SocketId): void

  /**
   * Checks the peer's part of a handshake. `auth`: looks the key up and checks the signature, against a dummy key when the
   * key is unknown; reply: `authenticated`. Otherwise checks an invite, or a user's statement about a device, and makes the
   * peer a member; reply: `enrolled`.
   */
  verify(socket: SocketId, hello: FrameOf<'hello'>, proof: HandshakeFrame): void
  /** Make this shard the one that serves the peer, unless the epoch that was read has passed. Answer: `opened`. */
  open(socket: SocketId, session: SessionRef): void
  /** Void every lease of the session by a new epoch, after an answer was lost. Answer: `fenced`, however late. */
  fence(socket: SocketId, session: SessionRef): void

  /** Checks whether these sessions are still valid. Reply: `standings.found`, or none when the database is away: they are checked again. */
  checkSessions(checks: readonly SessionCheck[]): void

  /** Store an envelope with the next group commit. Answer: `committed` or `commitFailed`, in the order of the appends. */
  append(append: Append): void
  /** Delete a delivery with the next group commit. No answer: what is not settled is pushed again. */
  settle(delivery: Settle): void
  /** Call back when all that the peer of this session settled, rejected or gave back is committed, or after 2 s. */
  whenSettled(session: SessionRef, then: () => void): void
  /** Changes deliveries beside the group commit. */
  updateDeliveries(update: DeliveryUpdate): void
  /** Claim with the next statement for wants of this kind. Reply: `claimed` or `claimFailed`. */
  claim(want: ClaimWant): void

  /** Measures what waits for a recipient, or in the whole mesh. Reply: `measured`. */
  measure(meshId: MeshId, scope: PeerNo | 'mesh'): void
  /** Find members by key, the newest statements of groups, pools, and spaces. Answer: `resolved`. */
  resolve(socket: SocketId, meshId: MeshId, lookup: Lookup): void
  /** Carry out a request of a member. Reply: `replied`, or none when the database is away (the client asks again). */
  request(request: Request): void
  /** Say something to the other shards. It may be lost. */
  hint(hint: Hint): void
  /** Hear from now on what other shards say of this mesh, or no more. Answers: `hints.heard`, `hints.listening`. */
  follow(meshId: MeshId): void
  /** Other shards were asked who is there, and are to have time to answer. Answer: `presence.answered`. */
  awaitPresence(meshId: MeshId): void
  unfollow(meshId: MeshId): void
}
