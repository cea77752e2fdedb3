/**
 * Every code with which a broker refuses something, in one table. A code with a `close` ends the connection; the others
 * answer one envelope in a `nack`. The place in the table is the code's number on the wire: append, never reorder. A code
 * added here is one that the decoders of released clients refuse, so it needs a new protocol version.
 */
interface RefusalRow {
  readonly code: string
  /** The same request may succeed later; whether this one took effect may be unknown. */
  readonly isRetryable: boolean
  readonly close?: number
  readonly meaning: string
}

const ROWS = [
  { code: 'busy', isRetryable: true, meaning: 'too much waits to be stored; nothing of this envelope was' },
  { code: 'unavailable', isRetryable: true, meaning: 'the database did not answer; the envelope may be stored' },
  {
    code: 'rate_limited',
    isRetryable: true,
    meaning: 'this peer, or its person on all devices together, sends faster than its rate',
  },
  {
    code: 'out_of_sequence',
    isRetryable: true,
    meaning: 'an earlier envelope to this recipient at this priority was refused: resend from there',
  },
  { code: 'unknown_recipient', isRetryable: false, meaning: 'no such peer in this mesh' },
  {
    code: 'id_reused',
    isRetryable: false,
    meaning: 'this envelope id was used for other bytes, another recipient or priority',
  },
  { code: 'ttl_too_long', isRetryable: false, meaning: 'the time to live is over the limit in `welcome`' },
  { code: 'envelope_too_large', isRetryable: false, meaning: 'the envelope is over the limit in `welcome`' },
  { code: 'frame_malformed', isRetryable: false, close: 4400, meaning: 'not a frame of this protocol' },
  { code: 'frame_unexpected', isRetryable: false, close: 4400, meaning: 'a known frame in the wrong state' },
  {
    code: 'wrong_form',
    isRetryable: false,
    close: 1003,
    meaning: 'text where the subprotocol is binary, or the reverse',
  },
  { code: 'auth_failed', isRetryable: false, close: 4401, meaning: 'unknown mesh, unknown key or bad signature' },
  { code: 'revoked', isRetryable: false, close: 4403, meaning: 'this key was revoked' },
  { code: 'version_unsupported', isRetryable: false, close: 4406, meaning: 'no common protocol version' },
  { code: 'auth_timeout', isRetryable: true, close: 4408, meaning: 'no `auth` in time' },
  { code: 'superseded', isRetryable: false, close: 4409, meaning: 'the same key opened a newer session' },
  { code: 'rate_exceeded', isRetryable: true, close: 4429, meaning: 'went on sending after many `rate_limited`' },
  { code: 'heartbeat_missed', isRetryable: true, close: 4440, meaning: 'no complete message and no pong in time' },
  {
    code: 'slow_consumer',
    isRetryable: true,
    close: 4441,
    meaning: 'the recipient does not read; its mail stays queued',
  },
  { code: 'internal', isRetryable: true, close: 1011, meaning: 'a fault of the broker, on this connection only' },
  {
    code: 'restarting',
    isRetryable: true,
    close: 1012,
    meaning: 'the broker goes away; connect again after `retryAfterMs`',
  },
  {
    code: 'try_later',
    isRetryable: true,
    close: 1013,
    meaning: 'the broker or its database takes no new sessions now',
  },
  {
    code: 'invite_refused',
    isRetryable: false,
    close: 4410,
    meaning: 'the invite is not good here, or `enrol` was not signed for this connection',
  },
  { code: 'already_member', isRetryable: false, close: 4411, meaning: 'this key is a member of the mesh already' },
  { code: 'name_taken', isRetryable: false, close: 4412, meaning: 'another member of the mesh has this name' },
  { code: 'no_responder', isRetryable: false, meaning: 'asked for only if its recipient is online, and it is not' },
  { code: 'too_many_hops', isRetryable: false, meaning: 'the thread has passed from peer to peer too often' },
  { code: 'thread_exhausted', isRetryable: false, meaning: 'too many envelopes of this thread in too short a time' },
  { code: 'delay_too_long', isRetryable: false, meaning: '`notBeforeMs` lies behind its time to live' },
  {
    code: 'stale_roster',
    isRetryable: false,
    meaning: 'the group has changed: seal the message again for its current members',
  },
  { code: 'not_allowed', isRetryable: false, meaning: 'the recipient takes nothing from this peer' },
  {
    code: 'too_many_devices',
    isRetryable: false,
    close: 4413,
    meaning: 'this person has as many devices as it may have',
  },
  {
    code: 'mailbox_full',
    isRetryable: true,
    meaning:
      "the recipient's mailbox or the whole mesh is full, or holds as much of this sender as it may; nothing was stored",
  },
  { code: 'unknown_group', isRetryable: false, meaning: 'there is no such group in this mesh, or no longer' },
  { code: 'moved', isRetryable: true, close: 4421, meaning: 'another shard serves this mesh: ask again where it is' },
  { code: 'not_kept', isRetryable: false, meaning: 'the space keeps no messages of this peer' },
  { code: 'history_full', isRetryable: true, meaning: 'the mesh keeps as much as it may; nothing was stored' },
  {
    code: 'frame_too_large',
    isRetryable: false,
    close: 1009,
    meaning: 'longer than a frame may be, or than one of its type may be, or than one before a proven key may be',
  },
  {
    code: 'name_malformed',
    isRetryable: false,
    close: 4414,
    meaning: 'the name is none that may be chosen',
  },
  {
    code: 'too_many_members',
    isRetryable: false,
    close: 4415,
    meaning: 'the mesh has as many members as it may have',
  },
] as const satisfies readonly RefusalRow[]

type Row = (typeof ROWS)[number]
/** A code that answers one envelope. */
export type NackCode = Exclude<Row, { close: number }>['code']
/** A code that ends the connection. */
export type CloseCode = Extract<Row, { close: number }>['code']
export type RefusalCode = NackCode | CloseCode

export const refusals: readonly (RefusalRow & { readonly code: RefusalCode })[] = ROWS
const byCode = new Map(refusals.map((row) => [row.code, row]))

export const refusal = (code: RefusalCode) => byCode.get(code)!
export const refusalCodes: readonly RefusalCode[] = refusals.map((row) => row.code)

/** The WebSocket close code of a refusal that ends the connection. */
export const closeNumber = (code: CloseCode): number => refusal(code).close!
