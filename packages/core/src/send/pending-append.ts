/** What the router hands to the queue. */
import type { Append } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { LiveSession, PeerState, PoolState } from '../model.ts'
import type { SendRequest } from './send-request.ts'

/** A member, or a pool of members. */
export type RecipientState = PeerState | PoolState

/** An append that remembers its request and its sessions, so that its outcome needs no lookup. */
export interface PendingAppend extends Append {
  insertLeaseEpoch: number
  remoteLeaseEpoch: number
  /** Set when the commit begins: the commit before it may have shown more. */
  insertLeaseFloor: number
  readonly from: LiveSession
  readonly to: RecipientState
  readonly request: SendRequest
  /** The recipient's session whose credit counts this envelope. */
  readonly toLive: LiveSession | null
  /** Bytes of the envelope and its body. */
  readonly byteCount: number
  readonly routedAtMs: Millis
}
