/**
 * Defines the request: an envelope between its sender's frame and its append (`PendingAppend` in `model.ts`). Its kind
 * selects its policy.
 */
import type { FrameOf, SendTerms, SharedBody } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'

export type SentItem = FrameOf<'send'>['envelopes'][number]

interface Request {
  readonly no: number
  readonly item: SentItem
  readonly terms: SendTerms | null
  /** The size that this envelope adds to the sender's in-flight total. */
  inFlightBytes: number
}

export interface DirectRequest extends Request {
  readonly kind: 'direct'
  readonly body: null
}

/** One envelope of a broadcast, with the key to their shared body. */
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
  /** The first request that was not refused, for which the body's bytes are counted. */
  countedBy: SendRequest | null
  /** Whether the thread's rate limit was charged for the body. */
  hasPaidThread: boolean
}

export interface Broadcast extends Body {
  /** Null if the sender chose the recipients itself. */
  readonly membership: MembershipRef | null
}

export interface PoolBody extends Body {
  readonly toPool: PoolMembershipRef
}

/** The group and epoch that a body was sealed for. */
export interface MembershipRef {
  readonly group: GroupId
  readonly epoch: number
}

/** The members that a pool message has boxes for, and the epoch that it was sealed for; 0 allows any. */
export interface PoolMembershipRef {
  readonly epoch: number
  readonly readers: readonly PeerKey[]
}

/** The order of priorities in the queue. */
export const PRIORITY_NUMBERS = { now: 0, next: 1, low: 2 } as const
