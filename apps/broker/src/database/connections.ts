import { checkServer, type Database, openDatabase, openPipeline } from '@sealpost/pg'
import { SESSION } from '@sealpost/queue/postgres'
import { migrate } from '@sealpost/schema'
import type { ShardId } from '@sealpost/std'
import { awaitOrigin } from '@sealpost/store'
import type { Config } from '../config/config.ts'
import type { Log } from '../telemetry/log.ts'
import { type DatabaseOrigin, ORIGIN_PATIENCE_MS } from './origin.ts'

/** Opens a connection that asks for the database's origin; its timeouts are short. @throws DatabaseError */
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

/** Warns once per host: statements in plain text can be read and changed on the network. */
function warnOfPlainText(databases: readonly Pick<Database, 'transport'>[], log: Log): void {
  const open = databases.flatMap(({ transport }) =>
    transport && transport.protocol === null && !transport.isLocal ? [transport.host.host] : [],
  )
  for (const host of new Set(open))
    log.warn('database.plain_text', { code: 'db_plain_text', host, message: PLAIN_TEXT })
}

const PLAIN_TEXT =
  'The connection to the database is not encrypted and leaves this machine: set sslmode=verify-full and sslrootcert in DATABASE_URL'

/** Migrates the schema, and waits for the decision about the database's origin. @throws DatabaseError */
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
