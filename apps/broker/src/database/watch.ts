/** Watches the database for held snapshots, dead rows and a changed origin, and deletes old dead letters. */
import { readStalledMoves, type StalledMoves } from '@sealpost/mesh-move'
import { checkServer, type Database, openDatabase, openPipeline } from '@sealpost/pg'
import { SESSION } from '@sealpost/queue/postgres'
import { migrate } from '@sealpost/schema'
import { type Millis, OperatingError, type ShardId } from '@sealpost/std'
import { awaitOrigin, deleteOldDeadLetters, readDatabaseHealth, trimDeadLetters } from '@sealpost/store'
import type { Config } from '../config/config.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type DatabaseOrigin, ORIGIN_PATIENCE_MS } from './origin.ts'

interface Parts {
  readonly asking: Database
  readonly log: Log
  readonly metrics: Metrics
  readonly origin: Pick<DatabaseOrigin, 'check' | 'isJudging' | 'keptCount'>
}

type Alarm = 'snapshot_held' | 'dead_rows' | 'move_stalled'

const LOOK_EVERY_MS = 10_000
const FORGET_EVERY_MS = 60_000
const TRIM_EVERY_MS = 10_000
/** The age up to which the first trim covers dead letters, because others may not have trimmed them. */
const FIRST_TRIM_SECONDS = 3600
/** The maximum number of rows per statement. After a full one, the next follows immediately. */
const FORGET_MAX = 1000

export class DatabaseWatch {
  private readonly config: Config
  private readonly parts: Parts
  private readonly alarms = new Set<Alarm>()
  private readonly timers: ReturnType<typeof setInterval>[]
  private readonly busy = new Set<string>()
  private snapshotSeconds = 0
  private deadRows = 0
  private stalledMoves: StalledMoves = { count: 0, oldestMs: 0 }
  private deadLettersTrimmed = 0
  private trimSeconds = FIRST_TRIM_SECONDS

  constructor(config: Config, parts: Parts) {
    this.config = config
    this.parts = parts
    parts.metrics.show({
      database_snapshot_seconds: [
        'age of the oldest snapshot that prevents Postgres from vacuuming dead rows',
        () => this.snapshotSeconds,
      ],
      mesh_moves_stalled: [
        'meshes that are unavailable because their move to another cell was interrupted',
        () => this.stalledMoves.count,
      ],
      database_undecided: [
        '1 while brokers check whether a new database server has all acknowledged messages',
        () => Number(parts.origin.isJudging),
      ],
      queue_dead_rows: ['dead rows in the hot tables that are not yet vacuumed', () => this.deadRows],
    })
    parts.metrics.count({
      dead_letters_trimmed: [
        'dead letters deleted because their sender exceeded its share of a mailbox',
        () => this.deadLettersTrimmed,
      ],
      database_failovers: ['database failovers that kept all acknowledged messages', () => parts.origin.keptCount],
    })
    this.timers = [
      this.every('health.failed', LOOK_EVERY_MS, () => this.look()),
      this.every('forget.failed', FORGET_EVERY_MS, () => this.forget()),
      ...(config.LIMITS === 'on' ? [this.every('trim.failed', TRIM_EVERY_MS, () => this.trim())] : []),
    ]
  }

  get warnings(): string[] {
    const lines: Record<Alarm, string> = {
      snapshot_held: `snapshot_held: a transaction has held its snapshot for ${Math.round(this.snapshotSeconds)} s`,
      dead_rows: `dead_rows: ${this.deadRows} dead rows are not vacuumed`,
      move_stalled: `move_stalled: the move of ${this.stalledMoves.count} mesh(es) was interrupted, the oldest ${Math.round(this.stalledMoves.oldestMs / 1000)} s after its freeze: run \`sealpost mesh move\` again`,
    }
    return [...this.alarms].map((alarm) => lines[alarm])
  }

  get health(): { readonly snapshotSeconds: number; readonly deadRows: number } {
    return { snapshotSeconds: this.snapshotSeconds, deadRows: this.deadRows }
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer)
  }

  private async look(): Promise<void> {
    const { origin, snapshotSeconds, deadRows } = await readDatabaseHealth(this.parts.asking)
    this.snapshotSeconds = snapshotSeconds
    this.deadRows = deadRows
    this.judge('snapshot_held', snapshotSeconds >= this.config.SNAPSHOT_SECONDS_MAX)
    this.stalledMoves = await readStalledMoves(this.parts.asking)
    this.judge('move_stalled', this.stalledMoves.count > 0)
    this.judge('dead_rows', deadRows >= this.config.DEAD_ROWS_MAX)
    this.parts.origin.check(origin)
  }

  private judge(alarm: Alarm, isOn: boolean): void {
    if (isOn === this.alarms.has(alarm)) return
    const { log } = this.parts
    const fields = { reason: alarm, forSeconds: Math.round(this.snapshotSeconds), deadRows: this.deadRows }
    if (isOn) log.warn('database.alarm', fields)
    else log.info('database.calm', fields)
    if (isOn) this.alarms.add(alarm)
    else this.alarms.delete(alarm)
  }

  private async forget(): Promise<void> {
    const terms = { olderThanSeconds: this.config.DEAD_LETTER_SECONDS, max: FORGET_MAX }
    for (;;) {
      const forgotten = await deleteOldDeadLetters(this.parts.asking, terms)
      if (forgotten > 0) this.parts.log.info('dead_letters.forgotten', { forgotten })
      if (forgotten < FORGET_MAX) return
    }
  }

  private async trim(): Promise<void> {
    const { DEAD_LETTERS_PER_SENDER_MAX: countMax, DEAD_LETTER_BYTES_PER_SENDER_MAX: bytesMax } = this.config
    const beganAtMs = performance.now()
    const trimmed = await trimDeadLetters(this.parts.asking, {
      countMax,
      bytesMax,
      youngerThanSeconds: this.trimSeconds,
    })
    // Twice the interval, so that the next run sees letters whose transactions were open.
    this.trimSeconds = (2 * TRIM_EVERY_MS + performance.now() - beganAtMs) / 1000
    if (trimmed === 0) return
    this.deadLettersTrimmed += trimmed
    this.parts.log.warn('dead_letters.trimmed', { trimmed })
  }

  /** Runs `act` regularly, without overlap, so that a slow database receives fewer queries. */
  private every(event: string, ms: Millis, act: () => Promise<void>): ReturnType<typeof setInterval> {
    const once = async () => {
      if (this.busy.has(event)) return
      this.busy.add(event)
      await act().catch((error) => {
        if (!(error instanceof OperatingError)) throw error
        this.parts.log.warn(event, errorFields(error))
      })
      this.busy.delete(event)
    }
    void once()
    const timer = setInterval(once, ms)
    timer.unref()
    return timer
  }
}

/** Opens a connection with short timeouts that queries the database's origin. @throws DatabaseError */
export const askOrigin = ({ DATABASE_URL }: Config): Promise<Database> =>
  openDatabase(DATABASE_URL, {
    ...{ applicationName: 'sealpost origin', connections: 1 },
    ...{ connectTimeoutMs: 1_000, statementTimeoutMs: 2_000, queryTimeoutMs: 3_000 },
  })

export async function openDatabases(config: Config, origin: DatabaseOrigin) {
  const options = (name: string, connections: number) => ({
    applicationName: `sealpost ${name}`,
    connections,
    settings: SESSION,
    ...origin.guard,
  })
  const pipeline = (name: string) => openPipeline(config.DATABASE_URL, options(name, 1))
  const operating = await openDatabase(config.ADMIN_DATABASE_URL || config.DATABASE_URL, options('admin', 2))
  const [writing, entries] = [await pipeline('writing'), await pipeline('entries')]
  const [claiming, collecting] = [await pipeline('claiming'), await pipeline('collecting')]
  const asking = await openDatabase(config.DATABASE_URL, options('asking', 2))
  const databases = { writing, entries, operating, claiming, collecting, asking }
  for (const database of Object.values(databases)) origin.guards(database)
  return databases
}

/** Warns once per host about unencrypted statements. */
function warnOfPlainText(databases: readonly Pick<Database, 'transport'>[], log: Log): void {
  const open = databases.flatMap(({ transport }) =>
    transport && transport.protocol === null && !transport.isLocal ? [transport.host.host] : [],
  )
  for (const host of new Set(open))
    log.warn('database.plain_text', { code: 'db_plain_text', host, message: PLAIN_TEXT })
}

const PLAIN_TEXT =
  'The connection to the database is not encrypted and leaves this machine: set sslmode=verify-full and sslrootcert in DATABASE_URL'

/** Migrates the schema, and waits for the verdict on the origin. @throws DatabaseError */
export async function prepareDatabase(
  config: Config,
  databases: Awaited<ReturnType<typeof openDatabases>>,
  { shard, log }: { readonly shard: ShardId; readonly log: Log },
) {
  warnOfPlainText(Object.values(databases), log)
  const { asking } = databases
  const { version, durability } = await checkServer(asking)
  await migrate(config.DATABASE_URL)
  return { version, durability, decided: await awaitOrigin(asking, shard, ORIGIN_PATIENCE_MS) }
}
