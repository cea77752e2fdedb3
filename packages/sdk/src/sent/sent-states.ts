/** Defines the states of a sent message and how reports change them. Pure. */
import type { ConfirmedOutcome } from '@sealpost/identity'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'

/**
 * - `sending`: the broker has not confirmed that it stored the message.
 * - `stored`: the broker stores it durably.
 * - `pushed`: the broker reports that it sent the message to the recipient.
 * - `read`: the recipient has signed that its application showed the message to its user or model.
 * - `settled`: the broker reports that the recipient settled the message.
 * - `confirmed`: the recipient has signed that it settled the message.
 * - `rejected`: the recipient rejected it. `isSigned`: the recipient has signed that.
 * - `expired`, `struck_out`: the broker reports that it expired, or failed too often.
 * - `refused`: the broker did not store it.
 * @example console.log(SENT_STATES.length) // 10
 */
export const SENT_STATES = [
  ...(['sending', 'stored', 'pushed', 'read', 'settled', 'confirmed'] as const),
  ...(['rejected', 'expired', 'struck_out', 'refused'] as const),
] as const
export type SentState = (typeof SENT_STATES)[number]

/** The recipients of a message that was not addressed to single peers. */
export interface SentAudience {
  /** `user`: every session and device of a user. */
  readonly kind: 'group' | 'pool' | 'user' | 'everybody'
  /** The id of the group or pool, or the key of the user; empty for `everybody`. */
  readonly id: string
  /** The name of the group or pool when the message was sent; otherwise empty. */
  readonly name: string
}

/** The reply to a message. Its author is authenticated by the box, but the reply proves nothing to others. */
export interface RecordedReply {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  /** The user whose device the sender is; otherwise, the sender itself. */
  readonly user: PeerKey
  /** The user's name for this device; null for the user's own key. */
  readonly deviceLabel: string | null
  /** Whether it reports that a request failed. */
  readonly isError: boolean
  /** When it arrived, according to this machine's clock. */
  readonly atMs: Millis
}

/** A message to one recipient that was sent with a log. A message to a pool has the pool as its recipient. */
export interface SentMessage {
  /** Null until the message is sealed, which requires a connection if the recipient's key is unknown. */
  readonly envelopeId: EnvelopeId | null
  readonly to: PeerKey
  /** The user whose signature vouches for the recipient as a device; otherwise, the recipient itself. */
  readonly user: PeerKey
  /** The user's name for this device; null for the user's own key. */
  readonly deviceLabel: string | null
  readonly bodyBytes: number
  readonly state: SentState
  /** Whether the recipient signed the state. Otherwise, it is the broker's word. */
  readonly isSigned: boolean
  /** Why it was rejected or refused; empty without a reason. */
  readonly reason: string
  /** Who settled or rejected it, if that peer signed: the recipient or a device of the recipient's user. */
  readonly signer: PeerKey | null
  /** Whether the broker was asked for receipts. */
  readonly asksReceipts: boolean
  /** Whether the recipient was asked for a confirmation. */
  readonly asksConfirmation: boolean
  /** When it was handed to the log, according to this machine's clock. */
  readonly sentAtMs: Millis
  /** When it reached its state: this machine's, the database's or, if signed, the recipient's clock. */
  readonly atMs: Millis
  /** The number of the send. Messages of one send to several recipients have the same number. */
  readonly sendNo: number
  /** Null if the recipient was named itself. */
  readonly audience: SentAudience | null
  /** Whether the sender waited for a reply. */
  readonly isRequest: boolean
  /** The message that this one replies to; null if there is none. */
  readonly inReplyTo: EnvelopeId | null
  /** The first reply of the recipient; null if none has arrived. */
  readonly reply: RecordedReply | null
}

/**
 * The states that one may wait for, in their order. Each one includes the later ones.
 * @example console.log(WAIT_GOALS[0]) // stored
 */
export const WAIT_GOALS = ['stored', 'pushed', 'settled', 'confirmed'] as const
export type WaitGoal = (typeof WAIT_GOALS)[number]

const PROGRESS: readonly SentState[] = ['sending', 'stored', 'pushed', 'read', 'settled', 'confirmed']
const progressOf = (state: SentState): number => PROGRESS.indexOf(state)

/** Whether the message is in this state or a later one. A rejected or expired message was pushed or stored before. */
export function hasReached({ state }: Pick<SentMessage, 'state'>, goal: WaitGoal): boolean {
  if (progressOf(state) >= 0) return progressOf(state) >= progressOf(goal)
  return state !== 'refused' && (goal === 'stored' || (goal === 'pushed' && state === 'rejected'))
}

/** Whether the state can't change anymore, except that the recipient may still sign it or an operator redrive it. */
export const hasEnded = ({ state }: Pick<SentMessage, 'state'>): boolean =>
  state === 'settled' || state === 'confirmed' || progressOf(state) < 0

export interface SentReport {
  readonly state: SentState
  readonly atMs: Millis
  readonly reason?: string
  /** The peer that signed the report. */
  readonly signer?: PeerKey
}

/**
 * Returns the changed fields, or null if the report is outdated. A signed statement outweighs the broker's word, and a
 * later statement of the recipient an earlier one, because a redriven message can be settled after it was rejected.
 */
export function changeBy(sent: SentMessage, report: SentReport): Partial<SentMessage> | null {
  const { state, atMs, reason = '', signer = null } = report
  const change = { state, atMs, reason, signer, isSigned: signer !== null }
  if (signer !== null && state !== 'read') {
    const isOld = sent.isSigned && hasEnded(sent) && atMs < sent.atMs
    return isOld || (state === sent.state && sent.isSigned) ? null : change
  }
  if (sent.isSigned && hasEnded(sent)) return null
  if (progressOf(state) < 0) return sent.state === state || sent.state === 'settled' ? null : change
  const isRedriven = progressOf(sent.state) < 0 && state === 'settled'
  return isRedriven || (progressOf(sent.state) >= 0 && progressOf(state) > progressOf(sent.state)) ? change : null
}

export const stateOfOutcome = (outcome: ConfirmedOutcome): SentState => (outcome === 'settled' ? 'confirmed' : outcome)

export const unknownMessage = () =>
  new SealpostError('message_unknown', 'The log has no sent message with this envelope id.')

const ENDS = {
  rejected: ['message_rejected', 'The recipient rejected the message'],
  expired: ['message_expired', 'The message expired before the recipient settled it'],
  struck_out: ['message_struck_out', 'The message failed too often at the recipient and is now a dead letter'],
} as const

/** Returns the error for a message that will not reach the awaited state. A confirmation may follow a settle. */
export function endError({ state, reason }: SentMessage): SealpostError | null {
  if (state !== 'rejected' && state !== 'expired' && state !== 'struck_out') return null
  const [code, sentence] = ENDS[state]
  return new SealpostError(code, `${sentence}${reason === '' ? '' : `: ${reason}`}.`)
}

export function timedOut({ state }: SentMessage): SealpostError {
  const settled = 'The broker reports that the message was settled, but the recipient has not confirmed it in time.'
  const sentence = state === 'settled' ? settled : `The message has not reached this state in time; it is ${state}.`
  return new SealpostError('timeout', `${sentence} Don't send it again.`)
}
