/**
 * Defines the refusal codes in one table. A code with a `close` ends the connection; the others refuse one envelope in
 * a `nack`. The index in the table is the code's number on the wire: append, never reorder. Decoders of released
 * clients refuse an unknown code, so a new code needs a new protocol version.
 */
interface RefusalRow {
  readonly code: string
  /** Whether the same request may succeed later. It may have taken effect even so. */
  readonly isRetryable: boolean
  readonly close?: number
  readonly meaning: string
}

const ROWS = [
  { code: 'busy', isRetryable: true, meaning: 'the commit queue is full; nothing was stored' },
  { code: 'unavailable', isRetryable: true, meaning: 'the database did not reply; the envelope may be stored' },
  {
    code: 'rate_limited',
    isRetryable: true,
    meaning: 'this peer or its user exceeds the rate limit',
  },
  {
    code: 'out_of_sequence',
    isRetryable: true,
    meaning: 'an earlier envelope of this lane was refused: resend from there',
  },
  { code: 'unknown_recipient', isRetryable: false, meaning: 'no such peer in this mesh' },
  {
    code: 'id_reused',
    isRetryable: false,
    meaning: 'this envelope id was used for a different envelope',
  },
  { code: 'ttl_too_long', isRetryable: false, meaning: 'the time to live exceeds the limit in `welcome`' },
  { code: 'envelope_too_large', isRetryable: false, meaning: 'the envelope exceeds the limit in `welcome`' },
  { code: 'frame_malformed', isRetryable: false, close: 4400, meaning: 'not a frame of this protocol' },
  { code: 'frame_unexpected', isRetryable: false, close: 4400, meaning: 'a valid frame in the wrong state' },
  {
    code: 'wrong_form',
    isRetryable: false,
    close: 1003,
    meaning: 'text under the binary subprotocol, or the reverse',
  },
  { code: 'auth_failed', isRetryable: false, close: 4401, meaning: 'unknown mesh, unknown key or bad signature' },
  { code: 'revoked', isRetryable: false, close: 4403, meaning: 'this key was revoked' },
  { code: 'version_unsupported', isRetryable: false, close: 4406, meaning: 'no common protocol version' },
  { code: 'auth_timeout', isRetryable: true, close: 4408, meaning: 'the peer sent no `auth` within `authWithinMs`' },
  { code: 'superseded', isRetryable: false, close: 4409, meaning: 'the same key opened a newer connection' },
  {
    code: 'rate_exceeded',
    isRetryable: true,
    close: 4429,
    meaning: 'the peer kept sending after many `rate_limited` replies',
  },
  {
    code: 'heartbeat_missed',
    isRetryable: true,
    close: 4440,
    meaning: 'the peer sent no message and no pong in time',
  },
  {
    code: 'slow_consumer',
    isRetryable: true,
    close: 4441,
    meaning: 'the recipient does not read its socket; its deliveries stay queued',
  },
  {
    code: 'internal',
    isRetryable: true,
    close: 1011,
    meaning: 'an internal error of this connection',
  },
  {
    code: 'restarting',
    isRetryable: true,
    close: 1012,
    meaning: 'the broker is shutting down; connect again after `retryAfterMs`',
  },
  {
    code: 'try_later',
    isRetryable: true,
    close: 1013,
    meaning: 'the broker or its database accepts no new connections now',
  },
  {
    code: 'invite_refused',
    isRetryable: false,
    close: 4410,
    meaning: 'the invite or the signature is not valid here',
  },
  { code: 'already_member', isRetryable: false, close: 4411, meaning: 'this key is already a member of the mesh' },
  { code: 'name_taken', isRetryable: false, close: 4412, meaning: 'another member of the mesh has this name' },
  {
    code: 'no_responder',
    isRetryable: false,
    meaning: 'the recipient is not online',
  },
  {
    code: 'too_many_hops',
    isRetryable: false,
    meaning: '`hops` exceeds the limit',
  },
  { code: 'thread_exhausted', isRetryable: false, meaning: 'too many recent envelopes in this thread' },
  {
    code: 'delay_too_long',
    isRetryable: false,
    meaning: "`notBeforeMs` is after the end of the envelope's time to live",
  },
  {
    code: 'stale_roster',
    isRetryable: false,
    meaning: 'the group has changed: seal the message again',
  },
  { code: 'not_allowed', isRetryable: false, meaning: 'the recipient accepts nothing from this peer' },
  {
    code: 'too_many_devices',
    isRetryable: false,
    close: 4413,
    meaning: 'this user has reached the device limit',
  },
  {
    code: 'mailbox_full',
    isRetryable: true,
    meaning: "the recipient's mailbox, this sender's share of it, or the mesh is full; nothing was stored",
  },
  { code: 'unknown_group', isRetryable: false, meaning: 'no such group in this mesh, or the group has ended' },
  {
    code: 'moved',
    isRetryable: true,
    close: 4421,
    meaning: 'another shard serves this mesh: connect again',
  },
  { code: 'not_kept', isRetryable: false, meaning: 'the space does not store messages from this peer' },
  { code: 'history_full', isRetryable: true, meaning: 'the history of the mesh is full; nothing was stored' },
  {
    code: 'frame_too_large',
    isRetryable: false,
    close: 1009,
    meaning: 'the frame exceeds its size limit',
  },
  {
    code: 'name_malformed',
    isRetryable: false,
    close: 4414,
    meaning: 'the name breaks the rules for names',
  },
  {
    code: 'too_many_members',
    isRetryable: false,
    close: 4415,
    meaning: 'the mesh has reached its member limit',
  },
] as const satisfies readonly RefusalRow[]

type Row = (typeof ROWS)[number]
export type NackCode = Exclude<Row, { close: number }>['code']
export type CloseCode = Extract<Row, { close: number }>['code']
export type RefusalCode = NackCode | CloseCode

export const refusals: readonly (RefusalRow & { readonly code: RefusalCode })[] = ROWS
const byCode = new Map(refusals.map((row) => [row.code, row]))

export const refusal = (code: RefusalCode) => byCode.get(code)!
export const refusalCodes: readonly RefusalCode[] = refusals.map((row) => row.code)

export const closeNumber = (code: CloseCode): number => refusal(code).close!
