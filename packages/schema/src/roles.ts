/**
 * Defines the privileges of the database roles, which have no logins of their own: `_owner` runs migrations, `_broker`
 * is for brokers, `_admin` is for `sealpost dead` and for enrolling first members, `_monitor` may count rows, `_backup`
 * may read everything, `_sender` is for applications that store prepared sends. A login becomes a member of one of
 * them. So a compromised broker can't change a stored envelope or its sender, read the envelopes of dead letters, drop,
 * truncate or alter a table, or reset a sequence.
 *
 * An embedded server needs no roles: the user who runs it owns its files anyway, and one of them contains the password
 * of its only account.
 */
import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'
import { openDatabase, parseDatabaseUrl } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { migrate } from './migrate.ts'

const QUEUE_COLUMNS_CHANGED = 'lease_epoch, lease_holder, lease_until, attempts, strikes, first_strike_at'
/** All columns except envelopes and users' texts. */
const DEAD_LETTER_COLUMNS_READ =
  'ctid, mesh_id, recipient, id, sender, envelope_id, priority, reason, died_at, told_at, body_id, bytes'
const PREPARED_COLUMNS_COUNTED = 'id, mesh_id, queued_at, expires_at, due_at, attempts, status, code, decided_at'

type Grants = Readonly<Record<string, string>>

const BROKER: Grants = {
  mesh: 'select',
  mesh_move: 'select',
  member: 'select, insert, update (revoked_at, peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature, name, consent_policy, consent_version, vouched_until)', // biome-ignore format: one thing
  consent: 'select, insert, update, delete',
  former_binding: 'select, insert, delete, update (peer_key)',
  device: 'select, insert, update (removal, removed_at, invite_key, statement)',
  former_identity: 'select, insert',
  heir_statement: 'select, insert, update (user_key, epoch, statement)',
  key_recovery: 'select, insert, update (epoch, heir_key, successor_key, statement, published_at)',
  pool: 'select, insert, update (epoch, members, statement)',
  peer_group: 'select, insert, update, delete',
  invite: 'select, insert, update',
  mesh_root: 'select, insert, update (root_key, adopted_at)',
  member_proof: 'select, insert, update (at_ms, statement)',
  member_revocation: 'select, insert',
  mesh_log: 'select',
  log_entry: 'select',
  log_node: 'select',
  log_signer: 'select, insert, update (certificate)',
  prekey_statement: 'select, insert, update (statement, issued_at_ms, last_resorts)',
  one_time_prekey: 'select, insert, delete, update (claimer, claimed_at)',
  session: 'select, insert, update (epoch, opened_epoch, shard, opened_at)',
  sender_mark: 'select, insert, update (version, last_envelope_id)',
  message_queue: `select, insert, delete, update (${QUEUE_COLUMNS_CHANGED})`,
  shared_body: 'select, insert, delete, update (stored_at)',
  delayed_delivery: 'select, insert, delete, update (due_at)', // locking a row requires the update privilege
  dedupe_ledger: 'select, insert, delete, update (keep_until)',
  dead_letter: `select (${DEAD_LETTER_COLUMNS_READ}), insert, delete, update (told_at)`,
  access_token: 'select, insert, delete, update (revoked_at)',
  space: 'select, insert, update, delete',
  space_grant: 'select, insert, update, delete',
  state_entry: 'select, insert, delete, update (revision, seq, at, author, is_deleted, entry, hash)',
  history_event: 'select, insert',
  snapshot: 'select, insert, update, delete',
  snapshot_entry: 'select, insert',
  attachment: 'select, insert, delete, update (hash, completed_at, expires_at)',
  attachment_chunk: 'select, insert, delete',
  admin_token: 'select, update (last_used_at)',
  admin_audit: 'select, insert',
  cluster: 'select, update (prepared_polled_until)',
  shard: 'select, insert, update, delete',
  mesh_pin: 'select',
  prepared_send: 'select, delete, update (due_at, attempts, doubt_since, status, code, decided_at, request)',
}

const ADMIN: Grants = {
  mesh: 'select, insert',
  mesh_move: 'select',
  member: 'select, insert, update (revoked_at)',
  session: 'select, insert',
  sender_mark: 'select, insert',
  message_queue: 'select, insert',
  dead_letter: 'select, delete, update (told_at)',
  invite: 'select, insert, update (revoked_at)',
  mesh_root: 'select, insert',
  member_proof: 'select, insert',
  member_revocation: 'select',
  former_identity: 'select (mesh_id, peer_key, peer_no)',
  access_token: 'select, update (revoked_at)',
  consent: 'select',
  device: 'select',
  peer_group: 'select',
  pool: 'select',
  admin_token: 'select, insert, update (revoked_at, last_used_at)',
  admin_audit: 'select, insert',
  cluster: 'select',
  shard: 'select',
  mesh_pin: 'select, insert, update, delete',
  space: 'select (mesh_id, space_id, owner, history_for, kept_since, keep_seconds, keep_bytes, last_at, entries, entry_bytes, history_bytes)', // biome-ignore format: one thing
  snapshot: 'select',
  attachment: 'select (mesh_id, bytes, completed_at)',
  prepared_send: 'select (id, mesh_id, sender, recipient, priority, envelope_id, queued_at, expires_at, due_at, attempts, status, code, decided_at)', // biome-ignore format: one thing
}

/** Grants access to numbers and times only: no keys, envelopes or users' texts. */
const MONITOR: Grants = {
  mesh: 'select (mesh_id, name)',
  member: 'select (mesh_id, peer_no, role, is_pool, revoked_at)',
  session: 'select',
  message_queue: `select (mesh_id, recipient, priority, id, sender, enqueued_at, expires_at, body_bytes, ${QUEUE_COLUMNS_CHANGED})`,
  delayed_delivery: 'select (mesh_id, recipient, priority, id, sender, enqueued_at, due_at, body_bytes)',
  dead_letter: 'select (mesh_id, recipient, priority, id, sender, reason, died_at)',
  attachment: 'select (mesh_id, owner, bytes, created_at, completed_at, expires_at)',
  shard: 'select (name, shard_id, epoch, url, lease_until)',
  mesh_pin: 'select',
  cluster: 'select',
  space: 'select (mesh_id, space_id, last_seq, last_at, entries, entry_bytes, history_bytes)',
  snapshot: 'select (mesh_id, space_id, seq, at, entries, bytes, done_at)',
  prepared_send: `select (${PREPARED_COLUMNS_COUNTED})`,
}

/** Functions that create and drop daily partitions of the history. A broker can drop only expired ones. */
const HISTORY_JOBS = ['add_history_day(date)', 'drop_history_day(date)', 'clear_undated_history(timestamptz, integer)']

/** The function that appends existing statements to the logs of their meshes, and those that append new ones. */
const LOG_BACKFILL = 'log_backfill(integer)'
const LOG_JOBS = [LOG_BACKFILL, 'log_append(uuid, integer, bytea)', 'log_change()', 'log_arrival()']

/** Functions for the server's identity and its incarnation. */
const ORIGIN_JOBS = [
  'note_origin(boolean)',
  'database_origin()',
  'take_origin(text, boolean)',
  'attest_origin(uuid, uuid, boolean, double precision)',
]

/** Functions of the schema `sealpost`, which are all that an application may use. */
const SENDER_FUNCTIONS = ['sealpost.send(bytea)', 'sealpost.sent_status(uuid)']
/** The function that leases prepared sends to a broker. */
const TAKE_PREPARED = 'take_prepared_sends(integer, interval)'

export const ROLES = ['owner', 'broker', 'admin', 'monitor', 'backup', 'sender'] as const

/**
 * Returns the statements that create or update the roles. Run them in the database as a superuser after every
 * migration. They make `_owner` own all tables.
 */
export function roleStatements(prefix = 'sealpost'): string[] {
  const all = ROLES.map((name) => `${prefix}_${name}`)
  const [owner, broker, admin, monitor, backup, sender] = all as [string, string, string, string, string, string]
  return [
    ...all.map(create),
    onDatabase(`revoke all on database %I from public`),
    ...all.map((role) => onDatabase(`grant connect on database %I to ${role}`)),
    onDatabase(`grant create on database %I to ${owner}`), // the table of migrations has its own schema
    'revoke all on schema public from public',
    `alter schema public owner to ${owner}`,
    handOver(owner),
    ...[broker, admin, monitor, backup].flatMap((role) => [
      `revoke all on all tables in schema public from ${role}`,
      `revoke all on all sequences in schema public from ${role}`,
      `grant usage on schema public, drizzle to ${role}`,
      `grant select on drizzle.__drizzle_migrations to ${role}`,
    ]),
    `grant usage on sequence delivery_block, receipt_id to ${broker}, ${admin}`,
    ...granted(BROKER, broker),
    ...granted(ADMIN, admin),
    ...granted(MONITOR, monitor),
    ...reading(backup),
    `alter default privileges for role ${owner} in schema public grant select on tables to ${backup}`, // applies to future partitions
    `revoke all on function ${ORIGIN_JOBS}, refuse_while_moving(), drop_prekeys(), ${LOG_JOBS}, ${HISTORY_JOBS} from public`,
    `grant execute on function ${LOG_BACKFILL} to ${broker}`,
    `grant execute on function ${HISTORY_JOBS} to ${broker}`,
    `grant execute on function note_origin(boolean), database_origin(), attest_origin(uuid, uuid, boolean, double precision) to ${broker}, ${admin}`,
    `grant execute on function pg_control_system() to ${owner}`,
    `revoke all on schema sealpost from public, ${sender}`,
    `revoke all on function ${SENDER_FUNCTIONS}, ${TAKE_PREPARED} from public`,
    `grant usage on schema sealpost to ${sender}`,
    `grant execute on function ${SENDER_FUNCTIONS} to ${sender}`,
    `grant execute on function ${TAKE_PREPARED} to ${broker}`,
    `grant pg_read_all_stats to ${broker}, ${admin}, ${monitor}`, // shows the session whose snapshot slows the queue
  ]
}

const create = (role: string) =>
  `do $$ begin create role ${role} nologin; exception when duplicate_object then null; end $$`

const onDatabase = (statement: string) => `do $$ begin execute format('${statement}', current_database()); end $$`

/** Changes the owner of all objects in the two schemas; `reassign owned` would affect others. */
const handOver = (owner: string) => `do $$ declare what record; begin
  if to_regnamespace('drizzle') is not null then alter schema drizzle owner to ${owner}; end if;
  for what in select c.oid::regclass as name, c.relkind from pg_class c
    where c.relnamespace::regnamespace::text in ('public', 'drizzle') and c.relkind in ('r', 'p', 'v', 'S')
      and (c.relispartition or not exists (select from pg_depend d where d.objid = c.oid and d.refobjid <> c.oid
        and d.deptype in ('a', 'i', 'e') and d.classid = 'pg_class'::regclass))
  loop execute format('alter %s %s owner to ${owner}',
    case what.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, what.name); end loop;
  ${ORIGIN_JOBS.map((job) => `alter function ${job} owner to ${owner};`).join(' ')}
  alter function refuse_while_moving() owner to ${owner};
  alter function drop_prekeys() owner to ${owner};
  ${[...LOG_JOBS, ...HISTORY_JOBS].map((job) => `alter function ${job} owner to ${owner};`).join(' ')}
  alter schema sealpost owner to ${owner};
  ${[...SENDER_FUNCTIONS, TAKE_PREPARED].map((job) => `alter function ${job} owner to ${owner};`).join(' ')}
end $$`

/** Grants the right to read everything for a dump, and to start and stop a backup of the files. */
const reading = (role: string) => [
  `grant select on all tables in schema public, drizzle to ${role}`,
  `grant select on all sequences in schema public, drizzle to ${role}`,
  `grant execute on function pg_backup_start(text, boolean), pg_backup_stop(boolean), pg_switch_wal() to ${role}`,
]

const granted = (grants: Grants, role: string) =>
  Object.entries(grants).map(([table, rights]) => `grant ${rights} on ${table} to ${role}`)

/** The login of a broker, an operator or an application. */
export interface RoleLogin {
  readonly role: 'broker' | 'admin' | 'sender'
  /** The URL, with user and password of the login. */
  readonly url: string
}

const ADVISORY_LOCK = 0x5ea1_9058
const SCRAM_ROUNDS = 4096
const USER = /^[A-Za-z_][\w.-]{0,62}$/

/**
 * Prepares a database for brokers with minimal privileges: creates the tables, the roles, and each login. Needs a
 * superuser. Idempotent, even if several calls run at the same time. @throws DatabaseError with the codes of `migrate`;
 * OperatingError `login_malformed`
 */
export async function prepareDatabase(ownerUrl: string, logins: readonly RoleLogin[]): Promise<void> {
  const owner = parseDatabaseUrl(ownerUrl)
  const granted = logins.flatMap((login) => loginStatements(login, owner.user))
  await migrate(ownerUrl)
  const db = await openDatabase(ownerUrl, { connections: 1, applicationName: 'sealpost prepare' })
  try {
    const statements = [`select pg_advisory_xact_lock(${ADVISORY_LOCK})`, ...roleStatements(), ...granted]
    await db.run((sql) => sql.unsafe(statements.join(';\n')).simple()) // simple queries, in one transaction
  } finally {
    await db.close()
  }
}

function loginStatements({ role, url }: RoleLogin, owner: string): string[] {
  const { user: name, password } = parseDatabaseUrl(url)
  const refuse = (rule: string): never => {
    throw new OperatingError('login_malformed', `The database URL for the role sealpost_${role} ${rule}.`)
  }
  if (!USER.test(name)) return refuse('must have a user name of letters, digits, _, - and .')
  if (password === '') return refuse('must have a password')
  if (name === owner) return refuse('must not use the account that owns the database')
  return [
    `do $$ begin create role "${name}" login; exception when duplicate_object then null; end $$`,
    `alter role "${name}" login password '${scramVerifier(password)}'`,
    `grant sealpost_${role} to "${name}"`,
  ]
}

/** Returns a password's verifier (RFC 5803), so that no statement or log contains the password. */
function scramVerifier(password: string): string {
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(password.normalize('NFKC'), salt, SCRAM_ROUNDS, 32, 'sha256')
  const keyed = (text: string) => createHmac('sha256', salted).update(text).digest()
  const storedKey = createHash('sha256').update(keyed('Client Key')).digest('base64')
  return `SCRAM-SHA-256$${SCRAM_ROUNDS}:${salt.toString('base64')}$${storedKey}:${keyed('Server Key').toString('base64')}`
}
