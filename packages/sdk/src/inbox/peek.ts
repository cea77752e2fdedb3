/**
 * Looks at the mail that waits at the broker, without taking it (`@sealpost/sdk/peek`). The deliveries stay in the
 * queue, and their attempts are not counted.
 */
import { type BoxKeys, isRatcheted, type Note, ready, Sealer } from '@sealpost/identity'
import { senderKeyBox } from '@sealpost/identity/sender-keys'
import { LOOKUP_MAX, type Priority } from '@sealpost/protocol'
import { type EnvelopeId, fromBase64url, type Millis, type PeerKey } from '@sealpost/std'
import { GroupSecrecy } from '../forward/group-secrecy.ts'
import { laneOf, openBytesInLane, openInLane, RatchetLanes } from '../forward/ratchet-lanes.ts'
import { HttpAccess, type HttpOptions, type PeerCredentials } from '../http/access.ts'
import type { KnownKey } from '../keys/key-directory.ts'
import { type SodiumCryptoOptions, sodiumCrypto } from '../keys/sodium-crypto.ts'
import { chunksOf } from '../outbox/lane.ts'
import type { Peer } from '../peer.ts'
import type { CryptoPort } from '../ports.ts'
import type { StoreRecord } from '../stores/records.ts'
import { StoreWriter } from '../stores/store.ts'

export type { HttpOptions, PeerCredentials } from '../http/access.ts'

export interface PeekOptions extends HttpOptions {
  /** Box keys from before a rotation. */
  readonly formerBoxKeys?: readonly BoxKeys[] | undefined
  readonly formerKeys?: readonly PeerKey[] | undefined
  /** The records of the peer's store, which open ratcheted messages. They are not changed. */
  readonly records?: readonly StoreRecord[]
  /** The maximum number of messages, at most 100. Default: 100. */
  readonly limit?: number
  readonly signal?: AbortSignal
}

/**
 * Leaves the messages to a peer unread while it waits for replies, receipts or confirmations. No other process of the peer
 * gets the messages until the peer is closed, and they count no attempt, however long it waits. Replaces the handler of
 * `onMessage`.
 * @example leaveUnread(peer)
 */
export function leaveUnread(peer: Peer): void {
  peer.onMessage((message) => {
    message.isUnread = true
    return new Promise(() => undefined) // the lease is extended, because a lapsed one would be a failed attempt
  })
}

/** A message that waits at the broker. */
export interface WaitingMessage {
  readonly envelopeId: EnvelopeId
  /** The sender, as the broker reports it. `content` proves it. */
  readonly sender: PeerKey
  readonly priority: Priority
  /** The number of pushes so far. */
  readonly attempts: number
  readonly enqueuedAtMs: Millis
  readonly expiresAtMs: Millis
  /** Whether a session of this peer holds the message. */
  readonly isHeld: boolean
  /** The size of the sealed message. */
  readonly bytes: number
  /** Null if the message can't be opened here, or if the broker left it out because the list was too long. */
  readonly content: WaitingContent | null
}

/** What the sender has sealed. */
export interface WaitingContent {
  readonly body: Uint8Array
  readonly sentAtMs: Millis
  readonly thread: string | null
  readonly inReplyTo: EnvelopeId | null
  readonly isRequest: boolean
  readonly group: string | null
  /** The reference to an attached file, for `readAttachment`. */
  readonly attachment: string | null
}

export interface WaitingMail {
  /** The first messages, in the order in which the broker would push them. */
  readonly messages: readonly WaitingMessage[]
  /** The number of all waiting messages. The broker counts at most 10,000. */
  readonly total: number
}

/**
 * Lists the messages that wait for a peer. Needs no session, so it works while another process has one. A message whose
 * sender has rotated its box key may have no content.
 * @throws SealpostError `connection_lost`; `not_found` if the broker is too old
 * @example const { messages, total } = await peekInbox({ ...membership, identity })
 */
export async function peekInbox(place: PeerCredentials, options: PeekOptions = {}): Promise<WaitingMail> {
  await ready()
  const { limit, signal, formerBoxKeys = [], formerKeys = [], records = [], ...http } = options
  const access = new HttpAccess(place, http)
  try {
    const query = limit === undefined ? '' : `?limit=${limit}`
    const reply = await access.ask({ method: 'GET', path: `/v1/inbox/waiting${query}`, signal })
    const { waiting, total } = reply.json<{ waiting: readonly WaitingJson[]; total: number }>()
    const crypto = cryptoOf({ ...place, formerBoxKeys, formerKeys }, records)
    const keys = await keysOf(access, crypto, { peers: new Set(waiting.map(({ sender }) => sender)), signal })
    return { total, messages: waiting.map((item) => messageOf(item, keys.get(item.sender), crypto)) }
  } finally {
    await access.close()
  }
}

/** Returns operations that also open ratcheted messages, in copies of the stored ratchets. */
function cryptoOf(options: SodiumCryptoOptions, records: readonly StoreRecord[]): CryptoPort {
  const { identity, meshId, formerBoxKeys = [] } = options
  const crypto = sodiumCrypto(options)
  const writer = new StoreWriter(() => undefined)
  const lanes = new RatchetLanes(meshId, writer, records)
  const { sealBody } = crypto.groups
  const groups = new GroupSecrecy(
    { meshId, now: Date.now, writer, plain: crypto, sealBody, distribute: () => null },
    records,
  )
  const own = { own: identity, ownBoxes: [identity.box, ...formerBoxKeys] }
  const by = { ...own, now: Date.now, sealer: new Sealer(options), lanes }
  const open: CryptoPort['open'] = (from, arrival) => {
    if (!isRatcheted(arrival.envelope)) return crypto.open(from, arrival)
    if (!senderKeyBox(arrival.envelope)) return openInLane(by, from, arrival).opened
    const lane = laneOf(lanes, from.peerKey, arrival.priority!)
    return groups.open(from, arrival, (bytes) => openBytesInLane(by, lane, from, bytes)).verdict
  }
  return { ...crypto, open }
}

interface WaitingJson extends Omit<WaitingMessage, 'content'> {
  readonly envelope: string | null
  readonly body: string | null
}

interface BindingJson {
  readonly peer: PeerKey
  readonly boxKey: string
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: string
}

/** Looks up box keys. Omits bindings that their peer has not signed. */
async function keysOf(
  access: HttpAccess,
  crypto: CryptoPort,
  { peers, signal }: { readonly peers: ReadonlySet<PeerKey>; readonly signal: AbortSignal | undefined },
): Promise<ReadonlyMap<PeerKey, KnownKey>> {
  const keys = new Map<PeerKey, KnownKey>()
  for (const some of chunksOf([...peers], LOOKUP_MAX)) {
    const reply = await access.ask({ method: 'POST', path: '/v1/lookup', json: { peers: some }, signal })
    for (const { boxKey, signature, ...facts } of reply.json<{ bindings: readonly BindingJson[] }>().bindings) {
      const binding = { ...facts, boxKey: fromBase64url(boxKey), signature: fromBase64url(signature) }
      const isSigned = crypto.checkBinding(binding, { peer: facts.peer, nowMs: Date.now() }) === 'ok'
      if (isSigned) keys.set(facts.peer, { ...binding, peerKey: facts.peer })
    }
  }
  return keys
}

function messageOf(
  { envelope, body, ...facts }: WaitingJson,
  key: KnownKey | undefined,
  crypto: CryptoPort,
): WaitingMessage {
  if (!key || envelope === null) return { ...facts, content: null }
  const opened = crypto.open(key, { ...facts, envelope: fromBase64url(envelope) })
  if (!opened.ok) return { ...facts, content: null }
  const text = body === null ? opened.body : crypto.groups.openBody(fromBase64url(body), opened.body)
  const content = text && contentOf(text, { sentAtMs: opened.header.sentAtMs, note: opened.note ?? {} })
  return { ...facts, content }
}

function contentOf(body: Uint8Array, { sentAtMs, note }: { sentAtMs: Millis; note: Note }): WaitingContent {
  const { thread = null, inReplyTo = null, isRequest = false, group = null, attachment = null } = note
  return { body, sentAtMs, thread, inReplyTo, isRequest, group, attachment }
}
