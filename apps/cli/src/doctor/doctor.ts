/**
 * `sealpost doctor` checks everything between this profile and a delivered message; with `--database`, what an
 * operator set up.
 */

import { readFile, stat } from 'node:fs/promises'
import { settingErrors } from '@sealpost/broker-program'
import { readStalledMoves } from '@sealpost/mesh-move'
import { checkServer, type Database, DatabaseError, openDatabase } from '@sealpost/pg'
import { claimPlanOf } from '@sealpost/queue/claim-plan'
import { certificateUntrusted, connect, type Peer, SealpostError } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { missingIndexes, p95BoundMs, readDatabaseStats, readServerState, readStatementStats } from '@sealpost/store'
import { Command } from 'commander'
import { type BrokerHealth, checkBroker, dialWarning, UNENCRYPTED } from '../broker/broker-supervisor.ts'
import { escapeName, type Paint } from '../output.ts'
import type { Membership } from '../profile/profile.ts'
import { REACH_WITHIN_MS } from '../session/peer-session.ts'
import { startSessionDaemon } from '../session/session-daemon.ts'
import type { EnvironmentVariables } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'

export function doctorCommand(run: RunAction): Command {
  return new Command('doctor')
    .description('check files, clock, broker, handshake, and a message to yourself; or the database of a broker')
    .option('--database', 'check settings, machine and the database that DATABASE_URL names, instead')
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
  if (failed > 0) throw new OperatingError('doctor_failed', `${failed} of the checks failed.`)
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
  /** For scripts that look for this warning. */
  readonly code?: string
}

const CLOCK_OFF_MAX_MS = 5_000
const ROUND_TRIP_WITHIN_MS = 10_000
const ROUND_TRIP_TTL_SECONDS = 60

/** Each check depends on the previous ones; ends when no further check is possible. */
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
    return { name: 'keys', outcome: 'warning', detail: `The folder ${profile.folder} is open to others: chmod 700 it.` }
  return { name: 'keys', outcome: 'ok', detail: `${profile.keyFile}, readable by its owner only` }
}

function membershipCheck(found: Membership | undefined | Error, { profile }: Shell): DoctorCheck {
  const name = 'membership'
  if (found instanceof Error) return { name, outcome: 'failed', detail: found.message }
  if (!found)
    return { name, outcome: 'failed', detail: `The profile ${profile.name} belongs to no mesh: sealpost join INVITE` }
  return { name, outcome: 'ok', detail: `${found.name || 'a member'} in the mesh ${found.meshId}` }
}

function transportCheck({ url }: Membership): DoctorCheck {
  const warning = dialWarning(url)
  if (warning !== null) return { name: 'transport', outcome: 'warning', detail: warning, code: UNENCRYPTED }
  const isEncrypted = /^(wss|https):/i.test(url)
  const detail = isEncrypted ? 'encrypted by TLS on the way' : 'not encrypted, and on this machine only'
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
  if (!live) return yield { name: 'broker', outcome: 'failed', detail: `Nobody answers at ${url}.` }
  if (!ready)
    yield { name: 'broker', outcome: 'failed', detail: 'It runs, but its database does not answer, or it is stopping.' }
  else yield { name: 'broker', outcome: 'ok', detail: `${url}, version ${version?.version ?? 'unknown'}` }
  if (version && version.brokerKey !== brokerKey)
    yield { name: 'broker key', outcome: 'failed', detail: 'Another broker than the one of your invite answers there.' }
  if (version)
    yield version.durability === 'fsync'
      ? { name: 'durability', outcome: 'ok', detail: 'fsync: what is acknowledged is on disk' }
      : { name: 'durability', outcome: 'warning', detail: `${version.durability}: acknowledged messages may be lost` }
  if (clockAheadMs === null) return
  const seconds = Math.round(Math.abs(clockAheadMs) / 1000)
  yield Math.abs(clockAheadMs) <= CLOCK_OFF_MAX_MS
    ? { name: 'clock', outcome: 'ok', detail: 'within a few seconds of the broker' }
    : {
        name: 'clock',
        outcome: 'warning',
        detail: `${seconds} s ${clockAheadMs > 0 ? 'behind' : 'ahead of'} the broker: expiry of invites and key bindings goes by it`,
      }
}

/** Opens a session of its own, which would end that of another command: skipped if there is one. */
async function* sessionChecks(shell: Shell, { url, brokerKey, meshId }: Membership): AsyncGenerator<DoctorCheck> {
  const daemon = await startSessionDaemon(shell.profile)
  if (!daemon)
    return yield { name: 'handshake', outcome: 'skipped', detail: 'Another command of this profile holds its session.' }
  try {
    const { identity, formerBoxKeys } = await shell.profile.readKeys()
    const signal = AbortSignal.any([shell.signal, AbortSignal.timeout(REACH_WITHIN_MS)])
    await using peer = await connect({ url, brokerKey, meshId, identity, formerBoxKeys, signal })
    yield { name: 'handshake', outcome: 'ok', detail: 'the broker proved its key, and knows yours' }
    yield await attempt('round trip', () => checkRoundTrip(peer, shell.signal))
  } catch (error) {
    if (!(error instanceof SealpostError)) throw error
    yield { name: 'handshake', outcome: 'failed', detail: `${error.message} (${error.code})` }
  } finally {
    await daemon.release()
  }
}

/** Other messages that arrive meanwhile stay unsettled and are redelivered. */
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
/** A broker needs about fifty besides its connections. */
const DESCRIPTORS_MIN = 4_096
/** The broker's default alarm limits. */
const SNAPSHOT_SECONDS_MAX = 300
const DEAD_ROWS_MAX = 200_000
const HOT_TABLES = ['message_queue', 'session', 'sender_mark']
const CONNECTIONS_SHARE_MAX = 0.8
const STATEMENT_P95_MS_MAX = 100
/** Fewer calls give no meaningful percentile. */
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
  ['indexes', indexes],
  ['claim plan', claimPlan],
  ['pooler', pooler],
  ['encryption', encryption],
  ['connections', connections],
  ['statements', statements],
]

/**
 * A check that throws counts as failed, and the others continue. @throws DatabaseError if the database does not
 * answer
 */
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

/** Behind a pooler no further check is possible. */
function pooledOrThrow(error: unknown): DoctorCheck {
  if (error instanceof DatabaseError && error.code === 'db_pooled') return { name: 'pooler', ...failed(error.message) }
  throw error
}

/** Checks the settings in this environment, which may differ from the broker's. */
async function settings(environment: EnvironmentVariables): Promise<Found> {
  const errors = await settingErrors(environment)
  return errors.length === 0
    ? ok('a broker would start with the settings of this environment')
    : failed(errors.join(' '))
}

async function fileLimit(): Promise<Found> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '')
  const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? []
  if (!soft) return { outcome: 'skipped', detail: 'This system does not tell.' }
  if (soft === 'unlimited' || Number(soft) >= DESCRIPTORS_MIN) return ok(`${soft} open files here`)
  return warning(
    `${soft} open files here, one for each connection: raise \`ulimit -n\`, or LimitNOFILE of the broker's unit`,
  )
}

async function durability(db: Database): Promise<Found> {
  const { version } = await checkServer(db)
  return ok(`PostgreSQL ${version}: fsync, full_page_writes and synchronous_commit are on`)
}

async function clock(db: Database): Promise<Found> {
  const { clockAheadMs } = await readServerState(db)
  const off = `${Math.round(Math.abs(clockAheadMs))} ms ${clockAheadMs > 0 ? 'ahead of' : 'behind'} this machine's`
  if (Math.abs(clockAheadMs) <= DATABASE_CLOCK_OFF_MAX_MS) return ok('that of the database agrees with this machine')
  return warning(`that of the database is ${off}: leases and expiry go by it, so let both keep time (NTP)`)
}

async function autovacuum(db: Database): Promise<Found> {
  const { autovacuum: isOn } = await readServerState(db)
  return isOn ? ok('on') : failed('off: dead rows make claims slower and slower; set autovacuum and track_counts to on')
}

async function deadRows(db: Database): Promise<Found> {
  const { tables } = await readDatabaseStats(db)
  const dead = tables.filter(({ name }) => HOT_TABLES.includes(name)).reduce((sum, each) => sum + each.deadRows, 0)
  const detail = `${dead} in the hot tables`
  if (dead <= DEAD_ROWS_MAX) return ok(detail)
  return warning(`${detail}: if nothing holds a snapshot, raise autovacuum_vacuum_cost_limit`)
}

async function moves(db: Database): Promise<Found> {
  const { count, oldestMs } = await readStalledMoves(db)
  if (count === 0) return ok('no mesh is stuck on its way to another cell')
  const since = `${Math.round(oldestMs / 1000)} s`
  return failed(
    `the mover of ${count === 1 ? 'a mesh' : `${count} meshes`} died ${since} after the freeze or earlier, and nobody can send: run \`sealpost mesh move\` again, or undo it`,
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
      `process ${oldest.pid} (${oldest.application || 'without a name'}, ${oldest.state}) has held one for ${Math.round(oldest.seconds)} s, and no dead row goes: select pg_terminate_backend(${oldest.pid})`,
    )
  if (abandonedSlots.length > 0)
    return warning(
      `nobody reads the replication slot ${abandonedSlots.join(', ')}, which keeps rows and WAL: select pg_drop_replication_slot(…)`,
    )
  if (preparedTransactions > 0)
    return warning(
      `${preparedTransactions} prepared transactions hold theirs: select * from pg_prepared_xacts, and end them`,
    )
  return ok(oldest ? `the oldest is ${Math.round(oldest.seconds)} s old` : 'nobody holds one')
}

async function indexes(db: Database): Promise<Found> {
  const missing = await missingIndexes(db)
  if (missing.length === 0) return ok('all there')
  return failed(`missing, or left half made: ${missing.join(', ')}. Run sealpost db migrate, or reindex them`)
}

async function claimPlan(_: Database, url: string): Promise<Found> {
  const { isGood, scanned } = await claimPlanOf(url)
  if (isGood) return ok('walks its indexes')
  const detail =
    scanned.length > 0 ? `reads ${scanned.join(', ')} from end to end` : 'does not walk the key of the queue'
  return failed(`${detail}: is an index missing, or a plan setting changed for this account (alter role … reset all)?`)
}

/** An open connection has already passed this check. */
async function pooler(): Promise<Found> {
  return ok('each connection has a server process of its own')
}

async function encryption({ transport }: Database): Promise<Found> {
  const { protocol, verified, isLocal, host } = transport!
  if (protocol === null && isLocal) return ok('none, and nothing leaves this machine')
  if (protocol === null)
    return warning(
      `no TLS to ${host.host}: anyone on the network path can read who writes to whom and act as this account. Set sslmode=verify-full and sslrootcert in the URL`,
    )
  const remarks = {
    none: 'the certificate of the server is not verified; sslmode=verify-full does that',
    chain: 'the authority of the certificate is verified, the host name is not',
    name: 'the certificate is verified',
  }
  return ok(`${protocol}, ${remarks[verified]}`)
}

async function connections(db: Database): Promise<Found> {
  const { connections: used, connectionsMax, ownConnections } = await readDatabaseStats(db)
  const detail = `${used} of ${connectionsMax} in use, ${ownConnections} of them ours`
  if (used <= CONNECTIONS_SHARE_MAX * connectionsMax) return ok(detail)
  return warning(`${detail}: a broker holds up to seventeen; fewer, larger brokers, or more max_connections`)
}

async function statements(db: Database): Promise<Found> {
  const figures = await readStatementStats(db, STATEMENTS)
  if (!figures)
    return {
      outcome: 'skipped',
      detail:
        'pg_stat_statements is not at hand: add it to shared_preload_libraries, and `create extension pg_stat_statements`',
    }
  const [slowest] = figures.filter(({ calls }) => calls >= CALLS_MIN).sort((a, b) => p95BoundMs(b) - p95BoundMs(a))
  if (!slowest) return ok('too few calls to say anything')
  const { text, calls, meanMs, maxMs } = slowest
  const bound = p95BoundMs(slowest)
  const figure = (ms: number) => ms.toFixed(1)
  const detail = `slowest: p95 at most ${figure(bound)} ms (by mean and deviation), mean ${figure(meanMs)}, longest ${figure(maxMs)}, ${calls} calls: ${text.slice(0, 60).trim()}`
  return bound <= STATEMENT_P95_MS_MAX
    ? ok(detail)
    : warning(`${detail}. Over ${STATEMENT_P95_MS_MAX} ms: see "Everything is slow" in docs/OPERATIONS.md`)
}
