/**
 * Defines the request, which is an envelope between its sender's frame and the queue. Its kind selects its policy
 * (`policies.ts`). The request becomes an append (`PendingAppend` in `model.ts`).
 */
import type { FrameOf, SendTerms, SharedBody } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'

export type SentItem = FrameOf<'send'>['envelopes'][number]

interface Request {
  /** The number of the envelope within its session. */
  readonly no: number
  readonly item: SentItem
  readonly terms: SendTerms | null
  /** The number of bytes that this envelope adds to the sender's in-flight total. */
  inFlightBytes: number
}

/** A request whose envelope contains the whole message. No policy applies. */
export interface DirectRequest extends Request {
  readonly kind: 'direct'
  readonly body: null
}

/** One envelope of a broadcast. It contains the key to a body that all envelopes of the broadcast share. */
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
  /** The request that the bytes of the body are counted for: the first one that was not refused. */
  countedBy: SendRequest | null
  /** Whether the thread's rate limit was charged. It is charged once for all envelopes of the body. */
  hasPaidThread: boolean
}

export interface Broadcast extends Body {
  /** Null if the sender chose the recipients itself. */
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

/**
 * The members that a pool message has boxes for, and the epoch of the pool's statement that named them; 0 allows any
 * epoch.
 */
export interface PoolMembershipRef {
  readonly epoch: number
  readonly readers: readonly PeerKey[]
}

/** Priorities as the queue orders them. */
export const PRIORITY_NUMBERS = { now: 0, next: 1, low: 2 } as const
