/** Defines the append that the router passes to the queue. */
import type { Append } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { LiveSession, PeerState, PoolState } from '../model.ts'
import type { SendRequest } from './send-request.ts'

export type RecipientState = PeerState | PoolState

/** An append that remembers its request and its sessions, so that its outcome needs no lookup. */
export interface PendingAppend extends Append {
  insertLeaseEpoch: number
  remoteLeaseEpoch: number
  /** Set when the commit begins, from the outcome of the previous commit. */
  insertLeaseFloor: number
  readonly from: LiveSession
  readonly to: RecipientState
  readonly request: SendRequest
  /** The recipient's session whose credit counts this envelope. */
  readonly toLive: LiveSession | null
  readonly byteCount: number
  readonly routedAtMs: Millis
}
