/**
 * What the pure part of the SDK needs from outside: cryptography, and someone who carries out its commands. The client
 * implements both with libsodium and a WebSocket, the simulator with a cheap fake and a network of its own.
 */
import type {
  Correspondent,
  checkShardCertificate,
  DeviceInviteTerms,
  DeviceRemoval,
  DeviceStatement,
  EnvelopeDraft,
  GroupFields,
  GroupStatement,
  Identity,
  IdentityRotation,
  KeyBindingVerdict,
  PoolFields,
  PoolStatement,
  SealedBody,
  SealedEnvelope,
  StreamId,
  Transcript,
} from '@sealpost/identity'
import type { ClientFrame, FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { EnvelopeId, GroupId, MeshId, Millis, PeerKey, PoolId } from '@sealpost/std'
import type { KnownAddresses, ShardRefusal } from './connection/addresses.ts'
import type { SealpostCode, SealpostError } from './errors.ts'
import type { DeliveryReceipt } from './inbox/inbox.ts'
import type { Message, OpenVerdict } from './inbox/message.ts'
import type { Receipt } from './outbox/lane.ts'

/** One identity in one mesh. Synchronous; keys of others are kept by the caller. */
export interface CryptoPort {
  signAuth(transcript: Transcript): Uint8Array
  /** Whether WELCOME was signed with `transcript.brokerKey`, the pinned key, over this very AUTH. */
  isBrokerProof(transcript: Transcript, clientSignature: Uint8Array, proof: Uint8Array): boolean
  checkCertificate: typeof checkShardCertificate
  checkBinding(binding: KeyBindingEntry, expected: { peer: PeerKey; nowMs: Millis }): KeyBindingVerdict
  /** Throws when the recipient's box key is unusable. */
  seal(draft: EnvelopeDraft): SealedEnvelope
  /** Never throws on what the network brought. `does_not_open` as the reason asks for a newer key of the sender. */
  open(from: Correspondent, arrival: { envelopeId: EnvelopeId; envelope: Uint8Array }): OpenVerdict
  /** Whether this box key of one's own is none of those held, and none of them is newer. */
  lacksBoxKey(key: Pick<Correspondent, 'boxKey' | 'boxEpoch'>): boolean
  /** 32 random bytes. */
  newNonce(): Uint8Array
  newEnvelopeId(): EnvelopeId
  newStreamId(): StreamId
  readonly groups: GroupCrypto
  readonly users: UserCrypto
  readonly pools: PoolCrypto
}

/** The commands. Each dial has a number of its own, and every answer names it, so that a late one is told apart. */
export interface PeerEffects {
  /** Answer: `opened`, then `received`; or `closed`. */
  dial(dialNo: number, url: string): void
  /** End this dial's socket. Nothing of it is listened to any more; `closed` need not be called. */
  closeSocket(dialNo: number): void
  transmit(frame: ClientFrame): void
  /** A message for the application, handed out once in this process's life. */
  deliver(message: Message): void
  emit(event: PeerEvent): void
  /** Call `flush` soon, but after the code that runs now, so that what it still asks for goes out together. */
  flushSoon(): void
}

/** What is needed of a WebSocket: the standard's own surface, so that browsers, Node, Bun and fakes all fit. */
export interface WebSocketLike {
  binaryType: string
  readonly protocol: string
  /** Copies the bytes before it returns, as the standard has it. */
  send(wire: Uint8Array | string): void
  close(code?: number, reason?: string): void
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number }) => void) | null
  onerror: ((event: never) => void) | null
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

export function platformWebSocket(): WebSocketConstructor {
  return WebSocket as unknown as WebSocketConstructor
}

export interface ConnectionTarget {
  /** Where the cluster is dialled, at least one: in turns. */
  readonly urls: readonly string[]
  /** What former sessions have taught. */
  readonly known?: KnownAddresses | undefined
  /** The pinned key. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

/** Of one identity in one mesh. */
export interface GroupCrypto {
  /** A group of one's own, at its first epoch. */
  create(draft: Pick<GroupFields, 'name' | 'members'>): GroupStatement
  /** The next epoch of a group of one's own. */
  change(group: GroupStatement, change: Partial<Pick<GroupFields, 'name' | 'members'>>): GroupStatement
  /** The statement that ends a group of one's own. */
  end(group: GroupStatement): GroupStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): GroupStatement | null
  sealBody(body: Uint8Array): SealedBody
  /** Null unless these are the very bytes that the ticket was made for. */
  openBody(bytes: Uint8Array, ticket: Uint8Array): Uint8Array | null
}

/** Of one identity in one mesh. */
export interface PoolCrypto {
  /** A pool of one's own, at its first epoch. */
  create(draft: Pick<PoolFields, 'name' | 'members'>): PoolStatement
  /** The next epoch of a pool of one's own. */
  change(pool: PoolStatement, change: Partial<Pick<PoolFields, 'name' | 'members'>>): PoolStatement
  /** The statement that ends a pool of one's own. */
  end(pool: PoolStatement): PoolStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): PoolStatement | null
}

/** Of one identity in one mesh. Each reader answers null for what its signers did not sign, or of another mesh. */
export interface UserCrypto {
  readDevice(bytes: Uint8Array): DeviceStatement | null
  readRemoval(bytes: Uint8Array): DeviceRemoval | null
  readIdentityRotation(bytes: Uint8Array): IdentityRotation | null
}

/** What only the holder of the identity key can say. */
export interface UserKeys {
  /** One line for a new device of this user. */
  inviteDevice(terms: Omit<DeviceInviteTerms, 'meshId'>): string
  removeDevice(device: PeerKey): Uint8Array
  rotateIdentity(next: Identity): Uint8Array
}

/** A part of the engine with frames of its own. */
export interface EnginePart {
  /** A session began. */
  connected?(welcome: FrameOf<'welcome'>, nowMs: Millis): void
  /** The session ended. Nothing is due until the next one, unless it is due offline. */
  disconnected(): void
  /** Returns the frames to send now; called in a session only. */
  takeFrames(nowMs: Millis): readonly ClientFrame[]
  /** When the part has frames without a further call, or has to be ticked; Infinity for never. */
  readonly wakeAtMs: Millis
  /** Refuses everything that waits for a reply. */
  close?(error: SealpostError): void
}

/** Shared, so that a part with nothing to send makes no object. */
export const NO_FRAMES: readonly never[] = []

export type PeerEvent =
  /** `incarnation` names the database; `restored` says when it is another one than before. */
  | { type: 'connected'; epoch: number; incarnation: string; durability: 'fsync' | 'degraded' }
  /**
   * Follows `connected`: the broker's database was restored from a backup, or a standby took over that misses something. Of what was
   * acknowledged, `resent` messages of the last 15 minutes are said again; what is older, or of a former life, may be gone.
   * Mail that was settled may come again, and is hidden as any duplicate is.
   */
  | { type: 'restored'; incarnation: string; resent: number }
  /** One of these was refused now, as its recipient may be unknown to the restored database. */
  | { type: 'resend_failed'; to: PeerKey; envelopeId: EnvelopeId; error: SealpostError }
  /**
   * Follows `connected`, if the broker's database answers: mail to this peer that it will not get, because it `expired`
   * or was given up after its `strikes`, and what it `rejected`. With `isAll` false the rest follows the next `connected`.
   */
  | { type: 'recovered'; isRecovered: boolean; lost: readonly LostMessage[]; isAll: boolean }
  /** `reason`: with `certificate_untrusted` what the platform says is wrong with the certificate. */
  | { type: 'disconnected'; code: SealpostCode | 'connection_lost'; retryInMs: Millis; reason?: string }
  /** The mesh is at home at another broker of the cluster, which is dialled now. */
  | { type: 'moved'; url: string }
  /**
   * Where the mesh is served is known better now: `cell` are the public addresses of its cell, and `home` is the broker that
   * served this peer, if it is none of them. A store keeps both. Without one, keep `cell` yourself, and give it to `connect`
   * in front of your own addresses: after a move the old cell may be gone.
   */
  | ({ type: 'addresses' } & KnownAddresses)
  /** The server there did not prove its key. It is skipped. */
  | { type: 'shard_refused'; url: string; reason: ShardRefusal }
  /** That one can't be reached: another broker is asked to serve this peer. */
  | { type: 'home_unreachable'; url: string }
  /** For good: `null` after `close()`. */
  | { type: 'closed'; error: SealpostError | null }
  /**
   * Messages of this sender are missing between the last one and this one. The broker dropped or held them back, or
   * they expired, or were dead-lettered or put off by `retry` in a former life of this process. It is told when this one
   * has waited two seconds for them, or 64 of its stream wait; who comes later is handed out then.
   */
  | { type: 'gap'; sender: PeerKey; envelopeId: EnvelopeId; missing: number }
  /**
   * The message follows another one of its sender than the one that was handed out before it: someone else holds one of
   * the two box keys, or the sender was restored from a copy. It is handed out.
   */
  | { type: 'forked'; sender: PeerKey; envelopeId: EnvelopeId }
  /**
   * An envelope does not open, or says inside another thing than outside. It is not shown. Mail was rejected with the same
   * reason: the broker keeps it as a dead letter, from where an operator can put it back, and its sender gets the receipt
   * `rejected` if it asked for one. A member of a pool gives it back for other members first, four times.
   */
  | { type: 'tamper'; sender: PeerKey; envelopeId: EnvelopeId; reason: string }
  /**
   * A message was sealed longer ago than `maxAgeSeconds`: a broker replays what a former process of this peer has settled, a
   * clock is wrong, or it was kept for very long. It was rejected as `too_old`, and is not shown.
   */
  | { type: 'too_old'; sender: PeerKey; envelopeId: EnvelopeId; sentAtMs: Millis }
  /** The peer's box key is another one than before, signed by the same peer. */
  | { type: 'key_changed'; peer: PeerKey; boxEpoch: number }
  /** The directory gave no believable key for this peer: sends to it are refused, mail from it is put off. */
  | { type: 'key_refused'; peer: PeerKey; reason: KeyRefusal }
  /** A handler threw; the message was given back for another attempt. */
  | { type: 'handler_failed'; sender: PeerKey; envelopeId: EnvelopeId; cause: unknown }
  /** The broker stored a message that a former life of this peer had left in its store. */
  | { type: 'sent'; to: PeerKey; outboxNo: number; receipt: Receipt }
  /** The same, refused for good or too old to be said again (`maybe_sent`). It is kept no longer. */
  | { type: 'send_failed'; to: PeerKey; outboxNo: number; error: SealpostError }
  /** A group is known for the first time, or has another name or other members now; its owner signed it. */
  | { type: 'group_changed'; group: GroupId; name: string; epoch: number }
  /** Its owner ended a group that was known. What is on its way still comes. */
  | { type: 'group_deleted'; group: GroupId; name: string }
  /** The broker handed out a statement that no owner signed (`null`: of which group is not known), or an old one again. */
  | { type: 'group_tamper'; group: GroupId | null; reason: 'statement_forged' | 'statement_rolled_back' }
  /** A device was vouched for by its user, or removed; the user signed it. */
  | { type: 'device_changed'; user: PeerKey; device: PeerKey; label: string; isVouched: boolean }
  /** A peer goes by another identity key now; both keys signed it. What is sent to the former goes to the successor. */
  | { type: 'identity_changed'; former: PeerKey; successor: PeerKey }
  /** The broker handed out what was not signed as it must be, or contradicts what was signed before. It is not believed. */
  | { type: 'user_tamper'; peer: PeerKey | null; reason: UserTamper }
  /** The same of pools. */
  | { type: 'pool_tamper'; pool: PoolId | null; reason: 'statement_forged' | 'statement_rolled_back' }
  /** This peer works for the pool no more: the owner has taken it out, or the pool is gone. */
  | { type: 'pool_left'; pool: PoolId; reason: 'not_in_pool' | 'unknown_pool' | 'too_many' }
  /** What became of a message that was sent with `receipts`. */
  | ({ type: 'receipt' } & DeliveryReceipt)
  /** Someone came, left or changed, for those who watch. After `disconnected` everybody counts as offline. */
  | ({ type: 'presence' } & PresenceEntry)
  | ({ type: 'ephemeral' } & EphemeralMessage)
  /** An ephemeral message reached nobody: `no_responder`, `connection_lost` without a session, or the code of a refusal. */
  | { type: 'ephemeral_lost'; envelopeId: EnvelopeId; code: SealpostCode }

/** The body is the caller's own. */
export interface EphemeralMessage {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly body: Uint8Array
  /** By the sender's clock, whole milliseconds. */
  readonly sentAtMs: Millis
}

export type UserTamper =
  | 'statement_forged'
  | 'device_removed'
  | 'invite_used_twice'
  | 'device_of_another'
  | 'succession_forked'

export type LostMessage = Readonly<Omit<FrameOf<'recovered'>['lost'][number], 'id'>>

export type KeyRefusal =
  | 'unknown_peer'
  | 'binding_forged'
  | 'binding_expired'
  | 'binding_foreign'
  | 'binding_rolled_back'

/** Counted since the start of this peer. */
export interface PeerCounters {
  sent: number
  resent: number
  acked: number
  nacked: number
  received: number
  duplicates: number
  /** Messages that came before an earlier one of their stream. */
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

/** The broker's word, and as old as the last change it told. */
export type PresenceEntry = Readonly<FrameOf<'presence'>['peers'][number]>
