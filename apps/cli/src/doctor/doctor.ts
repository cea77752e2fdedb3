/**
 * `sealpost doctor` checks everything between this profile and a delivered message; `--database` adds an operator's
 * setup.
 */

import { readFile, stat } from 'node:fs/promises'
import { settingErrors } from '@sealpost/broker-program'
import { readStalledMoves } from '@sealpost/mesh-move'
import { checkServer, type Database, DatabaseError, openDatabase } from '@sealpost/pg'
import { claimPlanOf } from '@sealpost/queue/claim-plan'
import { certificateUntrusted, connect, type Peer, SealpostError } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import {
  missingIndexes,
  p95BoundMs,
  readDatabaseStats,
  readPreparedBacklog,
  readServerState,
  readStatementStats,
} from '@sealpost/store'
import { Command } from 'commander'
import { type BrokerHealth, checkBroker, dialWarning, UNENCRYPTED } from '../broker/broker-supervisor.ts'
import { escapeName, type Paint } from '../output.ts'
import type { Membership } from '../profile/profile.ts'
import { sentenceOf } from '../profile/protect.ts'
import { REACH_WITHIN_MS } from '../session/peer-session.ts'
import { startSessionDaemon } from '../session/session-daemon.ts'
import type { EnvironmentVariables } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'

export function doctorCommand(run: RunAction): Command {
  return new Command('doctor')
    .description(
      "Check the keys, the clock, the broker and the handshake, and send a message to yourself. With --database, check a broker's database instead.",
    )
    .option('--database', 'check the broker settings, the machine and the database in DATABASE_URL')
    .addHelpText(
      'after',
      examples('sealpost doctor', 'sealpost doctor --profile work --json', 'sealpost doctor --database'),
    )
    .action(run(doctor))
}

async function doctor(shell: Shell, { database }: { database?: boolean }): Promise<void> {
  const { output, settings } = shell
  const checks = database ? checkDatabase(settings.databaseUrl(), settings.environment) : checkAll(shell)
  let failed = 0
  for await (const check of checks) {
    if (check.outcome === 'failed') failed += 1
    await output.result(check, () => lineOf(check, output.paint))
  }
  if (failed > 0) throw new OperatingError('doctor_failed', `${failed} checks failed.`)
}

function lineOf({ name, outcome, detail }: DoctorCheck, paint: Paint): string {
  const marks = {
    ok: paint.green('ok  '),
    warning: paint.yellow('warn'),
    failed: paint.red('FAIL'),
    skipped: paint.dim('skip'),
  }
  return `${marks[outcome]}  ${name.padEnd(11)}  ${escapeName(detail)}`
}

export interface DoctorCheck {
  readonly name: string
  readonly outcome: 'ok' | 'warning' | 'failed' | 'skipped'
  readonly detail: string
  /** A stable code for scripts. */
  readonly code?: string
}

const CLOCK_OFF_MAX_MS = 5_000
const ROUND_TRIP_WITHIN_MS = 10_000
const ROUND_TRIP_TTL_SECONDS = 60

/** Runs all checks. Each depends on the previous ones, so they end when none is possible. */
export async function* checkAll(shell: Shell): AsyncGenerator<DoctorCheck> {
  const keys = await attempt('keys', () => checkKeys(shell))
  yield keys
  const found = await shell.profile.findMembership().catch((error: Error) => error)
  yield membershipCheck(found, shell)
  if (keys.outcome === 'failed' || !found || found instanceof Error) return
  yield transportCheck(found)
  const health = await checkBroker(found.url, shell.signal)
  yield* brokerChecks(health, found)
  if (health.live) yield* sessionChecks(shell, found)
}

async function attempt(name: string, check: () => Promise<DoctorCheck>): Promise<DoctorCheck> {
  try {
    return await check()
  } catch (error) {
    return { name, outcome: 'failed', detail: (error as Error).message }
  }
}

async function checkKeys({ profile }: Shell): Promise<DoctorCheck> {
  const { warning } = await profile.readKeys()
  if (warning) return { name: 'keys', outcome: 'warning', detail: warning.message }
  const { mode } = await stat(profile.folder)
  if (process.platform !== 'win32' && (mode & 0o077) !== 0)
    return {
      name: 'keys',
      outcome: 'warning',
      detail: `Other users can access the folder ${profile.folder}. Run: chmod 700 ${profile.folder}`,
    }
  const protection = sentenceOf(await profile.findLock())
  return { name: 'keys', outcome: 'ok', detail: `only its owner can read ${profile.keyFile}, which is ${protection}` }
}

function membershipCheck(found: Membership | undefined | Error, { profile }: Shell): DoctorCheck {
  const name = 'membership'
  if (found instanceof Error) return { name, outcome: 'failed', detail: found.message }
  if (!found)
    return {
      name,
      outcome: 'failed',
      detail: `The profile ${profile.name} belongs to no mesh. Run: sealpost join INVITE`,
    }
  return { name, outcome: 'ok', detail: `${found.name || 'a member'} of the mesh ${found.meshId}` }
}

function transportCheck({ url }: Membership): DoctorCheck {
  const warning = dialWarning(url)
  if (warning !== null) return { name: 'transport', outcome: 'warning', detail: warning, code: UNENCRYPTED }
  const isEncrypted = /^(wss|https):/i.test(url)
  const detail = isEncrypted
    ? 'TLS encrypts the connection'
    : 'the connection is not encrypted, and stays on this machine'
  return { name: 'transport', outcome: 'ok', detail }
}

function* brokerChecks(
  { live, ready, version, clockAheadMs, certificateErrorCode }: BrokerHealth,
  { url, brokerKey }: Membership,
): Generator<DoctorCheck> {
  if (certificateErrorCode !== null) {
    const { message, code } = certificateUntrusted(certificateErrorCode)
    return yield { name: 'broker', outcome: 'failed', detail: message, code }
  }
  if (!live) return yield { name: 'broker', outcome: 'failed', detail: `No broker responds at ${url}.` }
  if (!ready)
    yield {
      name: 'broker',
      outcome: 'failed',
      detail: 'The broker is running, but its database does not respond, or the broker is stopping.',
    }
  else yield { name: 'broker', outcome: 'ok', detail: `${url}, version ${version?.version ?? 'unknown'}` }
  if (version && version.brokerKey !== brokerKey)
    yield {
      name: 'broker key',
      outcome: 'failed',
      detail: 'The broker at this URL has a different key than the broker in your invite.',
    }
  if (version)
    yield version.durability === 'fsync'
      ? { name: 'durability', outcome: 'ok', detail: 'fsync: acknowledged messages are on disk' }
      : {
          name: 'durability',
          outcome: 'warning',
          detail: `${version.durability}: a crash may lose acknowledged messages`,
        }
  if (clockAheadMs === null) return
  const seconds = Math.round(Math.abs(clockAheadMs) / 1000)
  yield Math.abs(clockAheadMs) <= CLOCK_OFF_MAX_MS
    ? { name: 'clock', outcome: 'ok', detail: "the clock is within a few seconds of the broker's" }
    : {
        name: 'clock',
        outcome: 'warning',
        detail: `the clock is ${seconds} s ${clockAheadMs > 0 ? 'behind' : 'ahead of'} the broker's, which decides when invites and keys expire`,
      }
}

/** Checks a new session, unless that would end another command's. */
async function* sessionChecks(shell: Shell, { url, brokerKey, meshId }: Membership): AsyncGenerator<DoctorCheck> {
  const daemon = await startSessionDaemon(shell.profile)
  if (!daemon)
    return yield {
      name: 'handshake',
      outcome: 'skipped',
      detail: 'Another command is using the session of this profile.',
    }
  try {
    const { identity, formerBoxKeys } = await shell.profile.readKeys()
    const signal = AbortSignal.any([shell.signal, AbortSignal.timeout(REACH_WITHIN_MS)])
    await using peer = await connect({ url, brokerKey, meshId, identity, formerBoxKeys, signal })
    yield { name: 'handshake', outcome: 'ok', detail: 'the broker proved its key and accepted yours' }
    yield await attempt('round trip', () => checkRoundTrip(peer, shell.signal))
  } catch (error) {
    if (!(error instanceof SealpostError)) throw error
    yield { name: 'handshake', outcome: 'failed', detail: `${error.message} (${error.code})` }
  } finally {
    await daemon.release()
  }
}

/** Sends a message to this peer itself. Other messages stay unsettled. */
async function checkRoundTrip(peer: Peer, signal: AbortSignal): Promise<DoctorCheck> {
  const startedAtMs = performance.now()
  const mark = crypto.randomUUID()
  const arrived = Promise.withResolvers<void>()
  peer.onMessage((message) => {
    const isOurs = message.sender === peer.key && message.text() === mark
    if (isOurs) arrived.resolve()
    return isOurs ? undefined : new Promise(() => undefined)
  })
  const within = AbortSignal.any([signal, AbortSignal.timeout(ROUND_TRIP_WITHIN_MS)])
  await abortable(peer.send(peer.key, mark, { priority: 'now', ttlSeconds: ROUND_TRIP_TTL_SECONDS }), within)
  await abortable(arrived.promise, within)
  const tookMs = Math.round(performance.now() - startedAtMs)
  return { name: 'round trip', outcome: 'ok', detail: `a message to yourself was stored and delivered in ${tookMs} ms` }
}

type Found = Omit<DoctorCheck, 'name'>
type Look = (db: Database, url: string) => Promise<Found>

const DATABASE_CLOCK_OFF_MAX_MS = 1_000
/** The minimum limit of descriptors. A broker needs about fifty in addition to its connections. */
const DESCRIPTORS_MIN = 4_096
/** The broker's default alarm limits. */
const SNAPSHOT_SECONDS_MAX = 300
const DEAD_ROWS_MAX = 200_000
const PREPARED_WAIT_MS_MAX = 60_000
const HOT_TABLES = ['message_queue', 'session', 'sender_mark']
const CONNECTIONS_SHARE_MAX = 0.8
const STATEMENT_P95_MS_MAX = 100
/** The number of calls below which a percentile means nothing. */
const CALLS_MIN = 20
const STATEMENTS = 200

const ok = (detail: string): Found => ({ outcome: 'ok', detail })
const warning = (detail: string): Found => ({ outcome: 'warning', detail })
const failed = (detail: string): Found => ({ outcome: 'failed', detail })

const LOOKS: readonly (readonly [name: string, look: Look])[] = [
  ['durability', durability],
  ['db clock', clock],
  ['autovacuum', autovacuum],
  ['dead rows', deadRows],
  ['snapshots', snapshots],
  ['moves', moves],
  ['prepared', preparedSends],
  ['indexes', indexes],
  ['claim plan', claimPlan],
  ['pooler', pooler],
  ['encryption', encryption],
  ['connections', connections],
  ['statements', statements],
]

/** Checks the database. A check that throws has failed. @throws DatabaseError if the database does not respond */
async function* checkDatabase(url: string, environment: EnvironmentVariables): AsyncGenerator<DoctorCheck> {
  yield { name: 'settings', ...(await settings(environment)) }
  yield { name: 'file limit', ...(await fileLimit()) }
  const db = await openDatabase(url, { connections: 1, applicationName: 'sealpost doctor' }).catch(pooledOrThrow)
  if (!('run' in db)) return yield db
  try {
    for (const [name, look] of LOOKS)
      yield { name, ...(await look(db, url).catch((error: Error) => failed(error.message))) }
  } finally {
    await db.close()
  }
}

/** Returns a failed check for a connection pooler, behind which no check is possible. */
function pooledOrThrow(error: unknown): DoctorCheck {
  if (error instanceof DatabaseError && error.code === 'db_pooled') return { name: 'pooler', ...failed(error.message) }
  throw error
}

/** Checks this environment's settings, which may differ from the broker's. */
async function settings(environment: EnvironmentVariables): Promise<Found> {
  const errors = await settingErrors(environment)
  return errors.length === 0 ? ok('the settings in this environment are valid') : failed(errors.join(' '))
}

async function fileLimit(): Promise<Found> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
  const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? []
  if (!soft) return { outcome: 'skipped', detail: 'This system does not report the limit.' }
  if (soft === 'unlimited' || Number(soft) >= DESCRIPTORS_MIN) return ok(`up to ${soft} open files`)
  return warning(
    `up to ${soft} open files, and each connection needs one: raise \`ulimit -n\`, or LimitNOFILE of the broker's unit`,
  )
}

async function durability(db: Database): Promise<Found> {
  const { version } = await checkServer(db)
  return ok(`PostgreSQL ${version}: fsync, full_page_writes and synchronous_commit are on`)
}

async function clock(db: Database): Promise<Found> {
  const { clockAheadMs } = await readServerState(db)
  const off = `${Math.round(Math.abs(clockAheadMs))} ms ${clockAheadMs > 0 ? 'ahead of' : 'behind'} this machine's`
  if (Math.abs(clockAheadMs) <= DATABASE_CLOCK_OFF_MAX_MS)
    return ok("the clock of the database agrees with this machine's")
  return warning(
    `the clock of the database is ${off}, and it decides when leases and messages expire: synchronize both by NTP`,
  )
}

async function autovacuum(db: Database): Promise<Found> {
  const { autovacuum: isOn } = await readServerState(db)
  return isOn
    ? ok('on')
    : failed('autovacuum is off, so dead rows accumulate and slow down claims: set autovacuum and track_counts to on')
}

async function deadRows(db: Database): Promise<Found> {
  const { tables } = await readDatabaseStats(db)
  const dead = tables.filter(({ name }) => HOT_TABLES.includes(name)).reduce((sum, each) => sum + each.deadRows, 0)
  const detail = `${dead} dead rows in the hot tables`
  if (dead <= DEAD_ROWS_MAX) return ok(detail)
  return warning(`${detail}: if nothing holds a snapshot, raise autovacuum_vacuum_cost_limit`)
}

async function moves(db: Database): Promise<Found> {
  const { count, oldestMs } = await readStalledMoves(db)
  if (count === 0) return ok('no move of a mesh has stalled')
  const since = `${Math.round(oldestMs / 1000)} s`
  return failed(
    `the move of ${count === 1 ? 'a mesh' : `${count} meshes`} stopped at least ${since} ago, and its members can't send: run \`sealpost mesh move\` again, or undo the move`,
  )
}

async function preparedSends(db: Database): Promise<Found> {
  const { waiting, oldestMs } = await readPreparedBacklog(db)
  if (oldestMs <= PREPARED_WAIT_MS_MAX) return ok(`${waiting} prepared sends are waiting`)
  return warning(
    `${waiting} prepared sends are waiting, the oldest for ${Math.round(oldestMs / 1000)} s: check that a broker runs with PREPARED_SENDS=on, and that it may read prepared_send (\`sealpost db prepare\`)`,
  )
}

async function snapshots(db: Database): Promise<Found> {
  const [{ snapshots: holders }, { abandonedSlots, preparedTransactions }] = await Promise.all([
    readDatabaseStats(db),
    readServerState(db),
  ])
  const [oldest] = holders
  if (oldest && oldest.seconds > SNAPSHOT_SECONDS_MAX)
    return warning(
      `process ${oldest.pid} (${oldest.application || 'no name'}, ${oldest.state}) has held a snapshot for ${Math.round(oldest.seconds)} s, so vacuum can't remove dead rows: select pg_terminate_backend(${oldest.pid})`,
    )
  if (abandonedSlots.length > 0)
    return warning(
      `the replication slot ${abandonedSlots.join(', ')} is inactive and retains rows and WAL: select pg_drop_replication_slot(…)`,
    )
  if (preparedTransactions > 0)
    return warning(
      `${preparedTransactions} prepared transactions hold snapshots: select * from pg_prepared_xacts, then commit or roll them back`,
    )
  return ok(oldest ? `the oldest snapshot is ${Math.round(oldest.seconds)} s old` : 'no process holds a snapshot')
}

async function indexes(db: Database): Promise<Found> {
  const missing = await missingIndexes(db)
  if (missing.length === 0) return ok('all indexes exist')
  return failed(`missing or invalid: ${missing.join(', ')}. Run sealpost db migrate, or reindex them`)
}

async function claimPlan(_: Database, url: string): Promise<Found> {
  const { isGood, scanned } = await claimPlanOf(url)
  if (isGood) return ok('the claim statement uses its indexes')
  const detail =
    scanned.length > 0
      ? `the claim statement scans the whole of ${scanned.join(', ')}`
      : 'the claim statement does not use the primary key of the queue'
  return failed(
    `${detail}: check for a missing index or a changed planner setting of this account (alter role … reset all)`,
  )
}

/** Always passes, because opening a connection performs this check. */
async function pooler(): Promise<Found> {
  return ok('no pooler: each connection has its own server process')
}

async function encryption({ transport }: Database): Promise<Found> {
  const { protocol, verified, isLocal, host } = transport!
  if (protocol === null && isLocal) return ok('the connection is not encrypted, and stays on this machine')
  if (protocol === null)
    return warning(
      `the connection to ${host.host} does not use TLS: anyone on the network path can read who writes to whom and act as this account. Set sslmode=verify-full and sslrootcert in the URL`,
    )
  const remarks = {
    none: "the server's certificate is not verified; set sslmode=verify-full",
    chain: "the certificate's authority is verified, but not its host name",
    name: 'the certificate is verified',
  }
  return ok(`${protocol}, ${remarks[verified]}`)
}

async function connections(db: Database): Promise<Found> {
  const { connections: used, connectionsMax, ownConnections } = await readDatabaseStats(db)
  const detail = `${used} of ${connectionsMax} connections are in use, ${ownConnections} of them by Sealpost`
  if (used <= CONNECTIONS_SHARE_MAX * connectionsMax) return ok(detail)
  return warning(`${detail}: a broker holds up to 17; run fewer, larger brokers, or raise max_connections`)
}

async function statements(db: Database): Promise<Found> {
  const figures = await readStatementStats(db, STATEMENTS)
  if (!figures)
    return {
      outcome: 'skipped',
      detail:
        'pg_stat_statements is not installed: add it to shared_preload_libraries, and run `create extension pg_stat_statements`',
    }
  const [slowest] = figures.filter(({ calls }) => calls >= CALLS_MIN).sort((a, b) => p95BoundMs(b) - p95BoundMs(a))
  if (!slowest) return ok('no statement has enough calls to judge')
  const { text, calls, meanMs, maxMs } = slowest
  const bound = p95BoundMs(slowest)
  const figure = (ms: number) => ms.toFixed(1)
  const detail = `slowest statement: p95 at most ${figure(bound)} ms (from mean and deviation), mean ${figure(meanMs)} ms, maximum ${figure(maxMs)} ms, ${calls} calls: ${text.slice(0, 60).trim()}`
  return bound <= STATEMENT_P95_MS_MAX
    ? ok(detail)
    : warning(`${detail}. Over ${STATEMENT_P95_MS_MAX} ms: see "Everything is slow" in docs/OPERATIONS.md`)
}
