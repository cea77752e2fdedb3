/** What a peer tells its application besides messages. Nothing here needs an answer. */
import type { FrameOf } from '@sealpost/protocol'
import type { EnvelopeId, GroupId, Millis, PeerKey, PoolId } from '@sealpost/std'
import type { KnownAddresses, ShardRefusal } from './connection/addresses.ts'
import type { SealpostCode, SealpostError } from './errors.ts'
import type { DeliveryReceipt } from './inbox/inbox.ts'
import type { Receipt } from './outbox/lane.ts'

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
