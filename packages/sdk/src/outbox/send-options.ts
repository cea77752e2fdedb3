/** What a sender may ask for with a message, and what becomes of it on the wire and in the box. */
import type { Note } from '@sealpost/identity'
import { NO_THREAD, type Priority, type ReceiptWish, type SendTerms } from '@sealpost/protocol'
import { isHex, type Millis, type PeerKey } from '@sealpost/std'
import type { OutgoingTerms } from './lane.ts'

export interface SendOptions {
  /** Default `next`. */
  readonly priority?: Priority
  /** Whole seconds the broker keeps it for an absent recipient. Default: the broker's own. */
  readonly ttlSeconds?: number
  /**
   * Kept back by the broker until then, by its database's clock; a number is ms since 1970. Such a message keeps no order
   * with others, and no gap tells of its loss.
   */
  readonly notBefore?: Date | Millis
  /** Told by `receipt` events: `end`, how it ended; `all`, also that it was pushed. Default `none`. */
  readonly receipts?: ReceiptWish
  /** 32 hex digits. What belongs to one conversation; the broker bounds how much of it passes in a time. */
  readonly thread?: string
  /** The reference to a file that was uploaded, from `attachmentText`; sealed with the body. */
  readonly attachment?: string
  /** How often this conversation has passed from peer to peer; `reply` counts it. Default 0. */
  readonly hops?: number
  /** No answer is wanted that no person wrote. */
  readonly noAutoReply?: boolean
  /** Refused with `no_responder` when the recipient has no session. */
  readonly ifOnline?: boolean
}

const HOPS_MAX = 0xffff

/** @throws RangeError for an option that is none of its kind */
export function postTermsOf(to: PeerKey, options: SendOptions, note?: Note): OutgoingTerms {
  const { priority = 'next', ttlSeconds = 0, thread, attachment } = options
  check(Number.isSafeInteger(ttlSeconds) && ttlSeconds >= 0, 'ttlSeconds is a whole number of seconds')
  const isNoted = thread || attachment
  const whole = isNoted ? { ...(thread && { thread }), ...(attachment && { attachment }), ...note } : note
  return { to, priority, ttlSeconds, terms: sendTermsOf(options), note: whole }
}

/** Undefined when nothing is asked for: then the message goes by the plain `send`. */
function sendTermsOf(options: SendOptions): SendTerms | undefined {
  const { receipts = 'none', thread = NO_THREAD, hops = 0, noAutoReply = false, ifOnline = false } = options
  const notBeforeMs = options.notBefore === undefined ? 0 : Number(options.notBefore)
  const isPlain = receipts === 'none' && thread === NO_THREAD && hops === 0 && notBeforeMs === 0
  if (isPlain && !noAutoReply && !ifOnline) return undefined
  check(isHex(thread, 16), 'thread is 32 hex digits in lower case')
  check(Number.isInteger(hops) && hops >= 0 && hops <= HOPS_MAX, `hops is a whole number up to ${HOPS_MAX}`)
  check(notBeforeMs >= 0 && notBeforeMs <= Number.MAX_SAFE_INTEGER, 'notBefore is a time after 1970')
  return { notBeforeMs: Math.ceil(notBeforeMs), receipts, thread, hops, noAutoReply, ifOnline }
}

function check(isGood: boolean, rule: string): void {
  if (!isGood) throw new RangeError(rule)
}
