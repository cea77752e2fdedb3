/**
 * Prepares messages that an application stores in its own transaction. The peer seals and signs the message, and
 * `sealpost.send` in Postgres stores the bytes. A broker sends the message once the transaction has committed.
 */
import { type EnvelopeDraft, PREPARED_LIFETIME_MS_MAX, type SealedEnvelope, signPreparedSend } from '@sealpost/identity'
import { BODY_BYTES_MAX, encodeTerms, PRIORITIES, type Priority } from '@sealpost/protocol'
import { type EnvelopeId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { asSealError, SealpostError } from '../errors.ts'
import { bytesOf } from '../inbox/message.ts'
import { type Peer, portsOf } from '../peer.ts'
import type { CryptoPort } from '../ports.ts'
import { postTermsOf, type SendOptions } from './lane.ts'

/** Like `SendOptions`, without `ifOnline`, because the message is sent later. */
export type PrepareOptions = Omit<SendOptions, 'ifOnline'> & {
  /**
   * How long a broker may accept the message, in whole seconds, at most a day. Afterwards, it is refused as `expired`.
   * Default: a day.
   */
  readonly validSeconds?: number
}

/** A sealed and signed message. Nothing is sent until a transaction that stores it commits. */
export interface PreparedMessage {
  /** The id under which the recipient gets the message, and under which `sealpost.sent_status` returns its status. */
  readonly envelopeId: EnvelopeId
  /** The argument of `sealpost.send`, which has the type `bytea`. */
  readonly request: Uint8Array
  /** The request as a literal of the type `bytea`: `\x` and hex digits. */
  readonly literal: string
  readonly expiresAtMs: Millis
}

const DAY_SECONDS = PREPARED_LIFETIME_MS_MAX / 1000

/**
 * Seals and signs a message for `select sealpost.send(…)`. Needs no connection if the recipient's key is known. The
 * message has no order relative to messages of `peer.send`. Messages that are prepared for one recipient arrive in the
 * order of the calls of `sealpost.send`, if these run in one transaction or one after another.
 * @throws SealpostError `body_too_large`, `key_refused`, `ratchet_required`, and the errors of `Peer.lookupKey`
 * @example const { request } = await prepareSend(peer, ben, 'order 7 is paid') // then: select sealpost.send($1)
 */
export async function prepareSend(
  peer: Peer,
  to: PeerKey,
  body: Uint8Array | string,
  options: PrepareOptions = {},
): Promise<PreparedMessage> {
  const { validSeconds = DAY_SECONDS, ...sendOptions } = options
  if (!Number.isInteger(validSeconds) || validSeconds < 1 || validSeconds > DAY_SECONDS)
    throw new RangeError(`validSeconds must be a whole number from 1 to ${DAY_SECONDS}`)
  const { priority, ttlSeconds, terms, note } = postTermsOf(to, sendOptions)
  const bytes = bytesOf(body)
  if (bytes.length > BODY_BYTES_MAX)
    throw new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`)
  const { crypto, meshId, self, signing, tell } = portsOf(peer)
  const recipient = tell(({ users }) => users.current(to))
  const key = await peer.lookupKey(recipient)
  const envelopeId = crypto.newEnvelopeId()
  const preparedAtMs = Date.now()
  const expiresAtMs = preparedAtMs + validSeconds * 1000
  const draft = { to: key, envelopeId, stream: null, sentAtMs: preparedAtMs, note: note ?? null, body: bytes }
  const { envelope } = await sealed(crypto, draft, priority)
  const request = signPreparedSend(signing, {
    ...{ meshId, sender: self, recipient, envelopeId, preparedAtMs, expiresAtMs, ttlSeconds, envelope },
    priority: PRIORITIES.indexOf(priority),
    notBeforeMs: terms?.notBeforeMs ?? 0,
    terms: (terms && encodeTerms(terms)) ?? NO_TERMS,
  })
  return { envelopeId, request, literal: `\\x${toHex(request)}`, expiresAtMs }
}

const NO_TERMS = new Uint8Array(0)

async function sealed(crypto: CryptoPort, draft: EnvelopeDraft, priority: Priority): Promise<SealedEnvelope> {
  try {
    return (await crypto.sealStored?.(draft, priority)) ?? crypto.seal(draft)
  } catch (cause) {
    throw asSealError(cause)
  }
}
