/** Connects the engine with confirmations and the log, whose code is in other entries so that it costs a plain peer nothing. */
import type { Note, StreamId } from '@sealpost/identity'
import type { PeerKey, PoolId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { Message } from '../inbox/message.ts'
import type { BarringObserver } from '../members/member-guard.ts'
import type { OutgoingMessage, SealHooks } from '../outbox/lane.ts'
import type { PoolSend } from '../pools/pool-sender.ts'
import type { PeerEvent } from '../ports.ts'

export interface SentHooks extends SealHooks {
  /** Called in the turn in which a message has ended: it was settled (null), or rejected with a reason. */
  forget?: (message: Message, reason: string | null) => void
  /** Called in the same turn in which the message is settled (null) or rejected with a reason. */
  ended?: (message: Message, reason: string | null) => void
  /**
   * Called with each message that has a note, such as a reply or a confirmation, which is then settled. The application
   * never sees a confirmation.
   */
  arrived?: (message: Message, emit: (event: PeerEvent) => void) => void
  /** Called with each message that the peer sends, except those to pools. Returns the message to send. */
  sending?: (post: OutgoingMessage) => OutgoingMessage
  /** Called with each message to a pool. Returns the message to send. */
  sendingToPool?: (pool: TargetPool, send: PoolSend) => PoolSend
  /** Called with each message that has a note, when it is handed out. */
  noted?: (message: Message, inbox: StreamMemory, emit: (event: PeerEvent) => void) => void
  /**
   * Called before a group message is sealed again for these members: those who are listed now, or those whom an earlier
   * process did not reach. Calls `then` with an observer that bars the members that are not proven.
   */
  guard?: <Observer extends BarringObserver>(
    members: readonly PeerKey[],
    observer: Observer,
    then: (guarded: Observer) => void,
  ) => void
}

/** What a peer knows of the streams of others. `Inbox` implements it. */
export interface StreamMemory {
  /** Returns how many messages of a stream are missing after the highest known one, up to this one. */
  missingUpTo(sender: PeerKey, streamId: StreamId, seq: number): number
}

/** The pool that a message is sent to. `Pool` has these properties. */
export interface TargetPool {
  readonly id: PoolId
  readonly name: string
  readonly members: readonly PeerKey[]
}

/** Asks for confirmations of one message. */
export interface ConfirmWish {
  /**
   * Which confirmations to ask each recipient for: of the `end` of the message, or `all`, also that it was read. For the
   * log (`sentLogOf`). Default: none.
   */
  readonly confirm?: 'end' | 'all'
}

/**
 * The maximum number of recipients of one message that are asked for confirmations. Each confirmation is a message to
 * the sender, so a group of 256 members would send as many messages to one peer at about the same time.
 * @example console.log(CONFIRMATIONS_MAX) // 64
 */
export const CONFIRMATIONS_MAX = 64

/** Returns the note that asks for the confirmations. @throws SealpostError `too_many_confirmations` */
export function wishNote({ confirm }: ConfirmWish, recipientCount = 1): Pick<Note, 'confirm'> | undefined {
  if (!confirm) return undefined
  if (recipientCount <= CONFIRMATIONS_MAX) return { confirm }
  throw new SealpostError(
    'too_many_confirmations',
    `At most ${CONFIRMATIONS_MAX} recipients of a message can confirm it; this one has ${recipientCount}.`,
  )
}
