/**
 * The configuration, as one table: each row names, parses, defaults and explains one variable of the environment.
 * `readConfig` reports everything that is wrong at once; `bun apps/broker/src/main.ts --print-config` shows what holds;
 * `docs/reference/config.md` is made from the table.
 */
import { readFileSync } from 'node:fs'
import { defaultLimits, type EngineLimits } from '@sealpost/core'
import { defaultBatchLimits, defaultClaimLoopOptions } from '@sealpost/driver'
import { isDialable, normalizeAuthority } from '@sealpost/identity'
import { ENVELOPE_BYTES_MAX, GROUPS_MAX, POOLS_MAX } from '@sealpost/protocol'
import { defaultQueueOptions } from '@sealpost/queue'
import { z } from 'zod'
import { isNetwork } from '../server/addresses.ts'
import { attachmentErrors, attachmentSettings } from './attachments.ts'
import { historySettings } from './history.ts'
import { COUNT_MAX, count, list, ms, oneOf, onOff, type Setting, setting, words } from './kinds.ts'
import { portSettings, resolvePorts } from './ports.ts'
import { tlsErrors, tlsSettings } from './tls.ts'
import { traceSettings } from './traces.ts'

/** The queue takes a lease further ahead for one given before the database clock jumped back. */
const LEASE_MS_MAX = 300_000
/** The engine looks once a second, and takes a longer pause between two looks for its own. */
const HEARTBEAT_MS_MIN = 2000
/** Four times as much must fit the 32 bits in which a socket counts what it buffers. */
const CREDIT_BYTES_MAX = 256 * 1024 * 1024

/** A look at a mesh reads a row for each. */
const MESH_COUNT_MAX = 1_000_000

/** As peers sign it: lower case, with the port. */
const authority = z.string().transform((text, context) => {
  try {
    return normalizeAuthority(text)
  } catch {
    context.addIssue('no authority') // the sentence comes from `expects`
    return z.NEVER
  }
})
const network = z.string().refine(isNetwork)
const natsUrl = z
  .string()
  .refine(
    (text) => URL.canParse(text) && ['nats:', 'tls:'].includes(new URL(text).protocol) && new URL(text).host !== '',
  )
const url = z.string().refine((text) => text === '' || isDialable(text))
const shardName = z.string().regex(/^[!-~]{0,64}$/)
const hostName = z.string().regex(/^[a-z0-9._-]+$/)
const origin = z.string().refine((text) => URL.canParse(text) && new URL(text).origin === text)

const { rate, byteRate, mailbox, mesh } = defaultLimits

export const settings = {
  DATABASE_URL: setting(words('the URL of a database'), {
    fallback: null,
    unit: 'URL',
    meaning:
      'Postgres 15 or newer, as `postgres://user:password@host:port/database`; several hosts (`host1:5432,host2:5432`), `target_session_attrs`, `sslmode` and its files are those of libpq, and a pooler is refused',
    isSecret: true,
  }),
  BUS: setting(oneOf('auto', 'postgres', 'nats', 'memory'), {
    fallback: 'auto',
    unit: 'bus',
    meaning:
      'how brokers on one database tell each other what waits: `postgres` by `LISTEN` and `NOTIFY`, `nats`, or `memory` for one that is alone; `auto` takes `nats` where `NATS_URL` is set, and else `postgres`',
  }),
  NATS_URL: setting(list('URLs like nats://name:password@nats.example:4222, separated by commas', natsUrl), {
    fallback: '',
    unit: 'URL, …',
    meaning: 'servers of NATS, of which one is taken; `tls://` where they are to be spoken to by TLS',
    isSecret: true,
  }),
  NATS_CREDENTIALS_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning: 'a `.creds` file for them',
  }),
  ADMIN_DATABASE_URL: setting(words('the URL of a database'), {
    fallback: '',
    unit: 'URL',
    meaning: 'the same database by an account that may do what operators do; without it `DATABASE_URL`',
    isSecret: true,
  }),
  ...portSettings,
  ...tlsSettings,
  ADMIN_NAMES: setting(list('host names, separated by commas', hostName), {
    fallback: '',
    unit: 'host, …',
    meaning:
      'names by which the private server may be asked, such as those of a service; addresses, `localhost` and names under `.localhost` are always among them',
  }),
  AUTHORITIES: setting(list('names like broker.example:443, separated by commas', authority), {
    fallback: '',
    unit: 'host:port, …',
    meaning:
      'names under which peers reach this broker, port 443 unless one is named; loopback names of `PORT` are always among them',
  }),
  PUBLIC_URL: setting(
    { parse: url, expects: 'an address like wss://broker.example' },
    {
      fallback: '',
      unit: 'URL',
      meaning:
        'where peers dial this very broker, and no other one; its name is one of `AUTHORITIES`, and a port of 0 stands for `PORT`',
    },
  ),
  SHARD_NAME: setting(
    { parse: shardName, expects: 'a name of at most 64 characters without spaces' },
    {
      fallback: '',
      unit: 'name',
      meaning:
        'of this broker among those on one database, the same after a restart; without it the host and port of `PUBLIC_URL`, or of the machine',
    },
  ),
  CELLS_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      'the file of cells, where meshes live on several Postgres servers: whose mesh was moved is sent to its cell',
  }),
  CELL: setting(words('a name'), {
    fallback: '',
    unit: 'name',
    meaning:
      'the cell of this broker in the file of cells; peers of moved meshes learn its `urls` and keep them, so that they need their old cell no more',
  }),
  PLACEMENT: setting(oneOf('auto', 'home', 'any'), {
    fallback: 'auto',
    unit: 'auto, home or any',
    meaning:
      '`home`: a peer is sent to the broker where its mesh is at home; `any`: all are served here, as behind a load balancer; `auto`: `home` with a `PUBLIC_URL`',
  }),
  MOVE_SESSIONS: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'sessions go over to the broker that has become the home of their mesh, little by little',
  }),
  ORIGINS: setting(list('origins like https://console.example, separated by commas', origin), {
    fallback: '',
    unit: 'origin, …',
    meaning: 'web origins whose pages may connect; a client that is no browser sends none',
  }),
  DEMO: setting(onOff, {
    fallback: 'off',
    unit: 'on or off',
    meaning: 'a page at `/demo` that becomes a peer in the browser; its own origin may then connect',
  }),
  BROKER_KEY_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning: "the broker's ed25519 key, which peers pin; without it `.sealpost/broker.json`, made at the first start",
  }),
  BROKER_CERTIFICATE_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      'of a broker whose key is not the one that peers pin: the word of that key for its own, from `sealpost shard certify`',
  }),
  LIMITS: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'limits of rates, connections, mailboxes and load; off only for a load test',
  }),
  RATE_PER_SECOND: setting(count('envelopes'), {
    fallback: rate!.perSecond,
    unit: 'envelopes/s',
    meaning: 'envelopes a person may send each second, on all its devices',
  }),
  RATE_BURST: setting(count('envelopes'), { fallback: rate!.burst, unit: 'envelopes', meaning: 'and in a burst' }),
  RATE_BYTES_PER_SECOND: setting(count('bytes'), {
    fallback: byteRate!.perSecond,
    unit: 'bytes/s',
    meaning: 'and their bytes each second',
  }),
  RATE_BYTES_BURST: setting(count('bytes'), { fallback: byteRate!.burst, unit: 'bytes', meaning: 'and in a burst' }),
  MAILBOX_MAX: setting(count('deliveries'), {
    fallback: mailbox!.countMax,
    unit: 'deliveries',
    meaning: 'that may wait for one recipient',
  }),
  MAILBOX_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesMax,
    unit: 'bytes',
    meaning: 'and their bytes',
  }),
  MAILBOX_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mailbox!.perSenderMax,
    unit: 'deliveries',
    meaning: 'that may wait for one recipient from one person, on all its devices',
  }),
  MAILBOX_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'and their bytes',
  }),
  MESH_MAX: setting(count('deliveries', MESH_COUNT_MAX, 0), {
    fallback: mesh!.countMax,
    unit: 'deliveries',
    meaning: 'deliveries that may wait in one mesh, and dead letters with them; 0 switches the quota of a mesh off',
  }),
  MESH_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesMax,
    unit: 'bytes',
    meaning: 'and their bytes',
  }),
  MESH_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mesh!.perSenderMax,
    unit: 'deliveries',
    meaning: 'deliveries and dead letters of one person in a mesh, on all its devices',
  }),
  MESH_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'and their bytes',
  }),
  SOCKETS_PER_IP: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning: 'connections from one address, or from one /64 of IPv6',
  }),
  UNAUTHENTICATED_PER_IP: setting(count('connections'), {
    fallback: 20,
    unit: 'connections',
    meaning: 'and of these without a proven key',
  }),
  UPGRADES_PER_SECOND: setting(count('connections'), {
    fallback: 10,
    unit: 'connections/s',
    meaning: 'new connections from one address each second',
  }),
  UPGRADES_BURST: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning: 'and in a burst: all of an address come back at once after a restart',
  }),
  REQUESTS_PER_SECOND: setting(count('requests'), {
    fallback: 40,
    unit: 'requests/s',
    meaning: 'requests by HTTP from one address each second',
  }),
  REQUESTS_BURST: setting(count('requests'), { fallback: 80, unit: 'requests', meaning: 'and in a burst' }),
  TRUSTED_PROXIES: setting(list('addresses or networks like 10.0.0.0/8, separated by commas', network), {
    fallback: '',
    unit: 'address, …',
    meaning: 'proxies whose word counts for where a request comes from',
  }),
  PROXY_HEADER: setting(oneOf('x-forwarded-for', 'forwarded'), {
    fallback: 'x-forwarded-for',
    unit: 'header',
    meaning: 'in which they say it: `x-forwarded-for` or `forwarded`; the other one is not read',
  }),
  ...attachmentSettings,
  LAG_MS_MAX: setting(ms(), {
    fallback: 1000,
    unit: 'ms',
    meaning: 'an event loop that comes later than this, four looks in a row, is an overload',
  }),
  MEMORY_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: 1024 * 1024 * 1024,
    unit: 'bytes',
    meaning: 'more memory than this is an overload: nobody new is let in, and sends are refused as `busy`',
  }),
  STATEMENTS_WAITING_MAX: setting(count('statements'), {
    fallback: 2000,
    unit: 'statements',
    meaning: 'more that wait for a connection to the database are an overload',
  }),
  UNAUTHENTICATED_MAX: setting(count('connections'), {
    fallback: 1000,
    unit: 'connections',
    meaning: 'connections that have not proven a key, in all',
  }),
  LEASE_MS: setting(ms(LEASE_MS_MAX), {
    fallback: defaultQueueOptions.leaseMs,
    unit: 'ms',
    meaning: 'a delivery not settled by then is pushed again',
  }),
  POLL_MS: setting(ms(), {
    fallback: defaultLimits.pollMs,
    unit: 'ms',
    meaning: 'each session looks into its queue at least this often',
  }),
  CHECK_MS: setting(ms(), {
    fallback: defaultLimits.checkMs,
    unit: 'ms',
    meaning: 'and the broker looks at least this often whether it was revoked, or taken over by another broker',
  }),
  DRAIN_TICK_MS: setting(ms(), {
    fallback: defaultClaimLoopOptions.tickMs,
    unit: 'ms',
    meaning: 'shortest time between two claim statements',
  }),
  BIRTH_LEASE: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'push to a peer that is online without a claim; off for a benchmark',
  }),
  BATCH_ROWS: setting(count('envelopes', 50_000), {
    fallback: defaultBatchLimits.appendsMax,
    unit: 'envelopes',
    meaning: 'envelopes in one commit at most',
  }),
  HEARTBEAT_MS: setting(count('milliseconds', COUNT_MAX, HEARTBEAT_MS_MIN), {
    fallback: defaultLimits.heartbeatMs,
    unit: 'ms',
    meaning: 'a ping after so long without a word of the peer; no sign of life for three times as long ends a session',
  }),
  AUTH_WITHIN_MS: setting(ms(), {
    fallback: defaultLimits.authWithinMs,
    unit: 'ms',
    meaning: 'from the connection to a proven key',
  }),
  CREDIT_MAX: setting(count('deliveries', 65_535), {
    fallback: defaultLimits.creditMax,
    unit: 'deliveries',
    meaning: 'unsettled deliveries a session may have',
  }),
  CREDIT_BYTES: setting(count('bytes', CREDIT_BYTES_MAX), {
    fallback: defaultLimits.creditBytes,
    unit: 'bytes',
    meaning: 'and their bytes; a socket that is never read holds four times as much at most',
  }),
  MEMBERS_MAX: setting(count('members'), {
    fallback: 10_000,
    unit: 'members',
    meaning:
      'members of one mesh, devices included, past which no invite lets anybody in; what an operator enrols is not refused',
  }),
  GROUPS_PER_OWNER: setting(count('groups', GROUPS_MAX), {
    fallback: 100,
    unit: 'groups',
    meaning: 'groups that one person may have made on its devices and not ended',
  }),
  POOLS_PER_OWNER: setting(count('pools', POOLS_MAX), {
    fallback: 100,
    unit: 'pools',
    meaning: 'pools of one person, on all its devices; a deleted one counts for a day more',
  }),
  POLLING_IDLE_MS: setting(ms(), {
    fallback: 60_000,
    unit: 'ms',
    meaning: 'a peer that polls by HTTP is in session this long after its last request',
  }),
  ENVELOPE_BYTES_MAX: setting(count('bytes', ENVELOPE_BYTES_MAX), {
    fallback: defaultLimits.envelopeBytesMax,
    unit: 'bytes',
    meaning: 'the largest envelope',
  }),
  TTL_SECONDS: setting(count('seconds'), {
    fallback: defaultLimits.ttlSecondsDefault,
    unit: 's',
    meaning: 'time to live of an envelope that names none',
  }),
  TTL_SECONDS_MAX: setting(count('seconds'), {
    fallback: defaultLimits.ttlSecondsMax,
    unit: 's',
    meaning: 'the longest it may name',
  }),
  // A client resends for half of it: less would leave a short cut no time.
  DEDUPE_MS: setting(count('milliseconds', COUNT_MAX, 60_000), {
    fallback: defaultQueueOptions.dedupeMs,
    unit: 'ms',
    meaning: 'a resend is known this long after its acceptance',
  }),
  STRIKES_MAX: setting(count('strikes', 32_767), {
    fallback: defaultQueueOptions.strikesMax,
    unit: 'strikes',
    meaning: 'after which a delivery is a dead letter',
  }),
  STRIKE_SPAN_MS: setting(ms(), {
    fallback: defaultQueueOptions.strikeSpanMs,
    unit: 'ms',
    meaning: 'between the first and the last strike at least',
  }),
  SWEEP_MS: setting(ms(), {
    fallback: 1000,
    unit: 'ms',
    meaning:
      'pause between two looks for expired and dead deliveries, of all brokers on the database together; up to four times as long where none is',
  }),
  DEAD_LETTER_SECONDS: setting(count('seconds'), {
    fallback: 30 * 86_400,
    unit: 's',
    meaning: 'a dead letter is forgotten after so long, told to its recipient or not',
  }),
  DEAD_LETTERS_PER_SENDER_MAX: setting(count('dead letters'), {
    fallback: 1000,
    unit: 'dead letters',
    meaning: 'dead letters of one person, on all its devices, that are kept for one recipient; the oldest go first',
  }),
  DEAD_LETTER_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: 8 * 1024 * 1024,
    unit: 'bytes',
    meaning: 'and their bytes; the newest one is kept in any case',
  }),
  SNAPSHOT_SECONDS_MAX: setting(count('seconds'), {
    fallback: 300,
    unit: 's',
    meaning: 'a transaction that holds its snapshot for longer keeps the queue from being cleared, and is an alarm',
  }),
  DEAD_ROWS_MAX: setting(count('rows'), {
    fallback: 200_000,
    unit: 'rows',
    meaning: 'more dead rows in the hot tables are an alarm',
  }),
  ...historySettings,
  LOG_LEVEL: setting(oneOf('debug', 'info', 'warn', 'error', 'silent'), {
    fallback: 'info',
    unit: 'level',
    meaning: 'the lowest level that is logged: `debug`, `info`, `warn`, `error` or `silent`',
  }),
  ...traceSettings,
} satisfies Record<string, Setting<unknown>>

type Name = keyof typeof settings
type Parsed = { readonly [N in Name]: z.output<(typeof settings)[N]['parse']> }
export type Config = Omit<Parsed, 'ADMIN_PORT'> & { readonly ADMIN_PORT: number }

export type ConfigResult = { ok: true; config: Config } | { ok: false; errors: string[] }

/** Each variable but a path may also be given as `NAME_FILE`, the path of a file that holds it. */
export function readConfig(env: Record<string, string | undefined> = process.env): ConfigResult {
  const errors: string[] = []
  const values: Record<string, unknown> = {}
  for (const [name, row] of Object.entries(settings) as [Name, Setting<unknown>][]) {
    const text = textOf(name, row, env, errors)
    if (text === undefined) continue
    const parsed = row.parse.safeParse(text)
    if (parsed.success) values[name] = parsed.data
    else errors.push(`${name} must be ${row.expects}${row.isSecret ? '' : `, not ${JSON.stringify(text)}`}.`)
  }
  errors.push(...resolvePorts(values))
  const { TTL_SECONDS, TTL_SECONDS_MAX } = values as Partial<Config>
  if (TTL_SECONDS && TTL_SECONDS_MAX && TTL_SECONDS > TTL_SECONDS_MAX)
    errors.push(`TTL_SECONDS (${TTL_SECONDS}) must not be over TTL_SECONDS_MAX (${TTL_SECONDS_MAX}).`)
  const { BUS, NATS_URL } = values as Partial<Config>
  if (BUS === 'nats' && NATS_URL?.length === 0) errors.push('BUS is nats, but NATS_URL is not set.')
  errors.push(...attachmentErrors(values as Partial<Config>), ...tlsErrors(values as Partial<Config>))
  return errors.length > 0 ? { ok: false, errors } : { ok: true, config: values as Config }
}

function textOf(name: string, row: Setting<unknown>, env: Record<string, string | undefined>, errors: string[]) {
  const path = row.unit === 'path' ? undefined : env[`${name}_FILE`]
  try {
    const text = path ? readFileSync(path, 'utf8').trim() : env[name]
    if (text !== undefined && text !== '') return text
  } catch {
    errors.push(`${name}_FILE names a file that can't be read.`)
    return undefined
  }
  if (row.fallback === null) errors.push(`${name} is not set: ${row.meaning.replaceAll('`', '')}.`)
  return row.fallback ?? undefined
}

/** A line for each setting, secrets hidden. */
export function printConfig(config: Config): string {
  return (Object.entries(settings) as [Name, Setting<unknown>][])
    .map(([name, row]) => `${name}=${row.isSecret ? '(hidden)' : config[name]}`)
    .join('\n')
}

export function limitsOf(config: Config): EngineLimits {
  return {
    ...defaultLimits,
    authWithinMs: config.AUTH_WITHIN_MS,
    heartbeatMs: config.HEARTBEAT_MS,
    pollMs: config.POLL_MS,
    checkMs: config.CHECK_MS,
    leaseMs: config.LEASE_MS,
    dedupeMs: config.DEDUPE_MS,
    creditMax: config.CREDIT_MAX,
    creditBytes: config.CREDIT_BYTES,
    envelopeBytesMax: config.ENVELOPE_BYTES_MAX,
    ttlSecondsDefault: config.TTL_SECONDS,
    ttlSecondsMax: config.TTL_SECONDS_MAX,
    ...(config.LIMITS === 'on' ? rateLimits(config) : { rate: null, byteRate: null, mailbox: null, mesh: null }),
    isInsertLeaseOn: config.BIRTH_LEASE === 'on',
  }
}

const rateLimits = (config: Config): Pick<EngineLimits, 'rate' | 'byteRate' | 'mailbox' | 'mesh'> => ({
  rate: { perSecond: config.RATE_PER_SECOND, burst: config.RATE_BURST },
  byteRate: { perSecond: config.RATE_BYTES_PER_SECOND, burst: config.RATE_BYTES_BURST },
  mailbox: {
    countMax: config.MAILBOX_MAX,
    bytesMax: config.MAILBOX_BYTES_MAX,
    perSenderMax: config.MAILBOX_PER_SENDER_MAX,
    bytesPerSenderMax: config.MAILBOX_BYTES_PER_SENDER_MAX,
  },
  mesh: config.MESH_MAX === 0 ? null : meshLimits(config),
})

const meshLimits = (config: Config): EngineLimits['mesh'] => ({
  countMax: config.MESH_MAX,
  bytesMax: config.MESH_BYTES_MAX,
  perSenderMax: config.MESH_PER_SENDER_MAX,
  bytesPerSenderMax: config.MESH_BYTES_PER_SENDER_MAX,
})
