/**
 * An envelope on its way from its sender's frame to the queue: first a request, whose kind selects its policy, then an
 * append.
 */
import type { Append, FrameOf, NackCode, SendTerms, SharedBody } from '@sealpost/protocol'
import type { GroupId, Millis, PeerKey, PoolId, SpaceId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { GroupDirectory } from '../directory/groups.ts'
import type { LiveSession, PeerState, PoolState } from '../model.ts'

export type SentItem = FrameOf<'send'>['envelopes'][number]

interface Request {
  /** The number of the envelope in its session. */
  readonly no: number
  readonly item: SentItem
  readonly terms: SendTerms | null
  /** Bytes this envelope adds to the sender's in-flight total. */
  inFlightBytes: number
}

/** An envelope that contains its whole message. No policy applies. */
export interface DirectRequest extends Request {
  readonly kind: 'direct'
  readonly body: null
}

/** One envelope of a broadcast: it holds the key to a body that all envelopes of the broadcast share. */
export interface BroadcastRequest extends Request {
  readonly kind: 'broadcast'
  readonly body: Broadcast
}

/** A message that any member of a pool may take. */
export interface PoolRequest extends Request {
  readonly kind: 'pool'
  readonly body: PoolBody
}

export type SendRequest = DirectRequest | BroadcastRequest | PoolRequest

interface Body {
  readonly shared: SharedBody
  /** The bytes of the body count once: with the first envelope that was not refused. */
  countedBy: SendRequest | null
  /** The thread's rate limit was charged, once for all envelopes of the body. */
  hasPaidThread: boolean
}

export interface Broadcast extends Body {
  /** Null: the sender chose the recipients itself. */
  readonly membership: MembershipRef | null
}

export interface PoolBody extends Body {
  readonly toPool: PoolMembershipRef
}

/** The group that a body is for, and the epoch of the membership that it was sealed for. */
export interface MembershipRef {
  readonly group: GroupId
  readonly epoch: number
}

/** The members that a pool message has boxes for, and the epoch of the pool that named them; 0: any epoch. */
export interface PoolMembershipRef {
  readonly epoch: number
  readonly readers: readonly PeerKey[]
}

export type RecipientState = PeerState | PoolState

/** An append that remembers its request and its sessions, so that its outcome needs no lookup. */
export interface PendingAppend extends Append {
  insertLeaseEpoch: number
  remoteLeaseEpoch: number
  /** Set when the commit begins, from the outcome of the commit before. */
  insertLeaseFloor: number
  readonly from: LiveSession
  readonly to: RecipientState
  readonly request: SendRequest
  /** The recipient's session whose credit counts this envelope. */
  readonly toLive: LiveSession | null
  readonly byteCount: number
  readonly routedAtMs: Millis
}

/** Priorities as the queue orders them. */
export const PRIORITY_NUMBERS = { now: 0, next: 1, low: 2 } as const

/** Recipients, groups and spaces that the router must look up. */
export interface Unknowns {
  readonly peers: Set<PeerKey>
  readonly groups: Set<GroupId>
  readonly pools: Set<PoolId>
  readonly spaces: Set<SpaceId>
}

/** The router's rules for envelopes with a shared body: broadcasts to groups and messages to pools. */
export interface SendPolicy<R extends SendRequest> {
  /** Returns undefined if the recipient must be looked up. */
  recipientOf(from: LiveSession, request: R): RecipientState | undefined
  /** Whether everything that `refusalOf` reads was looked up lately. */
  isKnown(from: LiveSession, request: R): boolean
  /** Adds what must be looked up. */
  seek(from: LiveSession, request: R, unknown: Unknowns): void
  refusalOf(from: LiveSession, request: R): NackCode | null
}

/** A broadcast goes to members. Its group and the space that records it can refuse it. */
export class BroadcastPolicy implements SendPolicy<BroadcastRequest> {
  readonly #context: Context
  readonly #groups: GroupDirectory

  constructor(context: Context, groups: GroupDirectory) {
    this.#context = context
    this.#groups = groups
  }

  recipientOf(from: LiveSession, { item }: BroadcastRequest): RecipientState | undefined {
    return from.mesh.find(item.recipient, this.#context.nowMs)
  }

  isKnown(from: LiveSession, { body }: BroadcastRequest): boolean {
    return this.#groups.isKnown(from, body.membership) && this.#isSpaceKnown(from, body)
  }

  seek(from: LiveSession, request: BroadcastRequest, unknown: Unknowns): void {
    const { body } = request
    if (!this.recipientOf(from, request)) unknown.peers.add(request.item.recipient)
    if (!this.#groups.isKnown(from, body.membership)) unknown.groups.add(body.membership!.group)
    else if (!this.#isSpaceKnown(from, body)) unknown.spaces.add(body.shared.record!.spaceId)
  }

  refusalOf(from: LiveSession, { body }: BroadcastRequest): NackCode | null {
    const code = this.#groups.refusalOf(from, body.membership)
    if (code || !body.shared.record) return code
    const space = from.spaces.find(body.shared.record.spaceId, this.#context.nowMs)
    if (!space) return null
    if (!space.keepsMessages) return 'not_kept'
    return space.isFull ? 'history_full' : null
  }

  #isSpaceKnown(from: LiveSession, { shared: { record } }: BroadcastRequest['body']): boolean {
    return !record || from.spaces.find(record.spaceId, this.#context.nowMs) !== undefined
  }
}

/** A message to a pool is refused if it was sealed for members that the pool no longer has. */
export class PoolPolicy implements SendPolicy<PoolRequest> {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  recipientOf({ mesh }: LiveSession, { item }: PoolRequest): RecipientState | undefined {
    return mesh.pools.find(poolOf(item), this.#context.nowMs)
  }

  isKnown(): boolean {
    return true
  }

  seek(from: LiveSession, request: PoolRequest, { pools }: Unknowns): void {
    if (!this.recipientOf(from, request)) pools.add(poolOf(request.item))
  }

  refusalOf({ mesh }: LiveSession, { item, body: { toPool } }: PoolRequest): NackCode | null {
    const pool = mesh.pools.find(poolOf(item), this.#context.nowMs)!
    const isOld = toPool.epoch !== 0 && toPool.epoch < pool.epoch
    return isOld || !toPool.readers.some((reader) => pool.members.has(reader)) ? 'stale_roster' : null
  }
}

/** The pool of an item: an item names a pool by its id as it names a peer by its key. */
export const poolOf = ({ recipient }: SentItem): PoolId => recipient as string as PoolId
