/**
 * The errors that an application sees when something was refused or ended: one class, one code, and whether a retry may
 * help.
 */
import { type NackCode, type RefusalCode, refusal } from '@sealpost/protocol'

export type HttpRefusalCode =
  | 'body_malformed'
  | 'query_malformed'
  | 'chunk_malformed'
  | 'token_invalid'
  | 'challenge_invalid'
  | 'not_found'
  | 'attachment_unknown'
  | 'recipient_unknown'
  | 'attachment_taken'
  | 'attachment_differs'
  | 'chunk_differs'
  | 'chunk_missing'
  | 'attachment_too_large'
  | 'too_many_requests'
  | 'too_many_tokens'
  | 'quota_exceeded'
  | 'mesh_quota_exceeded'

/**
 * Codes that no broker says:
 * - `maybe_sent`: it may be stored or not, and nobody will ask again. Sending the same text once more may double it.
 * - `closed`: the peer was closed before this was attempted.
 * - `outbox_full`: too much waits already; nothing of this message was taken.
 * - `body_too_large`: over `BODY_BYTES_MAX`.
 * - `wrong_broker`: the server does not hold the pinned key.
 * - `key_refused`: the directory's key binding for this peer is forged, expired, older than one seen, or unusable.
 * - `own_key_missing`: the directory names a box key of this peer that it was not given, and mail sealed to it came. The
 *   peer ended before it rejected anything: start it with the key file from after the rotation.
 * - `aborted`: the caller's signal fired before the first session.
 * - `certificate_untrusted`: the platform does not trust the TLS certificate of the broker: its authority is unknown, it is for
 *   another name, or it has expired. A peer that had a session keeps dialling.
 * - `connection_lost`: of `join`: no answer came. The same invite may be tried again with the same identity.
 * - `invite_malformed`: it is no invite, or not as it was signed.
 * - `name_malformed`: a name is 1 to 64 characters of printable ASCII without `/ , * ( )` and no hyphen at its beginning. Spaces
 *   at its ends are taken off, and several become one.
 * - `summary_malformed`: a summary is at most 120 characters of printable ASCII.
 * - `timeout`: of a request: no answer came in time. The request may still arrive, and its answer come as a message.
 * - `no_auto_reply`: the sender of the message wants no automatic answer.
 * - `not_admin`: only a member with the role `admin` may do this.
 * - `too_many_named`: a peer can allow or block no more others; nothing of this change was done.
 * - `stale_epoch`: the broker knows a box key of this peer with this epoch already, or with a higher one.
 * - `not_in_group`: only a member of the group may write to it.
 * - `not_owner`: only the owner of the group or pool may change it.
 * - `group_malformed`: a group has a name as a member has, and 1 to 256 members.
 * - `too_many_groups`: the mesh has as many groups as it may have.
 * - `label_malformed`: the label of a device is a name of at most 32 characters.
 * - `unknown_device`: it is no device of this user.
 * - `key_taken`: the new identity key is, or was, that of a member.
 * - `unknown_pool`: there is no such pool in this mesh.
 * - `not_in_pool`: only a member of the pool may take its work.
 * - `pool_malformed`: a pool has a name as a member has, and 1 to 64 members.
 * - `too_many_pools`: the mesh has as many pools as it may have, or this peer works for as many as it may.
 * - `too_many_own_groups`: this peer has as many groups as one may have.
 * - `too_many_own_pools`: this peer has as many pools as one may have; one that it deleted counts for a day more.
 * Of shared state:
 * - `state_rolled_back`, `entry_forged`, `space_forged`, `grant_forged`, `history_gap`: what a broker may not do
 *   (`state/state-errors.ts`).
 * - `state_conflict`: the key does not stand at the revision that was asked for.
 * - `state_key_malformed`: a key of the state has 1 to 512 bytes as UTF-8.
 * - `reaction_malformed`: a reaction has 1 to 64 bytes as UTF-8, and a member gives a target at most 16.
 * - `value_too_large`: a value has at most 64 KiB, and what goes with a kept message no more than a record holds.
 * - `state_full`: the space holds as much as it may.
 * - `key_missing`: it is sealed under a key that this member was not given, or not yet.
 * - `space_unknown`: there is no such space, or this peer does not belong to it.
 * - `space_malformed`: the terms of a space are bounds above 0, or with no history all 0.
 * - `before_horizon`, `moment_in_future`: the history does not reach back so far, or the moment has not come.
 * - `answer_malformed`: the broker answered what no version of it says.
 *
 * Of stores:
 * - `kept_for_later`: this life of the peer is over; the message stays in its store, and the next life sends it.
 * - `source_changed`: of an upload: the file is not what it was when its upload began.
 * - `attachment_changed`, `attachment_truncated`: what the broker gives is not the file that was sent, or not all of it.
 * - `part_differs`: what is there of a file from a former life is not its beginning.
 * - `store_in_use`: another process has the store open.
 * - `store_foreign`: the store is of another peer, mesh or version.
 * - `store_corrupt`: what the store once kept can't be read back.
 * - `store_failed`: the disk or the platform refused to keep or to read. What was not kept by then may be or not.
 */
export type SdkCode =
  | 'maybe_sent'
  | 'closed'
  | 'outbox_full'
  | 'body_too_large'
  | 'wrong_broker'
  | 'key_refused'
  | 'own_key_missing'
  | 'aborted'
  | 'certificate_untrusted'
  | 'connection_lost'
  | 'invite_malformed'
  | 'name_malformed'
  | 'summary_malformed'
  | 'timeout'
  | 'no_auto_reply'
  | 'not_admin'
  | 'too_many_named'
  | 'stale_epoch'
  | 'not_in_group'
  | 'not_owner'
  | 'group_malformed'
  | 'too_many_groups'
  | 'label_malformed'
  | 'unknown_device'
  | 'key_taken'
  | 'unknown_pool'
  | 'not_in_pool'
  | 'pool_malformed'
  | 'too_many_pools'
  | 'too_many_own_groups'
  | 'too_many_own_pools'
  | 'state_rolled_back'
  | 'entry_forged'
  | 'space_forged'
  | 'grant_forged'
  | 'history_gap'
  | 'state_conflict'
  | 'state_key_malformed'
  | 'reaction_malformed'
  | 'value_too_large'
  | 'state_full'
  | 'key_missing'
  | 'space_unknown'
  | 'space_malformed'
  | 'before_horizon'
  | 'moment_in_future'
  | 'answer_malformed'
  | 'kept_for_later'
  | 'source_changed'
  | 'attachment_changed'
  | 'attachment_truncated'
  | 'part_differs'
  | 'store_in_use'
  | 'store_foreign'
  | 'store_corrupt'
  | 'store_failed'

export type SealpostCode = RefusalCode | SdkCode | HttpRefusalCode

export class SealpostError extends Error {
  override readonly name = 'SealpostError'
  readonly code: SealpostCode
  /** The same call may succeed later. */
  readonly isRetryable: boolean

  constructor(code: SealpostCode, message: string, options: { isRetryable?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.isRetryable = options.isRetryable ?? false
  }
}

/** The error for a broker's refusal. */
export function refusedBy(code: RefusalCode): SealpostError {
  const { meaning, isRetryable } = refusal(code)
  return new SealpostError(code, `The broker refused (${code}): ${meaning}.`, { isRetryable })
}

/** Codes sent after the broker checked whether it has the envelope; other codes may refuse an envelope that it has. */
const AFTER_THE_LOOK: readonly NackCode[] = ['id_reused', 'delay_too_long']

/** The error for a permanent refusal. */
export function finalRefusal(code: NackCode, { mayBeStored = false }: { mayBeStored?: boolean }): SealpostError {
  const error = refusedBy(code)
  return mayBeStored && !AFTER_THE_LOOK.includes(code) ? maybeSent(error) : error
}

/** `cause`: the broker's current refusal. */
export function maybeSent(cause?: SealpostError): SealpostError {
  return new SealpostError('maybe_sent', 'The broker may have stored this message or not.', { cause })
}

export function asStoreError(cause: unknown): SealpostError {
  if (cause instanceof SealpostError) return cause
  return new SealpostError('store_failed', 'The store can keep nothing any more.', { cause })
}
