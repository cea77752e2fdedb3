/** The checks of `doctor --database`: what an operator's settings, machine and server may have wrong, and what to do about it. */
import { readFile } from 'node:fs/promises'
import { settingErrors } from '@sealpost/broker-program'
import { readStalledMoves } from '@sealpost/mesh-move'
import { checkServer, type Database, DatabaseError, openDatabase } from '@sealpost/pg'
import { claimPlanOf } from '@sealpost/queue/claim-plan'
import { missingIndexes, p95BoundMs, readDatabaseStats, readServerState, readStatementStats } from '@sealpost/store'
import type { EnvironmentVariables } from '../settings.ts'
import type { DoctorCheck } from './checks.ts'

type Found = Omit<DoctorCheck, 'name'>
type Look = (db: Database, url: string) => Promise<Found>

const CLOCK_OFF_MAX_MS = 1_000
/** Beside those of clients a broker has some fifty. */
const DESCRIPTORS_MIN = 4_096
/** What a broker takes for an alarm, unless it is told otherwise. */
const SNAPSHOT_SECONDS_MAX = 300
const DEAD_ROWS_MAX = 200_000
const HOT_TABLES = ['message_queue', 'session', 'sender_mark']
/** Of the server's connections. */
const CONNECTIONS_SHARE_MAX = 0.8
const STATEMENT_P95_MS_MAX = 100
/** Of fewer calls a percentile says little. */
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

/** One that can't be made is told, and the others go on. @throws DatabaseError when the database does not answer at all */
export async function* checkDatabase(url: string, environment: EnvironmentVariables): AsyncGenerator<DoctorCheck> {
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

/** What the pooler check finds when there is one: nothing behind it can be looked at. */
function pooledOrThrow(error: unknown): DoctorCheck {
  if (error instanceof DatabaseError && error.code === 'db_pooled') return { name: 'pooler', ...failed(error.message) }
  throw error
}

/** Those that this environment has; the broker's own may be another. */
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
  if (Math.abs(clockAheadMs) <= CLOCK_OFF_MAX_MS) return ok('that of the database agrees with this machine')
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

/** Of one that is open. */
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
