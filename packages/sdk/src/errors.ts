/**
 * Defines the errors that an application receives when something is refused or ends. There is one class; it has a code,
 * and whether a retry may help.
 */
import { type NackCode, type RefusalCode, refusal } from '@sealpost/protocol'

export type HttpRefusalCode =
  | 'body_malformed'
  | 'query_malformed'
  | 'chunk_malformed'
  | 'token_invalid'
  | 'binding_refused'
  | 'not_heir'
  | 'device_unknown'
  | 'recovery_cancelled'
  | 'recovery_pending'
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
  | 'log_incomplete'
  | 'log_size_unknown'
  | 'log_broken'
  | 'quota_exceeded'
  | 'mesh_quota_exceeded'
  | 'prekey_forged'
  | 'prekey_expired'
  | 'prekey_rolled_back'
  | 'too_many_prekeys'

/**
 * Codes of the SDK itself, which no broker sends:
 * - `maybe_sent`: the message may be stored, and will not be resent. If the same content is sent again, it may be
 *   duplicated.
 * - `closed`: the peer was closed before this was attempted.
 * - `outbox_full`: too many messages already wait; this one was not accepted.
 * - `body_too_large`: over `BODY_BYTES_MAX`.
 * - `wrong_broker`: the server does not have the pinned key.
 * - `key_refused`: the directory's key binding for this peer is forged, expired, older than a known one, or unusable.
 * - `own_key_missing`: the directory has a box key of this peer that the peer itself does not have, and mail sealed
 *   to that key arrived. The peer ended before it rejected anything: start it with the key file from after the
 *   rotation.
 * - `aborted`: the caller's signal fired before the first session.
 * - `certificate_untrusted`: the platform does not trust the broker's TLS certificate: unknown authority, another
 *   name, or expired. A peer that had a session keeps dialling.
 * - `websocket_missing`: the runtime has no WebSocket, and none was passed as `webSocket`.
 * - `connection_lost`: `join` received no reply. Retry with the same invite and the same identity.
 * - `invite_malformed`: it is not an invite, or its signature is invalid.
 * - `name_malformed`: a name is 1 to 64 characters of printable ASCII without `/ , * ( )` and no leading hyphen.
 *   Spaces at its ends are trimmed, and several become one.
 * - `summary_malformed`: a summary is at most 120 characters of printable ASCII.
 * - `timeout`: a request was not answered in time. The request may still arrive; a late reply is an ordinary message.
 * - `no_auto_reply`: the sender of the message declines automatic replies.
 * - `key_reused`: the idempotency key belongs to a different request.
 * - `message_ended`: the message was already settled, returned or rejected.
 * - `not_admin`: only a member with the role `admin` may do this.
 * - `too_many_named`: a peer can't allow or block more peers; nothing was changed.
 * - `stale_epoch`: the broker already has a box key of this peer with this epoch or a higher one.
 * - `not_in_group`: only members may send to the group.
 * - `not_owner`: only the owner of the group or pool may change it.
 * - `group_malformed`: a group has a name like a member's, and 1 to 256 members.
 * - `too_many_groups`: the mesh has the maximum number of groups.
 * - `label_malformed`: the label of a device is a name of at most 32 characters.
 * - `unknown_device`: the key is not that of a device of this user.
 * - `key_taken`: the new identity key belongs or belonged to a member.
 * - `unknown_pool`: the pool does not exist in this mesh.
 * - `not_in_pool`: only members may join the pool.
 * - `pool_malformed`: a pool has a name like a member's, and 1 to 64 members.
 * - `too_many_pools`: the mesh has the maximum number of pools, or this peer has joined the maximum.
 * - `too_many_own_groups`: this peer owns the maximum number of groups.
 * - `too_many_own_pools`: this peer owns the maximum number of pools; a deleted one still counts for one day.
 * - `session_in_use`: another process of the profile uses the session of this name.
 * - `session_foreign`: the folder of the session belongs to another member.
 * - `certificate_expired`: the certificate of the session had expired. It was renewed, or the message says why not.
 * - `folder_path_too_long`: the path of the profile's folder is too long for a socket in it.
 *
 * Codes of forward secrecy:
 * - `store_missing`: forward secrecy needs a store.
 * - `ratchet_required`: this conversation uses ratchets, the directory has no prekeys to begin another one, and the
 *   message is not sealed without.
 * - `prekey_outdated`: the peer has changed its box key, but has not published prekeys for it.
 * - `prekey_forged`, `prekey_rolled_back`, `prekey_expired`: the broker's prekeys of this peer can't be used.
 *
 * Codes of membership:
 * - `member_unproven`: in a mesh with a root, no certificate proves that this key belongs to a member.
 * - `root_missing`: the mesh has no root. An admin adopts one.
 * - `key_recovered`: a device of the user has certified a new key. Compare fingerprints, and accept the key.
 * - `recovery_unknown`: no recovery of this key is known, or none took effect.
 * - `root_differs`: the mesh has another root than the one that this peer has pinned, or is about to adopt.
 * - `export_malformed`: the file is not an export of a mesh's log.
 *
 * Codes of sent messages:
 * - `message_unknown`: the log has no sent message with this envelope id.
 * - `too_many_confirmations`: at most 64 recipients of one message can be asked to confirm it.
 * - `message_rejected`, `message_expired`, `message_struck_out`: the message ended before it reached the awaited state.
 *
 * Codes of shared state:
 * - `state_rolled_back`, `entry_forged`, `space_forged`, `grant_forged`, `history_gap`: misconduct of a broker
 *   (`state/entry-verifier.ts`).
 * - `state_conflict`: the key is not at the expected revision.
 * - `state_key_malformed`: a key of the state has 1 to 512 bytes as UTF-8.
 * - `reaction_malformed`: a reaction has 1 to 64 bytes as UTF-8, and a member can have at most 16 reactions to a
 *   target.
 * - `value_too_large`: a value has at most 64 KiB, and the note of a recorded message must fit its record.
 * - `state_full`: the space has reached its size limit.
 * - `key_missing`: this member does not have, or does not have yet, the key under which the data is sealed.
 * - `space_unknown`: the space does not exist, or this peer does not belong to it.
 * - `space_malformed`: the limits of a space must be above 0, or all 0 if it has no history.
 * - `before_horizon`, `moment_in_future`: the requested time is before the start of the history, or in the future.
 * - `answer_malformed`: the broker's reply is malformed.
 *
 * Codes of stores:
 * - `kept_for_later`: this process ends; the message stays in its store, and the next process sends it.
 * - `source_changed`: the file has changed since its upload began.
 * - `attachment_changed`, `attachment_truncated`: the broker's data is not the file that was sent, or it is
 *   incomplete.
 * - `part_differs`: the saved part is not the beginning of the file.
 * - `part_in_use`: another process is saving the file into the folder, but makes no progress.
 * - `store_in_use`: another process has the store open.
 * - `store_foreign`: the store belongs to another peer, mesh or version.
 * - `store_corrupt`: the store's data can't be read back.
 * - `store_failed`: the disk or the platform refused a read or write. It is unknown whether unconfirmed changes are
 *   stored.
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
  | 'key_reused'
  | 'message_ended'
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
  | 'session_in_use'
  | 'session_foreign'
  | 'certificate_expired'
  | 'folder_path_too_long'
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
  | 'part_in_use'
  | 'store_in_use'
  | 'store_foreign'
  | 'store_corrupt'
  | 'store_failed'
  | 'websocket_missing'
  | 'store_missing'
  | 'ratchet_required'
  | 'prekey_outdated'
  | 'member_unproven'
  | 'root_missing'
  | 'root_differs'
  | 'export_malformed'
  | 'key_recovered'
  | 'recovery_unknown'
  | 'message_unknown'
  | 'too_many_confirmations'
  | 'message_rejected'
  | 'message_expired'
  | 'message_struck_out'

export type SealpostCode = RefusalCode | SdkCode | HttpRefusalCode

export class SealpostError extends Error {
  override readonly name = 'SealpostError'
  readonly code: SealpostCode
  /** Whether the same call may succeed later. */
  readonly isRetryable: boolean

  constructor(code: SealpostCode, message: string, options: { isRetryable?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.isRetryable = options.isRetryable ?? false
  }
}

/** Returns the error for a broker's refusal. */
export function refusedBy(code: RefusalCode): SealpostError {
  const { meaning, isRetryable } = refusal(code)
  return new SealpostError(code, `The broker refused the request (${code}): ${meaning}.`, { isRetryable })
}

/** Refusals by a broker that has looked for the envelope. Before that, it may refuse one that it has already stored. */
const AFTER_THE_LOOK: readonly NackCode[] = ['id_reused', 'delay_too_long']

export function finalRefusal(code: NackCode, { mayBeStored = false }: { mayBeStored?: boolean }): SealpostError {
  const error = refusedBy(code)
  return mayBeStored && !AFTER_THE_LOOK.includes(code) ? maybeSent(error) : error
}

/** Returns a `maybe_sent` error. `cause`: the broker's current refusal. */
export function maybeSent(cause?: SealpostError): SealpostError {
  return new SealpostError('maybe_sent', 'The broker may or may not have stored this message.', { cause })
}

export const asStoreError = (cause: unknown): SealpostError =>
  asSealpostError(cause, 'store_failed', 'The store no longer accepts writes.')

/** Returns the error of a message that can't be sealed. */
export const asSealError = (cause: unknown): SealpostError =>
  asSealpostError(cause, 'key_refused', 'No message can be sealed to the box key of this recipient.')

function asSealpostError(cause: unknown, code: SealpostCode, message: string): SealpostError {
  return cause instanceof SealpostError ? cause : new SealpostError(code, message, { cause })
}
