/**
 * Defines the configuration as one table. Each row is an environment variable. `docs/reference/config.md` is generated
 * from it.
 */
import { readFileSync } from 'node:fs'
import { defaultLimits, type EngineLimits } from '@sealpost/core'
import { defaultBatchLimits, defaultClaimLoopOptions } from '@sealpost/driver'
import { isDialable, normalizeAuthority } from '@sealpost/identity'
import { ENVELOPE_BYTES_MAX, GROUPS_MAX, POOLS_MAX } from '@sealpost/protocol'
import { defaultQueueOptions } from '@sealpost/queue'
import { z } from 'zod'
import { isNetwork } from '../server/unproven-connections.ts'
import { engineRates, limitSettings } from './limits.ts'
import {
  attachmentErrors,
  attachmentSettings,
  COUNT_MAX,
  count,
  historySettings,
  list,
  ms,
  oneOf,
  onOff,
  portSettings,
  resolvePorts,
  type Setting,
  setting,
  tlsErrors,
  tlsSettings,
  traceSettings,
  words,
} from './sections.ts'

/** The maximum lease. The queue takes longer ones for leases from before a jump of the database clock. */
const LEASE_MS_MAX = 300_000
/** The minimum heartbeat. The engine scans once a second, and takes a gap longer than the heartbeat for a pause. */
const HEARTBEAT_MS_MIN = 2000
/** The maximum credit in bytes. Four times this value must fit in 32 bits. */
const CREDIT_BYTES_MAX = 256 * 1024 * 1024

/** An address as peers sign it: lower case, with the port. */
const authority = z.string().transform((text, context) => {
  try {
    return normalizeAuthority(text)
  } catch {
    context.addIssue('no authority') // `expects` supplies the actual message
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

export const settings = {
  DATABASE_URL: setting(words('the URL of a database'), {
    fallback: null,
    unit: 'URL',
    meaning:
      "Postgres 15 or newer, as `postgres://user:password@host:port/database`; supports libpq's multiple hosts (`host1:5432,host2:5432`), `target_session_attrs`, `sslmode` and its files; connection poolers are refused",
    isSecret: true,
  }),
  BUS: setting(oneOf('auto', 'postgres', 'nats', 'memory'), {
    fallback: 'auto',
    unit: 'bus',
    meaning:
      'the bus for hints between brokers on one database. `postgres` uses `LISTEN` and `NOTIFY`; `memory` is for a single broker. `auto` selects `nats` if `NATS_URL` is set, and `postgres` otherwise',
  }),
  NATS_URL: setting(list('URLs such as nats://name:password@nats.example:4222, separated by commas', natsUrl), {
    fallback: '',
    unit: 'URL, …',
    meaning: 'the NATS servers, one of which the broker connects to; a `tls://` URL connects with TLS',
    isSecret: true,
  }),
  NATS_CREDENTIALS_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning: 'a `.creds` file with the credentials for the NATS servers',
  }),
  ADMIN_DATABASE_URL: setting(words('the URL of a database'), {
    fallback: '',
    unit: 'URL',
    meaning: "the URL of the same database for a role that has the operators' rights; defaults to `DATABASE_URL`",
    isSecret: true,
  }),
  ...portSettings,
  ...tlsSettings,
  ADMIN_NAMES: setting(list('host names, separated by commas', hostName), {
    fallback: '',
    unit: 'host, …',
    meaning:
      'additional host names that the private server accepts, such as the name of a service. The server always accepts addresses, `localhost` and names under `.localhost`',
  }),
  AUTHORITIES: setting(list('names such as broker.example:443, separated by commas', authority), {
    fallback: '',
    unit: 'host:port, …',
    meaning:
      'the host names under which peers reach this broker; a name without a port gets port 443. The loopback names with `PORT` are always included',
  }),
  PUBLIC_URL: setting(
    { parse: url, expects: 'an address such as wss://broker.example' },
    {
      fallback: '',
      unit: 'URL',
      meaning:
        'the address at which peers reach this broker and no other; its host must be in `AUTHORITIES`. Port 0 stands for `PORT`',
    },
  ),
  SHARD_NAME: setting(
    { parse: shardName, expects: 'a name of at most 64 characters without spaces' },
    {
      fallback: '',
      unit: 'name',
      meaning:
        'a name for this broker that is unique on its database and stays the same across restarts; defaults to the host and port of `PUBLIC_URL`, or else of the machine',
    },
  ),
  CELLS_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      "the file that lists the cells, for meshes on several Postgres servers; the broker redirects the peers of a moved mesh to the mesh's new cell",
  }),
  CELL: setting(words('a name'), {
    fallback: '',
    unit: 'name',
    meaning:
      "the name of this broker's cell in `CELLS_FILE`. The broker sends the cell's `urls` to the peers of moved meshes, which store them and no longer need their old cell",
  }),
  PLACEMENT: setting(oneOf('auto', 'home', 'any'), {
    fallback: 'auto',
    unit: 'auto, home or any',
    meaning:
      '`home` redirects each peer to the home of its mesh. `any` serves every peer, for brokers behind a load balancer. `auto` selects `home` if `PUBLIC_URL` is set, and `any` otherwise',
  }),
  REBALANCE: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'when a mesh gets a new home, gradually move its connections to that broker',
  }),
  ORIGINS: setting(list('origins such as https://console.example, separated by commas', origin), {
    fallback: '',
    unit: 'origin, …',
    meaning: 'the web origins whose pages may connect; clients other than browsers send no origin',
  }),
  DEMO: setting(onOff, {
    fallback: 'off',
    unit: 'on or off',
    meaning:
      "serve a page at `/demo` that acts as a peer in the browser, and allow connections from pages of the broker's own origin",
  }),
  BROKER_KEY_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      "the file with the broker's ed25519 key, which peers pin; defaults to `.sealpost/broker.json`, which the broker creates at its first start",
  }),
  BROKER_CERTIFICATE_FILE: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      'the file with a certificate from `sealpost shard certify`, for a broker whose key is not the key that peers pin; the pinned key signs the certificate',
  }),
  LIMITS: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'enforce the limits on rates, connections, mailboxes and load; use `off` only for load tests',
  }),
  ...limitSettings,
  TRUSTED_PROXIES: setting(list('addresses or networks such as 10.0.0.0/8, separated by commas', network), {
    fallback: '',
    unit: 'address, …',
    meaning: "the proxies from which the broker accepts a header with the client's address",
  }),
  PROXY_HEADER: setting(oneOf('x-forwarded-for', 'forwarded'), {
    fallback: 'x-forwarded-for',
    unit: 'header',
    meaning:
      "the header that contains the client's address, `x-forwarded-for` or `forwarded`; the broker ignores the other header",
  }),
  ...attachmentSettings,
  LAG_MS_MAX: setting(ms(), {
    fallback: 1000,
    unit: 'ms',
    meaning: 'the broker is overloaded if the event loop lag exceeds this time in four consecutive measurements',
  }),
  MEMORY_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: 1024 * 1024 * 1024,
    unit: 'bytes',
    meaning:
      'the broker is overloaded if its memory use exceeds this size; it then admits no new connections and refuses sends with `busy`',
  }),
  STATEMENTS_WAITING_MAX: setting(count('statements'), {
    fallback: 2000,
    unit: 'statements',
    meaning: 'the broker is overloaded if more statements than this wait for a database connection',
  }),
  UNAUTHENTICATED_MAX: setting(count('connections'), {
    fallback: 1000,
    unit: 'connections',
    meaning: 'the maximum number of connections, from all addresses, that have not proven a key',
  }),
  LEASE_MS: setting(ms(LEASE_MS_MAX), {
    fallback: defaultQueueOptions.leaseMs,
    unit: 'ms',
    meaning:
      'how long a delivery is leased to its recipient; a delivery that is not settled within this time is pushed again',
  }),
  POLL_MS: setting(ms(), {
    fallback: defaultLimits.pollMs,
    unit: 'ms',
    meaning: 'the longest time between two claims for a connection',
  }),
  CHECK_MS: setting(ms(), {
    fallback: defaultLimits.checkMs,
    unit: 'ms',
    meaning:
      'how often the broker checks, at least, whether the member of a connection was revoked or has connected to another broker',
  }),
  CLAIM_PAUSE_MS: setting(ms(), {
    fallback: defaultClaimLoopOptions.tickMs,
    unit: 'ms',
    meaning: 'the shortest time between two claim statements',
  }),
  INSERT_LEASE: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning:
      'lease deliveries on insert, and push them to connected peers without a claim; use `off` only for benchmarks',
  }),
  BATCH_ROWS: setting(count('envelopes', 50_000), {
    fallback: defaultBatchLimits.appendsMax,
    unit: 'envelopes',
    meaning: 'the maximum number of envelopes in one commit',
  }),
  HEARTBEAT_MS: setting(count('milliseconds', COUNT_MAX, HEARTBEAT_MS_MIN), {
    fallback: defaultLimits.heartbeatMs,
    unit: 'ms',
    meaning:
      'the broker pings a peer that has sent no frame for this time, and ends a connection that has sent no frame or pong for three times as long',
  }),
  AUTH_WITHIN_MS: setting(ms(), {
    fallback: defaultLimits.authWithinMs,
    unit: 'ms',
    meaning: 'how long a client has to prove a key after it connects',
  }),
  CREDIT_MAX: setting(count('deliveries', 65_535), {
    fallback: defaultLimits.creditMax,
    unit: 'deliveries',
    meaning: 'the maximum number of unsettled deliveries on a connection',
  }),
  CREDIT_BYTES: setting(count('bytes', CREDIT_BYTES_MAX), {
    fallback: defaultLimits.creditBytes,
    unit: 'bytes',
    meaning:
      'the maximum total size of the unsettled deliveries on a connection; the buffer of a socket that is never read holds at most four times as much',
  }),
  MEMBERS_MAX: setting(count('members'), {
    fallback: 10_000,
    unit: 'members',
    meaning:
      'the maximum number of members of one mesh, including devices. The limit applies to invites; an operator can enrol further members',
  }),
  GROUPS_PER_OWNER: setting(count('groups', GROUPS_MAX), {
    fallback: 100,
    unit: 'groups',
    meaning:
      "the maximum number of groups, not counting deleted groups, that one user can own across all of the user's devices",
  }),
  POOLS_PER_OWNER: setting(count('pools', POOLS_MAX), {
    fallback: 100,
    unit: 'pools',
    meaning:
      "the maximum number of pools that one user can own across all of the user's devices; a deleted pool counts for one more day",
  }),
  POLLING_IDLE_MS: setting(ms(), {
    fallback: 60_000,
    unit: 'ms',
    meaning: 'how long a peer that polls over HTTP counts as connected after its last request',
  }),
  ENVELOPE_BYTES_MAX: setting(count('bytes', ENVELOPE_BYTES_MAX), {
    fallback: defaultLimits.envelopeBytesMax,
    unit: 'bytes',
    meaning: 'the maximum size of an envelope',
  }),
  TTL_SECONDS: setting(count('seconds'), {
    fallback: defaultLimits.ttlSecondsDefault,
    unit: 's',
    meaning: 'the default time to live of an envelope',
  }),
  TTL_SECONDS_MAX: setting(count('seconds'), {
    fallback: defaultLimits.ttlSecondsMax,
    unit: 's',
    meaning: 'the longest time to live that a sender can request',
  }),
  // Clients resend for half of this period, so it must outlast a short outage.
  DEDUPE_MS: setting(count('milliseconds', COUNT_MAX, 60_000), {
    fallback: defaultQueueOptions.dedupeMs,
    unit: 'ms',
    meaning: 'how long the broker recognizes a resend of an accepted envelope',
  }),
  FAILED_ATTEMPTS_MAX: setting(count('attempts', 32_767), {
    fallback: defaultQueueOptions.failedAttemptsMax,
    unit: 'attempts',
    meaning: 'the number of failed attempts after which a delivery becomes a dead letter',
  }),
  FAILED_ATTEMPTS_SPAN_MS: setting(ms(), {
    fallback: defaultQueueOptions.failedAttemptsSpanMs,
    unit: 'ms',
    meaning: 'the minimum time between the first and the last failed attempt of a delivery that becomes a dead letter',
  }),
  SWEEP_MS: setting(ms(), {
    fallback: 1000,
    unit: 'ms',
    meaning:
      'the pause between two sweeps, which remove expired and dead deliveries. All brokers on the database share one schedule. While sweeps find nothing, the pause grows to four times this value',
  }),
  DEAD_LETTER_SECONDS: setting(count('seconds'), {
    fallback: 30 * 86_400,
    unit: 's',
    meaning: 'how long a dead letter is stored, even if its recipient was not notified of it',
  }),
  DEAD_LETTERS_PER_SENDER_MAX: setting(count('dead letters'), {
    fallback: 1000,
    unit: 'dead letters',
    meaning:
      "the maximum number of dead letters from one user, across all of the user's devices, for one recipient; the oldest dead letters are deleted first",
  }),
  DEAD_LETTER_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: 8 * 1024 * 1024,
    unit: 'bytes',
    meaning:
      'the maximum total size of the dead letters from one user for one recipient; the newest dead letter is always stored',
  }),
  SNAPSHOT_SECONDS_MAX: setting(count('seconds'), {
    fallback: 300,
    unit: 's',
    meaning:
      'report a problem if a transaction holds its snapshot for longer than this, because an old snapshot prevents Postgres from vacuuming the queue',
  }),
  DEAD_ROWS_MAX: setting(count('rows'), {
    fallback: 200_000,
    unit: 'rows',
    meaning: 'report a problem if the hot tables have more dead rows than this',
  }),
  PREPARED_SENDS: setting(onOff, {
    fallback: 'on',
    unit: 'on or off',
    meaning: 'send the messages that applications store with `sealpost.send` in their own transactions',
  }),
  ...historySettings,
  LOG_LEVEL: setting(oneOf('debug', 'info', 'warn', 'error', 'silent'), {
    fallback: 'info',
    unit: 'level',
    meaning: 'the lowest level that the broker logs: `debug`, `info`, `warn`, `error` or `silent`',
  }),
  ...traceSettings,
} satisfies Record<string, Setting<unknown>>

type Name = keyof typeof settings
type Parsed = { readonly [N in Name]: z.output<(typeof settings)[N]['parse']> }
export type Config = Omit<Parsed, 'ADMIN_PORT'> & { readonly ADMIN_PORT: number }

type ConfigResult = { ok: true; config: Config } | { ok: false; errors: string[] }

/** Reads each `NAME`, or the file in `NAME_FILE`. Reports all errors together, one sentence each. */
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
    errors.push(`TTL_SECONDS (${TTL_SECONDS}) must not exceed TTL_SECONDS_MAX (${TTL_SECONDS_MAX}).`)
  const { BUS, NATS_URL } = values as Partial<Config>
  if (BUS === 'nats' && NATS_URL?.length === 0) errors.push('BUS=nats requires NATS_URL.')
  errors.push(...attachmentErrors(values as Partial<Config>), ...tlsErrors(values as Partial<Config>))
  return errors.length > 0 ? { ok: false, errors } : { ok: true, config: values as Config }
}

function textOf(name: string, row: Setting<unknown>, env: Record<string, string | undefined>, errors: string[]) {
  const path = row.unit === 'path' ? undefined : env[`${name}_FILE`]
  try {
    const text = path ? readFileSync(path, 'utf8').trim() : env[name]
    if (text !== undefined && text !== '') return text
  } catch {
    errors.push(`Can't read the file in ${name}_FILE.`)
    return undefined
  }
  if (row.fallback === null) errors.push(`${name} is not set: ${row.meaning.replaceAll('`', '')}.`)
  return row.fallback ?? undefined
}

/** Returns a line per setting, without secrets. */
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
    ...(config.LIMITS === 'on' ? engineRates(config) : { rate: null, byteRate: null, mailbox: null, mesh: null }),
    isInsertLeaseOn: config.INSERT_LEASE === 'on',
  }
}

/** Renders the configuration reference page and the output of `--help` from the table above. */
export function configReference(): string {
  const rows = Object.entries(settings).map(([name, row]) => {
    const fallback = row.fallback === null ? 'must be set' : row.fallback === '' ? '' : `\`${row.fallback}\``
    return `| \`${name}\` | ${row.unit} | ${fallback} | ${row.meaning} |`
  })
  return `${[...HEAD, ...rows].join('\n')}\n`
}

/** Returns the output of `--help`: each setting with its unit and default. */
export function configHelp(): string {
  const width = Math.max(...Object.keys(settings).map((name) => name.length))
  const rows = Object.entries(settings).map(([name, { fallback, unit, meaning }]) => {
    const unset = fallback === null ? 'must be set' : fallback && `default ${fallback}`
    const remark = [unit, unset].filter(Boolean).join(', ')
    return `  ${name.padEnd(width)}  ${meaning.replaceAll('`', '')} (${remark})`
  })
  return [...HELP_HEAD, ...rows, ...HELP_FOOT].join('\n')
}

const HELP_HEAD = [
  'Usage: sealpost broker [--print-config | --health | --help]',
  '',
  'Set these environment variables to configure the broker:',
  '',
]
const HELP_FOOT = [
  '',
  'You can also set each variable except a path as NAME_FILE, the path of a file that contains the value.',
  '--print-config prints the effective values, with secrets hidden.',
  '--health exits with code 0 if the running broker with the same settings is ready.',
]

const HEAD = [
  '<!-- Generated by `bun scripts/reference.ts` from apps/broker/src/config/config.ts; a test compares them. -->',
  '# Configuration',
  '',
  'The broker reads its configuration only from the environment. If values are invalid, it reports all of them, one sentence',
  'each, and exits with code 2. `sealpost broker --print-config` prints the effective values, with secrets hidden.',
  '',
  'You can also set each variable except a path as `NAME_FILE`, the path of a file that contains the value: use',
  '`DATABASE_URL_FILE` for a mounted secret. An empty variable counts as not set.',
  '',
  '| Variable | Unit | Default | Meaning |',
  '|---|---|---|---|',
]
