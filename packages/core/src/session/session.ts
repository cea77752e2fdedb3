/** One connection, from its greeting to its end, and what a live one owes and is owed. */
import {
  ALONE_AFTER_ATTEMPTS,
  type Availability,
  type Delivery,
  type FrameOf,
  type Member,
  POOL_SEATS_MAX,
  readMarking,
  type SendTerms,
  type SharedBody,
} from '@sealpost/protocol'
import type { DeliveryId, GroupId, Millis, PeerKey, PeerNo, PoolId, ShardId } from '@sealpost/std'
import { Credit, type Unsettled } from '../deliver/credit.ts'
import { Outgoing } from '../deliver/outgoing.ts'
import type { Mesh, Peer } from '../directory/meshes.ts'
import { SpaceCache } from '../directory/space-cache.ts'
import type { SocketId } from '../effects.ts'
import type { EngineLimits } from '../limits.ts'
import type { Seat } from '../pools/pool-table.ts'
import { type Rates, TokenBucket } from '../send/rate.ts'

/** `over` is final. Every other state may go there, `enrolling` nowhere else; the others follow in this order. */
export type SessionState =
  | { readonly name: 'greeted'; readonly hello: FrameOf<'hello'> }
  | { readonly name: 'enrolling' }
  | { readonly name: 'proving'; readonly credit: number }
  | { readonly name: 'opening'; readonly member: Member; readonly credit: number; readonly proof: Uint8Array }
  | { readonly name: 'live'; readonly live: LiveSession }
  | { readonly name: 'over' }

/** Whether it can be sent to another shard: one of a request by HTTP can't, one that did not get there is not sent again. */
export type Mobility =
  | { readonly name: 'fixed' }
  | { readonly name: 'mobile' }
  | { readonly name: 'stranded'; readonly from: ShardId | null }

export const mobilityOf = ({ capabilities }: FrameOf<'auth'>): Mobility =>
  capabilities.includes('home_unreachable') ? { name: 'stranded', from: null } : { name: 'mobile' }

export class Session {
  readonly socket: SocketId
  readonly connectedAtMs: Millis
  state: SessionState
  mobility: Mobility = { name: 'fixed' }
  heardAtMs: Millis
  pingedAtMs: Millis
  /** What was sent before has arrived: a ping behind it was answered. */
  arrivedUntilMs: Millis
  /** Of the first ping that nothing has answered. */
  private unansweredAtMs: Millis | null = null

  constructor(socket: SocketId, state: SessionState, nowMs: Millis) {
    this.socket = socket
    this.connectedAtMs = nowMs
    this.heardAtMs = nowMs
    this.pingedAtMs = nowMs
    this.arrivedUntilMs = nowMs
    this.state = state
  }

  /** What it says shows that it lives; that what it was given has arrived, an answered ping alone. */
  quietSince({ credit }: LiveSession): Millis {
    return credit.unsettled.size > 0 ? this.pingedAtMs : Math.max(this.pingedAtMs, this.heardAtMs)
  }

  pinged(nowMs: Millis): void {
    this.pingedAtMs = nowMs
    this.unansweredAtMs ??= nowMs
  }

  ponged(nowMs: Millis): void {
    this.heardAtMs = nowMs
    this.arrivedUntilMs = this.unansweredAtMs ?? this.arrivedUntilMs
    this.unansweredAtMs = null
  }
}

/**
 * Sessions that began together, as after a restart, are not all looked at together: while dead rows can't go, such a look costs
 * milliseconds for each. A share of the time between two; peers whose numbers follow each other lie far apart.
 */
const phaseOf = (peer: PeerNo): number => (peer * 0.618034) % 1

/** The group a body is for, and the epoch by which its members were chosen. */
export interface MembershipRef {
  readonly group: GroupId
  readonly epoch: number
}

/** For whom a message to a pool has boxes, and the epoch by which these were chosen; 0: whatever it is. */
export interface PoolMembershipRef {
  readonly epoch: number
  readonly readers: readonly PeerKey[]
}

/** One envelope of a `send`, numbered by its arrival in the session. */
export interface SendRequest {
  readonly no: number
  readonly item: FrameOf<'send'>['envelopes'][number]
  readonly terms: SendTerms | null
  /** Of a broadcast: one object for all that share it. */
  readonly body: Broadcast | null
}

/** What the envelopes of one broadcast have in common. A message to a pool is one of a single envelope. */
export interface Broadcast {
  readonly shared: SharedBody
  readonly membership: MembershipRef | null
  readonly toPool?: PoolMembershipRef
  /** Its bytes count once: with the first that was not refused. */
  countedBy: SendRequest | null
  /** Its thread has paid for all of them. */
  hasPaidThread: boolean
}

/** A session that has proven its key. One that only sends holds no epoch and is nobody's recipient. */
export class LiveSession {
  readonly socket: SocketId
  readonly mesh: Mesh
  readonly peer: Peer
  readonly credit: Credit
  /** Of its user, in limits that all sessions of its devices share. */
  readonly name: string
  readonly bucket: Pick<TokenBucket, 'take'> | null
  /** How often it may still be told that it is too fast, before that is the end of it. */
  readonly breachBucket: TokenBucket
  epoch: number
  /** Under it pools lease to this session; a fence does not change it. */
  readonly openedEpoch: number
  /** Pools it works for, by their numbers. */
  readonly seats = new Map<PeerNo, Seat>()
  /** Pools that it has asked to work for, by the last question, and not left before the answer. */
  readonly joining = new Map<PoolId, number>()
  /** Those that it writes messages into. */
  readonly spaces = new SpaceCache()
  polledAtMs: Millis
  /** When it was asked whether it may go on. */
  checkedAtMs: Millis
  /** When it may be told anew of everybody who is there. */
  snapshotFromMs: Millis = 0
  /** When other shards were told that it is here, and under which epoch. */
  announcement: { readonly epoch: number; readonly atMs: Millis } | null = null
  /** What it may ask for beside mail. */
  readonly requestBucket: TokenBucket
  /** Deliveries that it may name without holding them, and leases that it may extend. */
  readonly strayBucket: TokenBucket
  readonly extensionBucket: TokenBucket

  /** As a sender: envelopes between `send` and `ack`. */
  inFlight = 0
  inFlightBytes = 0
  isPaused = false
  /** It was told to go, and what it still sends is not taken. */
  isLeaving = false
  /** Sends that wait, in order, for a recipient's key to be looked up. */
  held: SendRequest[] = []
  private sends = 0
  isResolving = false
  /** A refused envelope, here by its number, bars what follows it in its lane, until the sender starts again from it. */
  private readonly barred = new Map<string, number>()

  readonly outgoing = new Outgoing()
  availability: Availability = 'idle'
  summary = ''
  /** Its senders are not told that mail was pushed to it or settled. */
  declinesReceipts = false
  /** Whose box keys it has asked for: a session that asks for many forgets the first. */
  private readonly lookedUp = new Set<PeerKey>()
  /** Leased to this session, and not to be pushed before something else of the same sender. */
  private parked: Delivery[] = []

  constructor(
    place: { socket: SocketId; mesh: Mesh; peer: Peer; epoch: number; credit: number; nowMs: Millis; moment: number },
    limits: EngineLimits,
    rates: Rates | null,
  ) {
    this.socket = place.socket
    this.mesh = place.mesh
    this.peer = place.peer
    this.epoch = place.epoch
    this.openedEpoch = place.epoch
    this.polledAtMs = place.nowMs - phaseOf(place.peer.peer) * limits.pollMs
    this.checkedAtMs = place.nowMs
    this.requestBucket = new TokenBucket(REQUESTS, place.nowMs)
    this.strayBucket = new TokenBucket(STRAYS, place.nowMs)
    this.extensionBucket = new TokenBucket(EXTENSIONS, place.nowMs)
    place.peer.knownSinceTick = place.moment
    this.breachBucket = new TokenBucket(BREACHES, place.nowMs)
    this.credit = new Credit({ count: Math.min(place.credit, limits.creditMax), byteCount: limits.creditBytes }, limits)
    this.name = `${place.mesh.meshId}/${place.peer.user}`
    this.bucket = rates?.of(this.name) ?? null
  }

  /** See `Peer.knownSince`. */
  get knownSinceTick(): number {
    return this.peer.knownSinceTick
  }

  /** Whether it takes more than what is sent as `now`. */
  get isFree(): boolean {
    return this.availability !== 'dnd'
  }

  /** `isHead` says that nothing before it in its lane is outstanding: the sender starts again. */
  arrive(item: SendRequest['item'], terms: SendTerms | null, body: SendRequest['body'] = null): SendRequest {
    this.sends += 1
    if (item.isHead && this.barred.size > 0) this.barred.delete(laneOf(item))
    return { no: this.sends, item, terms, body }
  }

  /** Whether nothing before it in its lane was refused. What was refused behind it does not matter. */
  isInSequence({ no, item }: SendRequest): boolean {
    return this.barred.size === 0 || no < (this.barred.get(laneOf(item)) ?? Number.POSITIVE_INFINITY)
  }

  bar({ no, item }: SendRequest): void {
    const lane = laneOf(item)
    this.barred.set(lane, Math.min(no, this.barred.get(lane) ?? no))
  }

  push(delivery: Delivery, nowMs: Millis, pool?: PeerNo): void {
    const marking = delivery.terms && readMarking(delivery.terms)
    const terms = marking?.kind === 'terms' ? marking.terms : null
    if (marking?.kind === 'receipt') this.outgoing.receipt(delivery, marking.event)
    else if (delivery.body) this.outgoing.pushBody(delivery, delivery.body, terms)
    else this.outgoing.push(delivery, terms)
    this.count(delivery, nowMs, { pool, isParked: false })
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

  /** Takes its place in the window, to be pushed later. */
  park(delivery: Delivery, nowMs: Millis): void {
    this.parked.push(delivery)
    this.count(delivery, nowMs, { isParked: true })
  }

  get hasParked(): boolean {
    return this.parked.length > 0
  }

  takeParked(): Delivery[] {
    const { parked } = this
    if (parked.length > 0) this.parked = []
    return parked
  }

  /** Those of one sender; below an id when it is given. */
  takeParkedOf(sender: PeerKey, before: DeliveryId | undefined): Delivery[] {
    const isTaken = (delivery: Delivery) => delivery.sender === sender && (before === undefined || delivery.id < before)
    const taken = this.parked.filter(isTaken).sort((a, b) => a.id - b.id)
    if (taken.length > 0) this.parked = this.parked.filter((delivery) => !isTaken(delivery))
    return taken
  }

  private count(delivery: Delivery, nowMs: Millis, { pool, isParked }: Pick<Unsettled, 'pool' | 'isParked'>): void {
    const { id, priority, envelope, body } = delivery
    const byteCount = envelope.length + (body?.length ?? 0)
    const receiptTo = this.receiptTo(delivery)
    this.credit.pushed(id, {
      priority,
      pushedAtMs: nowMs,
      byteCount,
      receiptTo: receiptTo,
      pool,
      isParked,
      isLapsed: false,
    })
    if (delivery.attempt > ALONE_AFTER_ATTEMPTS && !isParked) this.credit.suspect = id
  }

  /** Its sender, if that is to hear of its end: also of one that is settled while it is parked, for an earlier push of it. */
  private receiptTo({ terms, sender }: Delivery): PeerKey | null {
    if (terms === null || this.declinesReceipts) return null
    const marking = readMarking(terms)
    return marking?.kind === 'terms' && marking.terms.receipts !== 'none' ? sender : null
  }
}

/** Each costs a statement, or a frame for everybody who watches. */
const REQUESTS = { perSecond: 20, burst: 400 }
/** Each costs a look into what the session holds. A client that settles again what its former session held names a window. */
const STRAYS = { perSecond: 500, burst: 20_000 }
/** Each costs an update of a row. A client extends what it holds, a window at most, three times in the time of a lease. */
const EXTENSIONS = { perSecond: 500, burst: 10_000 }
/** A sender that waits as long as it is told to comes nowhere near. */
const BREACHES = { perSecond: 10, burst: 2_000 }

/** About 40 bytes each. */
const LOOKED_UP_MAX = 128
/** One that asks for more at a time asks again. */
const JOINING_MAX = 2 * POOL_SEATS_MAX

export const PRIORITY_NUMBERS = { now: 0, next: 1, low: 2 } as const

const laneOf = (item: SendRequest['item']): string => item.recipient + item.priority

/** Of what the sender has on its way. */
export const bytesOf = (arrival: SendRequest): number =>
  arrival.item.envelope.length + (arrival.body?.countedBy === arrival ? arrival.body.shared.bytes.length : 0)
