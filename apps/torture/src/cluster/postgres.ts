/** Runs the Postgres server, which scenarios kill and restart, and reads its rows at the end. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmbeddedOptions, type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { type Database, openDatabase } from '@sealpost/pg'
import { assert, OperatingError, type PeerKey } from '@sealpost/std'

export interface PostgresSetting extends Pick<EmbeddedOptions, 'dataDir' | 'settings' | 'environment'> {
  /** A running server that scenarios must not kill or stop. */
  readonly url?: string
}

/** A message that is in the database at the end. */
export interface Leftover {
  readonly envelopeId: string
  /** Why the message is dead; `null` if it is queued. */
  readonly reason: 'expired' | 'strikes' | 'rejected' | null
}

interface Backend {
  readonly pid: number
  /** The client's application name, such as `sealpost writing`. */
  readonly name: string
}

const ANSWERS_WITHIN_MS = 120_000
const LOOK_MS = 20
const PATIENCE = { connections: 1, statementTimeoutMs: 60_000, queryTimeoutMs: 65_000 }

export class Postgres {
  readonly url: string
  readonly #options: EmbeddedOptions
  readonly #db: Database
  /** `null` if the caller provided the server. */
  #server: EmbeddedPostgres | null
  #hasEnded = false

  private constructor(url: string, db: Database, own: { server: EmbeddedPostgres | null; options: EmbeddedOptions }) {
    this.url = url
    this.#options = own.options
    this.#server = own.server
    this.#db = db
    this.#watch()
  }

  static async open({ url, ...setting }: PostgresSetting, teardown: Teardown): Promise<Postgres> {
    const dataDir = url ? '' : (setting.dataDir ?? (await temporaryFolder(teardown)))
    const options = { ...setting, dataDir, settings: { shared_buffers: '64MB', ...setting.settings } }
    const server = url ? null : await startEmbedded(options)
    const address = url ?? server!.url
    const db = await openDatabase(address, { ...PATIENCE, applicationName: 'torture' })
    const postgres = new Postgres(address, db, { server, options })
    teardown.add({ end: () => postgres.#end(), kill: () => postgres.#server?.kill() })
    return postgres
  }

  get port(): number {
    return Number(new URL(this.url).port)
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** Kills the postmaster, which its backends notice. */
  async kill(): Promise<void> {
    await this.#own.kill()
  }

  async killAll(): Promise<void> {
    const rows = await this.#db.run((sql) => sql<{ pid: number }[]>`select pid from pg_stat_activity`)
    for (const pid of [this.#own.pid, ...rows.map((row) => row.pid)]) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // it has already ended
      }
    }
    await this.#own.exited
  }

  /** Stops the server without a checkpoint, like `pg_ctl stop -m immediate`. */
  async stopAtOnce(): Promise<void> {
    process.kill(this.#own.pid, 'SIGQUIT')
    await this.#own.exited
  }

  /** Stops the server like `pg_ctl stop -m fast`. */
  async stop(): Promise<void> {
    await this.#own.stop()
  }

  async start(): Promise<void> {
    this.#server = await startEmbedded({ ...this.#options, port: this.port })
    this.#watch()
    await this.answers()
  }

  /** Waits until the server accepts connections. @throws OperatingError `postgres_silent` */
  async answers(): Promise<void> {
    const deadline = performance.now() + ANSWERS_WITHIN_MS
    while (performance.now() < deadline) {
      const db = await openDatabase(this.url, { connections: 1, connectTimeoutMs: 2000 }).catch(() => null)
      if (db) return db.close()
      await Bun.sleep(LOOK_MS)
    }
    throw new OperatingError('postgres_silent', `Postgres accepted no connection within ${ANSWERS_WITHIN_MS} ms.`)
  }

  async backends(): Promise<Backend[]> {
    const rows = await this.#db.run(
      (sql) => sql<Backend[]>`select pid, application_name as name from pg_stat_activity
        where datname = current_database() and application_name like 'sealpost %'`,
    )
    return [...rows]
  }

  async terminateBackends(): Promise<number> {
    const rows = await this.#db.run(
      (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'sealpost %'`,
    )
    return rows.length
  }

  async countQueued(): Promise<number> {
    const [row] = await this.#db.run((sql) => sql<{ n: number }[]>`select count(*)::int as n from message_queue`)
    return row!.n
  }

  async countQueuedFor(peerKey: PeerKey): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ n: number }[]>`select count(*)::int as n from message_queue q join member m
        on m.mesh_id = q.mesh_id and m.peer_no = q.recipient where m.peer_key = decode(${peerKey}, 'hex')`,
    )
    return row!.n
  }

  /** Counts queued messages with a short time to live. */
  async countBrief(): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ n: number }[]>`select count(*)::int as n from message_queue
        where expires_at < enqueued_at + interval '1 minute'`,
    )
    return row!.n
  }

  async countDead(reason: Leftover['reason']): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ n: number }[]>`select count(*)::int as n from dead_letter where reason = ${reason}`,
    )
    return row!.n
  }

  async leftovers(): Promise<Leftover[]> {
    const rows = await this.#db.run(
      (sql) => sql<Leftover[]>`
        select replace(envelope_id::text, '-', '') as "envelopeId", null as reason from message_queue
        union all
        select replace(envelope_id::text, '-', ''), reason from dead_letter`,
    )
    return [...rows]
  }

  /** Returns the server's clock in ms since 1970. */
  async clockMs(): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ ms: number }[]>`select extract(epoch from clock_timestamp())::float8 * 1000 as ms`,
    )
    return row!.ms
  }

  get db(): Database {
    return this.#db
  }

  get #own(): EmbeddedPostgres {
    assert(this.#server !== null, 'scenarios never stop a server that the caller provided')
    return this.#server
  }

  #watch(): void {
    const server = this.#server
    this.#hasEnded = false
    void server?.exited.then(() => {
      if (server === this.#server) this.#hasEnded = true
    })
  }

  async #end(): Promise<void> {
    await this.#db.close()
    await this.#server?.stop()
  }
}

async function temporaryFolder(teardown: Teardown): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-torture-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  return join(folder, 'postgres')
}
