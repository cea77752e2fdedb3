/**
 * Defines the interfaces of the SDK's pure part: cryptography, commands and events. The client implements them with
 * libsodium and a WebSocket, the simulator with a cheap fake and its own network.
 */
import type {
  Correspondent,
  checkShardCertificate,
  DeviceRemoval,
  DeviceStatement,
  EnvelopeDraft,
  GroupStatement,
  IdentityRotation,
  KeyBindingVerdict,
  SealedBody,
  SealedEnvelope,
  StreamId,
  Transcript,
} from '@sealpost/identity'
import type { RatchetNews } from '@sealpost/identity/ratchet'
import type {
  Availability,
  ClientFrame,
  Death,
  FrameOf,
  KeyBindingEntry,
  Priority,
  ServerFrame,
} from '@sealpost/protocol'
import type { EnvelopeId, GroupId, MeshId, Millis, PeerKey, PoolId } from '@sealpost/std'
import type { KnownAddresses, ShardRefusal } from './connection/addresses.ts'
import { type SealpostCode, SealpostError } from './errors.ts'
import type { DeliveryReceipt } from './inbox/inbox.ts'
import type { Message, OpenVerdict } from './inbox/message.ts'
import type { Receipt } from './outbox/lane.ts'
import type { SeenStore } from './stores/store.ts'

/** The operations of one identity in one mesh. They are synchronous. The caller stores the keys of other peers. */
export interface CryptoPort {
  /** Call when a session has begun: padding makes no envelope longer than the broker accepts. */
  limitPadding?(envelopeBytesMax: number): void
  signAuth(transcript: Transcript): Uint8Array
  /** Returns whether WELCOME was signed with `transcript.brokerKey`, the pinned key, for this AUTH. */
  isBrokerProof(transcript: Transcript, clientSignature: Uint8Array, proof: Uint8Array): boolean
  checkCertificate: typeof checkShardCertificate
  checkBinding(binding: KeyBindingEntry, expected: { peer: PeerKey; nowMs: Millis }): KeyBindingVerdict
  /** Seals an envelope, for a lane if it has a priority. Throws if no key can seal it. */
  seal(draft: EnvelopeDraft, priority?: Priority): SealedEnvelope
  /** Returns whether keys of this lane were requested, so that `unlock` or `refuse` will follow. */
  awaitsKeys?(to: Correspondent, priority: Priority): boolean
  /** Seals outside the outbox: waits for the keys of the lane, and resolves when its ratchet is stored. */
  sealStored?(draft: EnvelopeDraft, priority: Priority): Promise<SealedEnvelope>
  /**
   * Opens an envelope. Never throws on input from the network. After `does_not_open`, request the sender's newer key.
   */
  open(from: Correspondent, arrival: IncomingEnvelope): OpenVerdict
  /** Returns whether this peer lacks this box key and has no newer one. */
  lacksBoxKey(key: Pick<Correspondent, 'boxKey' | 'boxEpoch'>): boolean
  /** Returns 32 random bytes. */
  newNonce(): Uint8Array
  newEnvelopeId(): EnvelopeId
  newStreamId(): StreamId
  readonly groups: GroupCrypto
  readonly users: UserCrypto
}

export interface IncomingEnvelope {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly envelope: Uint8Array
  /** Absent for ephemeral messages. */
  readonly priority?: Priority
}

/** The engine's commands. Each reply contains the number of its dial, so that late ones are recognized. */
export interface PeerEffects {
  /** Opens a socket. Replies: `opened` and then `received`, or only `closed`. */
  dial(dialNo: number, url: string): void
  /**
   * Closes this dial's socket. Its later events are ignored; `closed` need not be called. `code`: the close code if the
   * peer has ended; otherwise none, and the messages that it has received count their attempts.
   */
  closeSocket(dialNo: number, code?: number): void
  transmit(frame: ClientFrame): void
  deliver(message: Message): void
  emit(event: PeerEvent): void
  /** Calls `flush` soon after the running code has returned, so that its requests are sent together. */
  flushSoon(): void
}

/** The subset of the standard WebSocket that the SDK uses. Browsers, Node, Bun and fakes provide it. */
export interface WebSocketLike {
  binaryType: string
  readonly protocol: string
  /** Sends a frame. Copies the bytes before it returns, as the standard requires. */
  send(wire: Uint8Array | string): void
  close(code?: number, reason?: string): void
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number }) => void) | null
  onerror: ((event: never) => void) | null
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

/** Returns the platform's WebSocket. @throws SealpostError `websocket_missing` */
export function platformWebSocket(): WebSocketConstructor {
  if (typeof WebSocket === 'function') return WebSocket as unknown as WebSocketConstructor
  throw new SealpostError('websocket_missing', MISSING)
}

const MISSING = 'This runtime has no WebSocket: use Node 22 or later, or pass a WebSocket class as `webSocket`.'

export interface ConnectionTarget {
  /** The addresses of the cluster, at least one. They are dialled in turn. */
  readonly urls: readonly string[]
  readonly known?: KnownAddresses | undefined
  /** The pinned key. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

/** The operations of groups, for one identity in one mesh. */
export interface BodyAudience {
  readonly group: Pick<GroupStatement, 'groupId'>
  readonly to: readonly PeerKey[]
  readonly terms: { readonly priority: Priority }
}

export interface GroupCrypto {
  /** Returns null unless the bytes are a group statement of this mesh, signed by the group's owner. */
  read(statement: Uint8Array): GroupStatement | null
  /** `audience`: the members of a group for whom the body is, except those in `barred`. */
  sealBody(body: Uint8Array, audience?: BodyAudience, barred?: ReadonlySet<PeerKey>): SealedBody
  /** Returns null unless the ticket belongs to exactly these bytes. */
  openBody(bytes: Uint8Array, ticket: Uint8Array): Uint8Array | null
}

/**
 * The operations of users, for one identity in one mesh. Each reader returns null if a signature is missing or the mesh
 * is a different one.
 */
export interface UserCrypto {
  readDevice(bytes: Uint8Array): DeviceStatement | null
  readRemoval(bytes: Uint8Array): DeviceRemoval | null
  readIdentityRotation(bytes: Uint8Array): IdentityRotation | null
}

/** A part of the engine that sends its own frames. */
export interface EnginePart {
  /** Call when a session has begun. */
  connected?(welcome: FrameOf<'welcome'>, nowMs: Millis): void
  /** Call when the session has ended. */
  disconnected(): void
  /** Returns the frames to send now. Called only during a session. */
  takeFrames(nowMs: Millis): readonly ClientFrame[]
  /** When the part must run next without an external event; Infinity if nothing is scheduled. */
  readonly wakeAtMs: Millis
  /** Refuses everything that waits for a reply. */
  close?(error: SealpostError): void
}

/** A part that a separate entry point, such as pools, adds to the engine. */
export interface AddedPart extends EnginePart {
  /** The number of messages without a final reply. */
  readonly pendingCount: number
  /** Whether other members may open a message that this peer can't open. */
  readonly isPoolMember: boolean
  /** Receives every `ack` and `nack`, and the frames that no other part takes. */
  received(frame: ServerFrame, nowMs: Millis): void
  tick(nowMs: Millis): void
}

export interface CorrespondentWaiter {
  found(key: Correspondent): void
  refused(error: SealpostError): void
}

export interface AddedPartPorts {
  readonly crypto: CryptoPort
  readonly counters: PeerCounters
  readonly random: () => number
  readonly emit: (event: PeerEvent) => void
  readonly ask: (
    question: { type: 'pools'; after: PoolId },
    handler: { replied(reply: FrameOf<'groupList'>): void; refused(error: SealpostError): void },
  ) => void
  readonly lookup: (peer: PeerKey, waiter: CorrespondentWaiter) => void
  /** Returns the current identity key for a former one. */
  readonly current: (peer: PeerKey) => PeerKey
  readonly flushSoon: () => void
  readonly seen: SeenStore
}

/** A shared empty list, so that a part without frames allocates nothing. */
export const NO_FRAMES: readonly never[] = []

export type PeerEvent =
  /** `incarnation` identifies the database. The event `restored` reports a new incarnation. */
  | { type: 'connected'; epoch: number; incarnation: string; durability: 'fsync' | 'degraded' }
  /**
   * Follows `connected`: the broker's database was restored from a backup, or a standby that lacks some data took over.
   * The peer resends the messages that were acknowledged in the last 15 minutes (`resent` is their number). Older
   * messages, and those of an earlier process, may be lost. Settled mail may be pushed again and is dropped as a
   * duplicate.
   */
  | { type: 'restored'; incarnation: string; resent: number }
  /** A resend was refused, because its recipient may be unknown to the restored database. */
  | { type: 'resend_failed'; to: PeerKey; envelopeId: EnvelopeId; error: SealpostError }
  /**
   * Follows `connected` if the broker's database replies. `lost` lists mail that `expired`, had too many `strikes`, or
   * was `rejected` by this peer. If `isAll` is false, the rest follows after the next `connected`.
   */
  | { type: 'recovered'; isRecovered: boolean; lost: readonly LostMessage[]; isAll: boolean }
  /** `reason`: for `certificate_untrusted`, the platform's certificate error. */
  | { type: 'disconnected'; code: SealpostCode | 'connection_lost'; retryInMs: Millis; reason?: string }
  /** The home of the mesh is another broker of the cluster, which is dialled now. */
  | { type: 'moved'; url: string }
  /**
   * The peer has learned where the mesh is. `cell` lists the public addresses of its cell. `home` is the broker that
   * serves this peer, unless `cell` contains it. A store saves both. Without a store, save `cell` yourself and pass it
   * to `connect` before your own addresses, because the old cell may be gone after a move.
   */
  | ({ type: 'addresses' } & KnownAddresses)
  /** The server at `url` did not prove its key and is skipped. */
  | { type: 'shard_refused'; url: string; reason: ShardRefusal }
  /** The broker at `url` is unreachable, so another one is asked to serve this peer. */
  | { type: 'home_unreachable'; url: string }
  /** The peer has ended. `error` is null after `close()`. */
  | { type: 'closed'; error: SealpostError | null }
  /**
   * Messages from this sender are missing between the previous one and this one. The broker dropped or withheld them,
   * they expired or became dead letters, or an earlier process returned them with `retry`. The event occurs once this
   * message has waited for two seconds, or once 64 messages of its stream wait. Messages that arrive later are still
   * handed out.
   */
  | { type: 'gap'; sender: PeerKey; envelopeId: EnvelopeId; missing: number }
  /**
   * The message does not follow the one that was received before it from the same sender. Someone else has one of the
   * two box keys, or the sender was restored from a copy. The message is handed out.
   */
  | { type: 'forked'; sender: PeerKey; envelopeId: EnvelopeId }
  /**
   * An envelope can't be opened, or its sealed contents contradict its outer fields. It is not handed out. Mail is
   * rejected with this reason: the broker stores it as a dead letter, which an operator can redrive, and the sender
   * receives the receipt that it requested. A member of a pool first returns the message four times, for other members.
   */
  | { type: 'tamper'; sender: PeerKey; envelopeId: EnvelopeId; reason: string }
  /**
   * A message was sealed longer ago than `maxAgeSeconds`. A broker replays what an earlier process of this peer has
   * settled, a clock is wrong, or the message was stored for a very long time. It is rejected as `too_old` and not
   * handed out.
   */
  | { type: 'too_old'; sender: PeerKey; envelopeId: EnvelopeId; sentAtMs: Millis }
  /** The peer has a new box key, which it has signed. */
  | { type: 'key_changed'; peer: PeerKey; boxEpoch: number }
  /** The directory has no trusted key for this peer. Sends to it are refused, and mail from it is deferred. */
  | { type: 'key_refused'; peer: PeerKey; reason: KeyRefusal }
  /** A handler threw. The message returned to the queue for another attempt. */
  | { type: 'handler_failed'; sender: PeerKey; envelopeId: EnvelopeId; cause: unknown }
  /** The broker has stored a message that an earlier process had left in this peer's store. */
  | { type: 'sent'; to: PeerKey; outboxNo: number; receipt: Receipt }
  /** The broker has permanently refused a message from an earlier process, or the message is too old (`maybe_sent`). */
  | { type: 'send_failed'; to: PeerKey; outboxNo: number; error: SealpostError }
  /** A group is new to this peer, or its name or members have changed. Its owner has signed the change. */
  | { type: 'group_changed'; group: GroupId; name: string; epoch: number }
  /** The owner of a known group has deleted it. Messages on their way still arrive. */
  | { type: 'group_deleted'; group: GroupId; name: string }
  /** The broker handed out a statement that no owner signed (`null` for an unknown group), or an outdated one. */
  | { type: 'group_tamper'; group: GroupId | null; reason: 'statement_forged' | 'statement_rolled_back' }
  /** What happened to the ratchet of a lane to and from this peer; null for the lane of ephemeral messages. */
  | { type: 'ratchet'; peer: PeerKey; priority: Priority | null; news: RatchetNews }
  /** The broker has the prekeys of this peer, and this many one-time prekeys. */
  | { type: 'prekeys_published'; oneTimeLeft: number }
  /** This peer could not publish its prekeys. It tries again at the next connection, and daily. */
  | { type: 'prekeys_failed'; error: SealpostError }
  /** A user has vouched for a device or removed it, with a signature. */
  | { type: 'device_changed'; user: PeerKey; device: PeerKey; label: string; isVouched: boolean }
  /**
   * A peer has a new identity key; both keys have signed the change. Messages to the former key go to the successor.
   */
  | { type: 'identity_changed'; former: PeerKey; successor: PeerKey }
  /**
   * The broker handed out a statement without a valid signature, or one that contradicts an earlier one. It is not
   * trusted.
   */
  | { type: 'user_tamper'; peer: PeerKey | null; reason: UserTamper }
  /** Like `group_tamper`, but for a pool. */
  | { type: 'pool_tamper'; pool: PoolId | null; reason: 'statement_forged' | 'statement_rolled_back' }
  /** This peer no longer works for the pool: the owner has removed the peer or deleted the pool. */
  | { type: 'pool_left'; pool: PoolId; reason: 'not_in_pool' | 'unknown_pool' | 'too_many' }
  /**
   * Another peer reports that the broker has acknowledged a message that this peer has not received: the last one in a
   * lane, `missing` messages after the last one that arrived. The broker dropped or withheld them, they expired or
   * became dead letters, or an earlier process returned them with `retry`. `envelopeId`: the message that revealed it.
   */
  | {
      type: 'message_withheld'
      sender: PeerKey
      envelopeId: EnvelopeId
      streamId: StreamId
      missing: number
      sentAtMs: Millis
    }
  /**
   * The broker shows this peer an older or different view than it showed to the sender of this message. `shown` is what
   * this peer sees after it has asked again. Either the broker or the sender lies, or the owner signed two statements
   * with one epoch.
   */
  | { type: 'view_split'; sender: PeerKey; envelopeId: EnvelopeId; view: SplitView }
  /** What happened to a message that was sent with `receipts`. */
  | ({ type: 'receipt' } & DeliveryReceipt)
  /** Someone came online, went offline or changed status. After `disconnected` everybody counts as offline. */
  | ({ type: 'presence' } & PresenceEntry)
  | ({ type: 'ephemeral' } & EphemeralMessage)
  /** An ephemeral message reached nobody: `no_responder`, `connection_lost` without a session, or the code of a refusal. */
  | { type: 'ephemeral_lost'; envelopeId: EnvelopeId; code: SealpostCode }

/** What two peers see differently. */
export type SplitView =
  | {
      readonly subject: 'group'
      readonly id: GroupId
      readonly shown: StatementView | null
      readonly reported: StatementView
    }
  | {
      readonly subject: 'pool'
      readonly id: PoolId
      readonly shown: StatementView | null
      readonly reported: StatementView
    }
  /** `checkpoint`: the one that the sender has seen. `reason`: how the log that this peer sees contradicts it. */
  | { readonly subject: 'log'; readonly checkpoint: Uint8Array; readonly reason: string }

/** A statement, by its epoch and the hash of its bytes (32 hex digits). */
export interface StatementView {
  readonly epoch: number
  readonly hash: string
}

/** An ephemeral message. The application owns the body. */
export interface EphemeralMessage {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly body: Uint8Array
  /** When the message was sent, according to the sender's clock, in whole milliseconds. */
  readonly sentAtMs: Millis
}

export type UserTamper =
  | 'statement_forged'
  | 'device_removed'
  | 'invite_used_twice'
  | 'device_of_another'
  | 'succession_forked'

/** A message that left the queue unsettled while this peer was offline. */
export interface LostMessage {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly reason: Death
}

export type KeyRefusal =
  | 'unknown_peer'
  | 'binding_forged'
  | 'binding_expired'
  | 'binding_foreign'
  | 'binding_rolled_back'

/** Counters since this peer was opened. */
export interface PeerCounters {
  sent: number
  resent: number
  acked: number
  nacked: number
  received: number
  duplicates: number
  /** The number of messages that arrived before an earlier one of their stream. */
  reordered: number
  tampered: number
  settled: number
  retried: number
  sessions: number
}

export const newCounters = (): PeerCounters => ({
  sent: 0,
  resent: 0,
  acked: 0,
  nacked: 0,
  received: 0,
  duplicates: 0,
  reordered: 0,
  tampered: 0,
  settled: 0,
  retried: 0,
  sessions: 0,
})

/** A peer's presence as the broker last reported it. */
export interface PresenceEntry {
  readonly peer: PeerKey
  readonly isOnline: boolean
  readonly availability: Availability
  readonly summary: string
}
