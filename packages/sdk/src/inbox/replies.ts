/**
 * Replies to a message and ends it in one store write: `@sealpost/sdk/replies`. A process that dies before the write
 * leaves the message in the queue and sends nothing. A process that dies after it leaves both to the next process.
 */
import { SealpostError } from '../errors.ts'
import { postTermsOf } from '../outbox/lane.ts'
import { type Enqueued, enqueuedBy, type Peer, portsOf } from '../peer.ts'
import { bytesOf, type Message, type ReplyOptions, unwanted } from './message.ts'

/**
 * Replies to a message like `Message.reply` and settles it, in one write to the peer's store. Resolves when both are
 * stored. If the reply is refused before it is stored, the message usually stays open; `message_ended` means that the
 * application had already settled, returned or rejected it.
 * @throws SealpostError `message_ended`, `no_auto_reply`, and the errors of `Peer.enqueue`
 * @example const { receipt } = await settleWithReply(peer, message, 'done', { isAutomatic: true })
 */
export function settleWithReply(
  peer: Peer,
  message: Message,
  body: Uint8Array | string,
  options: ReplyOptions = {},
): Promise<Enqueued> {
  return endWithReply(peer, { message, body, options, isError: false }, () => message.settle())
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
  return endWithReply(peer, { message, body: text, options, isError: true }, () => message.reject(reason))
}

interface FinalReply {
  readonly message: Message
  readonly body: Uint8Array | string
  readonly options: ReplyOptions
  readonly isError: boolean
}

/** Posts the reply and ends the message without a pause in between, so that the store writes them as one batch. */
function endWithReply(peer: Peer, { message, body, options, isError }: FinalReply, end: () => void): Promise<Enqueued> {
  const { isAutomatic, ...chosen } = options
  const { sender, envelopeId: inReplyTo, priority, hops, thread, state } = message
  return enqueuedBy((reports) => {
    if (state !== 'open') throw new SealpostError('message_ended', 'This message has already been ended.')
    if (isAutomatic && message.noAutoReply) throw unwanted()
    const asked = { priority, ...chosen, hops: hops + 1, ...(thread === null ? {} : { thread }) }
    let isRefused = false
    const post = {
      ...postTermsOf(sender, asked, { inReplyTo, ...(isError && { isError }) }),
      body: bytesOf(body),
      ...reports,
      refused: (error: SealpostError) => {
        isRefused = true
        reports.refused(error)
      },
    }
    portsOf(peer).tell((engine) => engine.enqueue(post))
    if (!isRefused) end()
  })
}
