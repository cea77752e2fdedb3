/**
 * Replies to a message and ends it in one store write: `@sealpost/sdk/replies`. A process that dies before the write
 * leaves the message in the queue and sends nothing. A process that dies after it leaves both to the next process.
 */
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import { SealpostError } from '../errors.ts'
import type { OutgoingMessage, OutgoingTerms } from '../outbox/lane.ts'
import { type Enqueued, type EnqueueReports, enqueuedBy, type Peer, portsOf } from '../peer.ts'
import { bytesOf, type Message, type ReplyOptions, replyTermsOf } from './message.ts'

/**
 * Replies to a message like `Message.reply` and settles it, in one write to the peer's store. Resolves when both are
 * stored. If the reply is refused before it is stored, the message usually stays open; `message_ended` means that the
 * application had already settled, returned or rejected it.
 *
 * `peer` may be the peer of a session. The host of the session then replies to a message of the member, and the write is
 * in the member's store. The promise stays pending while no host can confirm the write. If the host refuses the reply,
 * the message goes back to the queue.
 * @throws SealpostError `message_ended`, `no_auto_reply`, and the errors of `Peer.enqueue`
 * @example const { receipt } = await settleWithReply(peer, message, 'done', { isAutomatic: true })
 */
export function settleWithReply(
  peer: Peer,
  message: Message,
  body: Uint8Array | string,
  options: ReplyOptions = {},
): Promise<Enqueued> {
  return endWithReply(peer, message, { body: bytesOf(body), options, rejectedFor: null })
}

/**
 * Replies that the request failed, like `Message.replyError`, and rejects the message for this reason, in one write to
 * the peer's store.
 * @throws the errors of `settleWithReply`
 * @example await rejectWithReply(peer, message, 'no_such_file', 'There is no such file.')
 */
export function rejectWithReply(
  peer: Peer,
  message: Message,
  reason: string,
  text: string,
  options: ReplyOptions = {},
): Promise<Enqueued> {
  return endWithReply(peer, message, { body: bytesOf(text), options, rejectedFor: reason })
}

/** The last reply to a message. @internal */
export interface FinalReply {
  readonly body: Uint8Array
  readonly options: ReplyOptions
  /** Why the message is rejected; null if it is settled. */
  readonly rejectedFor: string | null
}

/** Ends a message of another mailbox. @internal */
export type MailboxEnd = (reply: FinalReply) => Promise<Enqueued>

const mailboxEnds = new WeakMap<Message, MailboxEnd>()

/** Lets a mailbox end this message, because the message is in its store. @internal */
export function endInMailbox(message: Message, end: MailboxEnd): void {
  mailboxEnds.set(message, end)
}

async function endWithReply(peer: Peer, message: Message, reply: FinalReply): Promise<Enqueued> {
  if (message.state !== 'open') throw messageEnded()
  termsOf(message, reply) // throws if the options are invalid
  if (reply.body.length > BODY_BYTES_MAX) throw tooLarge()
  const end = mailboxEnds.get(message)
  return end ? end(reply) : enqueuedBy((reports) => endInStore(peer, message, { ...reply, reports }))
}

const tooLarge = (): SealpostError =>
  new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`)

/** @internal */
export const messageEnded = (): SealpostError =>
  new SealpostError('message_ended', 'This message has already been ended.')

interface ReportedReply extends FinalReply {
  readonly reports: EnqueueReports
}

/**
 * Posts the reply and ends the message without a pause in between, so that the store writes them as one batch. If the
 * reply is refused at once, the message stays open. @internal
 */
export function endInStore(peer: Peer, message: Message, { reports, ...reply }: ReportedReply): void {
  let isRefused = false
  const refused = (error: SealpostError) => {
    isRefused = true
    reports.refused(error)
  }
  const { tell } = portsOf(peer)
  postReply(message, { ...reply, reports: { ...reports, refused } }, (post) => tell((engine) => engine.enqueue(post)))
  if (isRefused) return
  if (reply.rejectedFor === null) message.settle()
  else message.reject(reply.rejectedFor)
}

/** Posts the reply to the sender. If the sender is a device that was ended, its user gets the reply. @internal */
export function postReply(
  message: Message,
  { reports, ...reply }: ReportedReply,
  enqueue: (post: OutgoingMessage) => void,
): void {
  enqueue({ ...termsOf(message, reply), body: reply.body, ...reports })
}

const termsOf = (message: Message, { options, rejectedFor }: FinalReply): OutgoingTerms =>
  replyTermsOf(message, options, {
    ...{ inReplyTo: message.envelopeId },
    ...(rejectedFor !== null && { isError: true }),
  })
