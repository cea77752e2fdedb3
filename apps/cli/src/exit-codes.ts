/** How a command ends, as one table: scripts rely on it, the help prints it. */

const ROWS = [
  { name: 'ok', exitCode: 0, meaning: 'done' },
  { name: 'failure', exitCode: 1, meaning: 'anything without a code of its own below' },
  { name: 'usage', exitCode: 2, meaning: 'the command line is wrong; nothing was done' },
  { name: 'not_found', exitCode: 3, meaning: 'no such peer, profile, key, invite, mesh or dead letter' },
  { name: 'auth', exitCode: 4, meaning: 'refused or not proven: a key, an invite, a name, the broker' },
  { name: 'conflict', exitCode: 5, meaning: 'exists already, or is in use by another program' },
  { name: 'quota', exitCode: 6, meaning: 'over a limit: size, rate, time or number' },
  { name: 'unreachable', exitCode: 7, meaning: 'the broker, the database or the asked peer is not there' },
  { name: 'timeout', exitCode: 124, meaning: 'not done within --timeout' },
  { name: 'interrupted', exitCode: 130, meaning: 'Ctrl-C' },
] as const

export type Ending = (typeof ROWS)[number]['name']

export const endings: readonly { readonly name: Ending; readonly exitCode: number; readonly meaning: string }[] = ROWS

export const exitCodeOf = (ending: Ending): number => ROWS.find((row) => row.name === ending)!.exitCode

/** Codes of errors by how a command ends that meets them. One that is in no row is a plain failure. */
const CODES: Partial<Record<Ending, readonly string[]>> = {
  usage: [
    'usage',
    'authority_malformed',
    'invite_malformed',
    'name_malformed',
    'summary_malformed',
    'group_malformed',
    'pool_malformed',
    'group_ambiguous',
    'label_malformed',
    'pool_ambiguous',
  ],
  not_found: [
    'unknown_recipient',
    'profile_missing',
    'not_joined',
    'name_unknown',
    'key_file_missing',
    'file_missing',
    'dead_letter_unknown',
    'invite_unknown',
    'mesh_unknown',
    'unknown_group',
    'unknown_device',
    'unknown_pool',
    'token_unknown',
    'not_found',
  ],
  auth: [
    'auth_failed',
    'revoked',
    'wrong_broker',
    'key_refused',
    'key_changed',
    'invite_refused',
    'not_admin',
    'not_owner',
    'not_in_group',
    'not_in_pool',
    'not_allowed',
    'key_file_locked',
    'passphrase_wrong',
    'forbidden',
    'blocked',
    'token_invalid',
    'scope_missing',
    'database_forbids',
  ],
  conflict: [
    'superseded',
    'id_reused',
    'stale_epoch',
    'stale_roster',
    'already_member',
    'name_taken',
    'key_taken',
    'key_file_exists',
    'profile_in_use',
    'profile_joined',
    'store_in_use',
    'embedded_in_use',
    'embedded_port_taken',
    'port_taken',
    'up_in_use',
  ],
  quota: [
    'busy',
    'rate_limited',
    'rate_exceeded',
    'mailbox_full',
    'outbox_full',
    'too_many_named',
    'too_many_groups',
    'too_many_devices',
    'too_many_pools',
    'too_many_own_groups',
    'body_too_large',
    'envelope_too_large',
    'ttl_too_long',
    'delay_too_long',
    'too_many_hops',
    'too_many_requests',
    'thread_exhausted',
  ],
  unreachable: [
    'unreachable',
    'no_responder',
    'connection_lost',
    'unavailable',
    'try_later',
    'restarting',
    'moved',
    'db_unavailable',
    'broker_not_ready',
  ],
  timeout: ['timeout'],
  interrupted: ['interrupted'],
}

const byCode = new Map(Object.entries(CODES).flatMap(([name, codes]) => codes.map((code) => [code, name as Ending])))

/** How a command ends that failed with an error of this code. */
export const endingOf = (code: string): Ending => byCode.get(code) ?? 'failure'
