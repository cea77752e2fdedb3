/**
 * Defines the state that the parts of an engine share: meshes, their peers and pools, and authenticated sessions.
 */
import {
  ALONE_AFTER_ATTEMPTS,
  type Append,
  type Availability,
  type Consent,
  type Delivery,
  type DeliveryRef,
  type FrameOf,
  GROUPS_MAX,
  type Member,
  POOL_SEATS_MAX,
  type PoolEntry,
  readMarking,
  type SessionRef,
} from '@sealpost/protocol'
import type { DeliveryId, GroupId, MeshId, Millis, PeerKey, PeerNo, PoolId } from '@sealpost/std'
import { Credit, type Unsettled } from './deliver/credit.ts'
import { Outgoing, WeightedFairQueue } from './deliver/outgoing.ts'
import { type ConsentRule, ruleOf, SpaceCache } from './directory/permissions.ts'
import type { EngineLimits } from './limits.ts'
import { RemotePresence } from './presence/remote-presence.ts'
import { type MailboxUsage, type Owner, unknownMailbox } from './send/quotas.ts'
import { type Pace, TokenBucket } from './send/rate.ts'
import type { SendRequest, SentItem } from './send/send-request.ts'

/** The number of a connection, which its driver assigns. Numbers are never reused. */
export type SocketId = number

export interface UserShare {
  /** The size of uncommitted envelopes. */
  inFlightBytes: number
  /** The rate limit in envelopes; null if there is none or the user has had no session yet. */
  sends: TokenBucket | null
  sentBytes: TokenBucket | null
  /** Spreads the retries of deliveries; null until the first one. */
  retries: Pace | null
}

/** A session on another shard, as announced by that shard. */
export interface RemoteSession {
  readonly epoch: number
  readonly untilMs: Millis
}

export interface PeerState {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  /** The user that owns the device, or the peer itself. Consent is between users, and a user has one share of each quota. */
  readonly user: PeerNo
  live: LiveSession | null
  remoteSession: RemoteSession | null
  epoch: number
  /**
   * Since this tick, the shard knows all mail from the peer: since its session or its last unexpected outcome. Earlier
   * mail may wait unnoticed, sent through another shard or in a commit whose outcome was lost.
   */
  knownSinceTick: number
  /** Null if the peer accepts mail from everyone. */
  rule: ConsentRule | null
  consentVersion: number
  /** The peer's backlog, as this shard knows it. */
  readonly mailbox: MailboxUsage
  /** Shared by all devices of the user. */
  readonly share: UserShare
  isStale: boolean
  /**
   * When the peer is unknown or stale, and must be looked up, unless it is live here: other shards don't change a live
   * peer.
   */
  goodUntilMs: Millis
}

/** How long a consent, group or pool is cached, because another shard may change it. */
const GOOD_FOR_MS = 15_000
const WHOLE_MESH = 0 as PeerNo

export class Mesh {
  readonly meshId: MeshId
  readonly byKey = new Map<PeerKey, PeerState>()
  readonly byNo = new Map<PeerNo, PeerState>()
  readonly pools = new PoolTable()
  /** The backlog of the whole mesh, as this shard knows it. */
  readonly whole: Owner = { peer: WHOLE_MESH, mailbox: unknownMailbox() }
  liveCount = 0
  idleSinceMs: Millis = 0
  /** Sessions that subscribe to presence. */
  readonly watchers = new Set<LiveSession>()
  readonly remotePresence = new RemotePresence()
  private readonly shares = new Map<PeerNo, UserShare>()
  /** The epochs of groups that sessions here requested, changed or wrote to. */
  private readonly groups = new Map<GroupId, { epoch: number; goodUntilMs: Millis }>()

  constructor(meshId: MeshId) {
    this.meshId = meshId
  }

  add(member: Member, nowMs: Millis): PeerState {
    const peer = this.byKey.get(member.peerKey) ?? this.place(member)
    if (!member.consent) return peer
    peer.goodUntilMs = nowMs + GOOD_FOR_MS
    peer.isStale = false
    setConsent(peer, member.consent)
    return peer
  }

  consented(user: PeerNo, consent: Consent): void {
    for (const peer of this.byNo.values()) if (peer.user === user) setConsent(peer, consent)
  }

  doubtConsent(user: PeerNo): void {
    for (const peer of this.byNo.values()) if (peer.user === user) peer.isStale = true
  }

  /** Returns undefined if the peer is unknown or stale, and must be looked up. */
  find(peerKey: PeerKey, nowMs: Millis): PeerState | undefined {
    const peer = this.byKey.get(peerKey)
    return peer && !peer.isStale && (peer.live || nowMs < peer.goodUntilMs) ? peer : undefined
  }

  groupEpoch(groupId: GroupId): number {
    return this.groups.get(groupId)?.epoch ?? 0
  }

  isGroupKnown(groupId: GroupId, nowMs: Millis): boolean {
    const seen = this.groups.get(groupId)
    return seen !== undefined && nowMs < seen.goodUntilMs
  }

  doubtGroup(groupId: GroupId): void {
    const seen = this.groups.get(groupId)
    if (seen) seen.goodUntilMs = -Infinity
  }

  groupSeen(groupId: GroupId, epoch: number, nowMs: Millis): boolean {
    const before = this.groupEpoch(groupId)
    if (this.groups.size >= 2 * GROUPS_MAX) this.groups.clear() // mostly ids of unknown groups
    this.groups.set(groupId, { epoch: Math.max(before, epoch), goodUntilMs: nowMs + GOOD_FOR_MS })
    return epoch > before
  }

  /** Routes mail for a rotated key to its successor. */
  alias(former: PeerKey, successor: PeerKey): void {
    const peer = this.byKey.get(successor)
    if (peer) this.byKey.set(former, peer)
  }

  /** Forgets a peer that the database no longer lists. */
  forget(peer: PeerState): void {
    if (peer.live) return
    for (const [key, known] of this.byKey) if (known === peer) this.byKey.delete(key)
    this.byNo.delete(peer.peer)
  }

  private place({ peer: no, peerKey, user }: Member): PeerState {
    const share = this.shares.get(user) ?? { inFlightBytes: 0, sends: null, sentBytes: null, retries: null }
    this.shares.set(user, share)
    const peer: PeerState = {
      peer: no,
      peerKey,
      user,
      live: null,
      remoteSession: null,
      epoch: 0,
      knownSinceTick: Infinity,
      rule: null,
      consentVersion: -1,
      mailbox: unknownMailbox(),
      share,
      isStale: false,
      goodUntilMs: -Infinity,
    }
    this.byKey.set(peerKey, peer)
    this.byNo.set(no, peer)
    return peer
  }
}

/** Stores the consent unless a newer one is known. Database replies may arrive out of order. */
function setConsent(peer: PeerState, consent: Consent): void {
  if (consent.version < peer.consentVersion) return
  peer.consentVersion = consent.version
  peer.rule = ruleOf(peer.user, consent)
}

export interface Seat {
  readonly live: LiveSession
  readonly pool: PoolState
  credit: number
  /** Unsettled deliveries, including lapsed ones, so that a member that hangs on a delivery receives no other. */
  readonly held: Set<DeliveryId>
  /** Whether a claim may find a delivery for the member. */
  mayFind: boolean
  servedAt: number
}

export class PoolState {
  readonly poolId: PoolId
  /** The pool's number as a recipient. */
  readonly peer: PeerNo
  /** A pool has no session and no consent. */
  readonly live = null
  readonly rule = null
  readonly seats = new Map<LiveSession, Seat>()
  readonly fairQueue = new WeightedFairQueue()
  readonly mailbox = unknownMailbox()
  epoch = 0
  /** Members by their current and former keys. */
  members: ReadonlyMap<PeerKey, PeerNo> = new Map()
  goodUntilMs: Millis = 0
  isClaiming = false
  /**
   * Whether the last delivery may crash its member (`ALONE_AFTER_ATTEMPTS`), in which case members receive one at a
   * time.
   */
  isWary = false
  /** The number of deliveries that no seat here took, for which other shards must be woken. */
  unserved = 0

  constructor({ poolId, pool }: PoolEntry) {
    this.poolId = poolId
    this.peer = pool
  }
}

/** Holds the pools of a mesh that sessions here write to or work for. */
export class PoolTable {
  private readonly byId = new Map<PoolId, PoolState>()
  private readonly byNo = new Map<PeerNo, PoolState>()

  /** Adds a pool, or updates it if the statement is newer. Database replies may arrive out of order. */
  add(entry: PoolEntry, nowMs: Millis): PoolState {
    const pool = this.byId.get(entry.poolId) ?? new PoolState(entry)
    this.byId.set(pool.poolId, pool)
    this.byNo.set(pool.peer, pool)
    pool.goodUntilMs = nowMs + GOOD_FOR_MS
    if (entry.epoch < pool.epoch) return pool
    // Within an epoch, members only gain keys, so keep the known ones.
    const known = entry.epoch === pool.epoch ? pool.members : []
    pool.epoch = entry.epoch
    pool.members = new Map([...known, ...entry.members.map(({ peerKey, peer }) => [peerKey, peer] as const)])
    return pool
  }

  /** Marks the pools of a member with a new key for another lookup. */
  memberRotated(member: PeerNo): void {
    for (const pool of this.byId.values()) if ([...pool.members.values()].includes(member)) pool.goodUntilMs = 0
  }

  find(poolId: PoolId, nowMs: Millis): PoolState | undefined {
    const pool = this.byId.get(poolId)
    return pool && nowMs < pool.goodUntilMs ? pool : undefined
  }

  /** Marks the pool for another lookup if its statement is older than `epoch`. */
  expect(poolId: PoolId, epoch: number): void {
    const pool = this.byId.get(poolId)
    if (pool && pool.epoch < epoch) pool.goodUntilMs = 0
  }

  numbered(pool: PeerNo): PoolState | undefined {
    return this.byNo.get(pool)
  }

  get(poolId: PoolId): PoolState | undefined {
    return this.byId.get(poolId)
  }
}

/** The rate of requests per session. Each costs a statement, or a frame for every watcher. */
const REQUESTS = { perSecond: 20, burst: 400 }
/**
 * The rate of settles of deliveries that the session does not hold, each of which costs a lookup. A client that repeats
 * its former session's settles sends one window of them.
 */
const STRAYS = { perSecond: 500, burst: 20_000 }
/**
 * The rate of extensions per session. Each costs a row update, and a client sends at most one window, three times per
 * lease.
 */
const EXTENSIONS = { perSecond: 500, burst: 10_000 }
/** The rate of refusals that ends a session. A sender that honours `retryAfterMs` causes far fewer. */
const BREACHES = { perSecond: 10, burst: 2_000 }
/** The maximum number of looked-up keys that a session remembers, at about 40 bytes each. */
const LOOKED_UP_MAX = 128
/** The maximum number of concurrent joins of a session, which must request further pools later. */
const JOINING_MAX = 2 * POOL_SEATS_MAX

/**
 * Returns a peer's fraction of the poll interval. Phases spread the polls of sessions that began together, because one
 * poll costs milliseconds while vacuum can't remove dead rows.
 */
const phaseOf = (peer: PeerNo): number => (peer * 0.618034) % 1

interface SessionPlace {
  readonly socket: SocketId
  readonly mesh: Mesh
  readonly peer: PeerState
  readonly epoch: number
  readonly credit: number
  readonly nowMs: Millis
  readonly tick: number
}

/** An authenticated session. A session that only sends has no epoch and receives nothing. */
export class LiveSession {
  readonly socket: SocketId
  readonly mesh: Mesh
  readonly peer: PeerState
  readonly credit: Credit
  /** The user's name in limits that its sessions share. */
  readonly name: string
  isOver = false
  epoch: number
  /** The epoch of leases on pool deliveries. A fence does not change it. */
  readonly openedEpoch: number
  readonly seats = new Map<PeerNo, Seat>()
  /** The `ref` of the last request to join each pool, until its reply arrives. */
  readonly joining = new Map<PoolId, number>()
  readonly spaces = new SpaceCache()
  polledAtMs: Millis
  checkedAtMs: Millis
  /** When the session may receive the next presence snapshot. */
  snapshotFromMs: Millis = 0
  announcement: { readonly epoch: number; readonly atMs: Millis } | null = null
  readonly breachBucket: TokenBucket
  readonly requestBucket: TokenBucket
  /** Limits the settles of deliveries that the session doesn't hold. */
  readonly strayBucket: TokenBucket
  readonly extensionBucket: TokenBucket

  /** The number of envelopes between `send` and `ack`. */
  inFlight = 0
  inFlightBytes = 0
  isPaused = false
  /** Whether the session was redirected, so that further sends are refused. */
  isLeaving = false
  /** Envelopes that wait for a lookup, in order. */
  held: SendRequest[] = []
  isResolving = false
  private sends = 0
  /** The first refused envelope in each lane. Later ones are refused until the sender resends from it. */
  private readonly barred = new Map<string, number>()

  readonly outgoing = new Outgoing()
  availability: Availability = 'idle'
  summary = ''
  /** Whether the peer doesn't want its senders to receive receipts. */
  declinesReceipts = false
  private readonly lookedUp = new Set<PeerKey>()
  /** Leased deliveries that must wait for older ones from the same sender. */
  parked: Delivery[] = []

  constructor({ socket, mesh, peer, epoch, credit, nowMs, tick }: SessionPlace, limits: EngineLimits) {
    const { rate, byteRate } = limits
    this.socket = socket
    this.mesh = mesh
    this.peer = peer
    this.epoch = epoch
    this.openedEpoch = epoch
    this.name = `${mesh.meshId}/${peer.user}`
    this.polledAtMs = nowMs - phaseOf(peer.peer) * limits.pollMs
    this.checkedAtMs = nowMs
    this.breachBucket = new TokenBucket(BREACHES, nowMs)
    this.requestBucket = new TokenBucket(REQUESTS, nowMs)
    this.strayBucket = new TokenBucket(STRAYS, nowMs)
    this.extensionBucket = new TokenBucket(EXTENSIONS, nowMs)
    this.credit = new Credit({ count: Math.min(credit, limits.creditMax), byteCount: limits.creditBytes }, limits)
    peer.knownSinceTick = tick
    peer.share.sends ??= rate && new TokenBucket(rate, nowMs)
    peer.share.sentBytes ??= byteRate && new TokenBucket(byteRate, nowMs)
  }

  get isFree(): boolean {
    return this.availability !== 'dnd'
  }

  /** Returns a number for the envelope. `isHead` reopens a barred lane, since no earlier envelope is outstanding. */
  arrived(item: SentItem): number {
    this.sends += 1
    if (item.isHead && this.barred.size > 0) this.barred.delete(laneOf(item))
    return this.sends
  }

  /** Returns whether no earlier envelope of its lane is refused. */
  isInSequence({ no, item }: SendRequest): boolean {
    return this.barred.size === 0 || no < (this.barred.get(laneOf(item)) ?? Number.POSITIVE_INFINITY)
  }

  bar({ no, item }: SendRequest): void {
    const lane = laneOf(item)
    this.barred.set(lane, Math.min(no, this.barred.get(lane) ?? no))
  }

  notesLookup(peers: readonly PeerKey[]): void {
    for (const peer of peers) this.lookedUp.add(peer)
    for (const eldest of this.lookedUp) {
      if (this.lookedUp.size <= LOOKED_UP_MAX) return
      this.lookedUp.delete(eldest)
    }
  }

  hasLookedUp(peer: PeerKey): boolean {
    return this.lookedUp.has(peer)
  }

  joins({ pool, ref }: FrameOf<'joinPool'>): void {
    this.joining.set(pool, ref)
    for (const eldest of this.joining.keys()) {
      if (this.joining.size <= JOINING_MAX) return
      this.joining.delete(eldest)
    }
  }

  /** Queues the delivery for the socket and counts it as unsettled. `pool`: the pool that the delivery belongs to. */
  push(delivery: Delivery, nowMs: Millis, pool?: PeerNo): void {
    const marking = delivery.terms && readMarking(delivery.terms)
    const terms = marking?.kind === 'terms' ? marking.terms : null
    if (marking?.kind === 'receipt') this.outgoing.receipt(delivery, marking.event)
    else if (delivery.body) this.outgoing.pushBody(delivery, delivery.body, terms)
    else this.outgoing.push(delivery, terms)
    this.count(delivery, nowMs, { pool, isParked: false })
  }

  /** Reserves room in the window for a delivery that is pushed later. */
  park(delivery: Delivery, nowMs: Millis): void {
    this.parked.push(delivery)
    this.count(delivery, nowMs, { isParked: true })
  }

  takeParked(): Delivery[] {
    const { parked } = this
    if (parked.length > 0) this.parked = []
    return parked
  }

  /** Takes the parked deliveries from one sender, or only those with ids below `before`. */
  takeParkedOf(sender: PeerKey, before: DeliveryId | undefined): Delivery[] {
    const isTaken = (delivery: Delivery) => delivery.sender === sender && (before === undefined || delivery.id < before)
    const taken = this.parked.filter(isTaken).sort((a, b) => a.id - b.id)
    if (taken.length > 0) this.parked = this.parked.filter((delivery) => !isTaken(delivery))
    return taken
  }

  private count(delivery: Delivery, nowMs: Millis, { pool, isParked }: Pick<Unsettled, 'pool' | 'isParked'>): void {
    const { id, priority, envelope, body, terms } = delivery
    const byteCount = envelope.length + (body?.length ?? 0)
    const receiptTo = terms === null ? null : this.receiptTo(delivery)
    this.credit.pushed(id, { priority, pushedAtMs: nowMs, byteCount, receiptTo, pool, isParked, isLapsed: false })
    if (delivery.attempt > ALONE_AFTER_ATTEMPTS && !isParked) this.credit.suspect ??= id
  }

  /**
   * Returns the sender if it requested a receipt. Parked deliveries need it too, because the peer may settle an earlier
   * push.
   */
  private receiptTo({ terms, sender }: Delivery): PeerKey | null {
    if (terms === null || this.declinesReceipts) return null
    const marking = readMarking(terms)
    return marking?.kind === 'terms' && marking.terms.receipts !== 'none' ? sender : null
  }
}

/** Returns the lane of an envelope, within which its sender's mail stays in order. */
const laneOf = (item: SentItem): string => item.recipient + item.priority

export const refOf = (live: LiveSession): SessionRef => ({
  meshId: live.mesh.meshId,
  peer: live.peer.peer,
  epoch: live.epoch,
})

/** Returns the queue key of a delivery that the session holds. */
export const deliveryRef = (
  { mesh: { meshId }, peer: { peer } }: LiveSession,
  id: DeliveryId,
  { priority, pool }: { readonly priority: number; readonly pool?: PeerNo | undefined },
): DeliveryRef =>
  pool === undefined
    ? { meshId, recipient: peer, priority, id }
    : { meshId, recipient: pool, priority, id, holder: peer }

export type RecipientState = PeerState | PoolState

/** An append with its request and sessions, so that its outcome needs no lookup. */
export interface PendingAppend extends Append {
  insertLeaseEpoch: number
  remoteLeaseEpoch: number
  /** Set when the commit begins, because it depends on the previous commit's outcome. */
  insertLeaseFloor: number
  readonly from: LiveSession
  readonly to: RecipientState
  readonly request: SendRequest
  /** The session whose credit counts this envelope. */
  readonly toLive: LiveSession | null
  readonly byteCount: number
  readonly routedAtMs: Millis
}
