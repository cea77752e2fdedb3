/**
 * What the engine commands. It never waits: each command is answered, if at all, by a later call of the engine's method
 * named beside it. Two drivers implement this: the broker's, and the simulator's.
 */
import type {
  Append,
  CloseCode,
  CollectWant,
  DeliveryRef,
  Extension,
  FrameOf,
  GiveBack,
  Member,
  PoolWant,
  Reject,
  Retry,
  ServerFrame,
  SessionRef,
  Settle,
  Want,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { DeliveryId, GroupId, MeshId, Millis, PeerKey, PeerNo, PoolId, SpaceId } from '@sealpost/std'

import type { StandingCheck } from './standings.ts'

/** One connection, numbered by its driver; a number is never used twice. */
export type SocketId = number

/**
 * `buffered`: taken, but the socket is full; the driver will call `drained`. `dropped`: not taken, and the connection
 * is over, since going on after a hole would break order.
 */
export type SendOutcome = 'sent' | 'buffered' | 'dropped'

/** Whose word it is, as its session proved it. */
export type Asker = Pick<Member, 'meshId' | 'peer' | 'peerKey' | 'person'>

/** Those that somebody writes to and that are not known, or were not asked about lately. */
export interface Sought {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  readonly pools: readonly PoolId[]
  /** Of whoever writes. */
  readonly spaces: readonly SpaceRef[]
}

/** A space, as one peer asks for it. */
export interface SpaceRef {
  readonly peer: PeerNo
  readonly spaceId: SpaceId
}

export interface Effects {
  /** Sends frames in order, as one write where the socket allows it. */
  send(socket: SocketId, frames: readonly ServerFrame[]): SendOutcome
  /** Ends the connection; nothing more will be said on it. The driver need not call `closed`. */
  close(socket: SocketId, code: CloseCode, retryAfterMs: Millis): void
  /** The same where nothing was wrong: both sides have said what they had to say. */
  hangUp(socket: SocketId): void
  ping(socket: SocketId): void
  /** Stop and go on reading from a socket whose sender is ahead of the database. */
  pause(socket: SocketId): void
  resume(socket: SocketId): void

  /** Look the key up and check its signature, against a dummy key when it is unknown. Answer: `authenticated`. */
  authenticate(socket: SocketId, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): void
  /** Check an invite and whoever uses it, and make it a member. Answer: `enrolled`. */
  enrol(socket: SocketId, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): void
  /** The same with the statement of a device. Answer: `enrolled`. */
  enrolDevice(socket: SocketId, hello: FrameOf<'hello'>, enrol: FrameOf<'enrolDevice'>): void
  /** Make this shard the one that serves the peer, unless the epoch that was read has passed. Answer: `opened`. */
  open(socket: SocketId, session: SessionRef): void
  /** Void every lease of the session by a new epoch, after an answer was lost. Answer: `fenced`, however late. */
  fence(socket: SocketId, session: SessionRef): void

  /** Look whether these may go on. Answer: `standings.found`, or nothing when the database is away (they are asked about again). */
  checkStandings(checks: readonly StandingCheck[]): void

  /** Store an envelope with the next group commit. Answer: `committed` or `commitFailed`, in the order of the appends. */
  append(append: Append): void
  /** Delete a delivery with the next group commit. No answer: what is not settled is pushed again. */
  settle(delivery: Settle): void
  /** Give deliveries back for another attempt. No answer. */
  retry(retries: readonly Retry[]): void
  /** Move deliveries to the dead letters. No answer: what is still there is pushed again. */
  reject(rejects: readonly Reject[], told: readonly Settle[]): void
  /** Call back when all that the peer of this session settled, rejected or gave back is committed, or after 2 s. */
  whenSettled(session: SessionRef, then: () => void): void
  /** Let leases go on. No answer. */
  extend(extensions: readonly Extension[]): void
  /** Tell the senders of these that they were pushed. Answer: `told`. */
  tellPushed(deliveries: readonly Settle[]): void
  /** Look for what the peer lost without its knowledge. Answer: `lost`, or nothing when the database is away. */
  findLost(socket: SocketId, session: SessionRef): void
  toldLost(session: SessionRef, ids: readonly DeliveryId[]): void
  /** The recipient left while its oldest delivery had been with it for long. No answer. */
  strike(delivery: DeliveryRef): void
  /** Claim with the next drain tick. Answer: `claimed` or `claimFailed`. */
  claim(want: Want): void
  /** Collect with the next drain tick. Answer: `collecting.collected` or `collecting.failed`. */
  collect(want: CollectWant): void

  /** Look what waits for a recipient. Answer: `measured`. */
  measure(meshId: MeshId, recipient: PeerNo): void
  /** Look how much waits in the whole of a mesh. Answer: `meshMeasured`. */
  measureMesh(meshId: MeshId): void
  /** Find members by key, the newest statements of groups, pools, and spaces. Answer: `resolved`. */
  resolve(socket: SocketId, meshId: MeshId, sought: Sought): void
  /** Find key bindings, and what is signed about the persons of those keys. Answer: `persons.found`, or nothing when the database is away (the client asks again). */
  lookup(socket: SocketId, meshId: MeshId, lookup: FrameOf<'lookup'>): void
  /** Find the members after a key. Answer: `listed`, or nothing when the database is away (the client asks again). */
  listMembers(socket: SocketId, meshId: MeshId, members: FrameOf<'members'>): void
  /** Revoke, if this peer is an admin or only leaves. Answer: `revoked`, or nothing, as above. */
  revoke(socket: SocketId, asker: { meshId: MeshId; peer: PeerNo }, revoke: FrameOf<'revoke'>): void
  /** Change whom the peer takes mail from, and read it. Answer: `owners.consented`, or nothing, as above. */
  consent(socket: SocketId, asker: Asker, consent: FrameOf<'consent'>): void
  /** Check a key binding and put it in the place of the peer's former one. Answer: `owners.bound`, or nothing, as above. */
  bind(socket: SocketId, asker: Asker, bind: FrameOf<'bind'>): void
  /** Find all key bindings of one peer. Answer: `owners.historyFound`, or nothing, as above. */
  lookupHistory(socket: SocketId, meshId: MeshId, lookup: FrameOf<'lookupHistory'>): void
  /** Check a group's statement and keep it in the place of the former one. Answer: `groupSet`, or nothing, as above. */
  setGroup(socket: SocketId, asker: Asker, setGroup: FrameOf<'setGroup'>): void
  /** Find the groups behind one. Answer: `groupsListed`, or nothing, as above. */
  listGroups(socket: SocketId, meshId: MeshId, groups: FrameOf<'groups'>): void
  /** Find the devices of persons. Answer: `persons.listed`, or nothing, as above. */
  listDevices(socket: SocketId, meshId: MeshId, devices: FrameOf<'devices'>): void
  /** Check a removal, and end the device's membership. Answer: `persons.removed`, or nothing, as above. */
  removeDevice(socket: SocketId, asker: Asker, remove: FrameOf<'removeDevice'>): void
  /** Check a succession, and put the new key in the place of the old one. Answer: `persons.succeeded`, or nothing. */
  succeed(socket: SocketId, asker: Asker, succeed: FrameOf<'succeed'>): void
  /** Check a pool's statement and keep it in the place of the former one. Answer: `pools.wasSet`, or nothing, as above. */
  setPool(socket: SocketId, asker: Asker, setPool: FrameOf<'setPool'>): void
  /** Find the pools behind one. Answer: `pools.listed`, or nothing, as above. */
  listPools(socket: SocketId, meshId: MeshId, pools: FrameOf<'pools'>): void
  /** Find the pool that a session wants to work for. Answer: `pools.found`, or nothing, as above. */
  findPool(socket: SocketId, meshId: MeshId, join: FrameOf<'joinPool'>): void
  /** Deal from a pool with the next drain tick. Answer: `pools.claimed` or `pools.claimFailed`. */
  claimPool(want: PoolWant): void
  /** Leave deliveries of pools to other members. Answer: `pools.gaveBack`, or nothing: then their leases lapse. */
  giveBack(gifts: readonly GiveBack[]): void
  /** Say something to the other shards. It may be lost. */
  hint(hint: Hint): void
  /** Hear from now on what other shards say of this mesh, or no more. Answers: `hints.heard`, `hints.listening`. */
  follow(meshId: MeshId): void
  /** Other shards were asked who is there, and are to have time to answer. Answer: `presence.answered`. */
  awaitAnswers(meshId: MeshId): void
  unfollow(meshId: MeshId): void
}
