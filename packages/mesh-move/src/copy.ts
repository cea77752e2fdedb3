/** Copies a mesh's rows from one cell to another, one buffer at a time, and deletes them. */
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type Database, DatabaseError, StreamingConnection } from '@sealpost/pg'
import * as schema from '@sealpost/schema'
import { assert, ID_BLOCK, type MeshId, type Millis } from '@sealpost/std'
import { getTableName, is } from 'drizzle-orm'
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core'

export interface CopiedMesh {
  readonly rows: number
  readonly bytes: number
}

/** Copies all tables in one snapshot of the source, inside a transaction of the destination. @throws DatabaseError */
export function copyMesh(
  source: StreamingConnection,
  destination: StreamingConnection,
  meshId: MeshId,
): Promise<CopiedMesh> {
  return source.transaction(async () => {
    let rows = 0
    let bytes = 0
    for (const table of meshTables) {
      const copied = await copyTable(source, destination, { table, meshId })
      rows += copied.rows
      bytes += copied.bytes
    }
    await advanceSequences(source, destination)
    return { rows, bytes }
  }, 'repeatable read read only')
}

async function copyTable(
  source: StreamingConnection,
  destination: StreamingConnection,
  { table: { name, columns }, meshId }: { table: MeshTable; meshId: MeshId },
): Promise<CopiedMesh> {
  const out = source.copyOut(
    `copy (select ${columns} from ${name} where mesh_id = '${meshId}') to stdout (format binary)`,
  )
  const into = destination.copyIn(`copy ${name} (${columns}) from stdin (format binary)`)
  let bytes = 0
  const counter = new Transform({
    transform(chunk, _, done) {
      bytes += chunk.length
      done(null, chunk)
    },
  })
  await pipeline(out, counter, into).catch((error) => {
    throw destination.errorOf(error)
  })
  assert(out.rowCount === into.rowCount, `as many rows of ${name} went in as came out`)
  return { rows: into.rowCount, bytes }
}

interface Sequence {
  readonly name: string
  /** The number of sequence values to skip: more than brokers draw at the same time. */
  readonly margin: number
}

const SEQUENCES: readonly Sequence[] = [
  { name: 'delivery_block', margin: ID_BLOCK },
  { name: 'receipt_id', margin: 2 ** 20 },
  { name: 'member_peer_no_seq', margin: 1000 },
]

/** Advances the destination's sequences beyond every value that the source may have used. */
async function advanceSequences(source: StreamingConnection, destination: StreamingConnection): Promise<void> {
  for (const { name, margin } of SEQUENCES) {
    const [row] = await source.run<{ last_value: string }>(`select last_value from ${name}`)
    await destination.run(
      `select setval('${name}', $1::bigint + ${margin}) from ${name} where last_value <= $1::bigint`,
      [row!.last_value],
    )
  }
}

const DELETE_BATCH = 10_000
/** The batch sizes for tables with large rows. */
const DELETE_BATCHES: Readonly<Record<string, number>> = { attachment_chunk: 100 }

/**
 * Deletes the mesh's rows in batches. Repeats until a pass deletes nothing, because a delivery that ends may create
 * another row.
 * @throws DatabaseError
 */
export async function clearMesh(connection: StreamingConnection, meshId: MeshId): Promise<void> {
  while ((await clearOnce(connection, meshId)) > 0);
}

async function clearOnce(connection: StreamingConnection, meshId: MeshId): Promise<number> {
  let cleared = 0
  for (const { name } of [...meshTables].reverse())
    for (const leaf of await leavesOf(connection, name)) cleared += await clearTable(connection, leaf, meshId)
  return cleared
}

/** Returns the table or its partitions, because a ctid is unique only within one. */
async function leavesOf(connection: StreamingConnection, table: string): Promise<string[]> {
  const leaves = await connection.run<{ leaf: string }>(
    `select relid::regclass::text as leaf from pg_partition_tree($1::regclass) where isleaf`,
    [table],
  )
  return leaves.length > 0 ? leaves.map(({ leaf }) => leaf) : [table]
}

async function clearTable(connection: StreamingConnection, table: string, meshId: MeshId): Promise<number> {
  const batch = DELETE_BATCHES[table] ?? DELETE_BATCH
  for (let cleared = 0; ; ) {
    const [row] = await connection.run<{ count: number }>(
      `with deleted as (delete from ${table} where ctid = any (array(
         select ctid from ${table} where mesh_id = $1::uuid limit ${batch})) returning 1)
       select count(*)::int as count from deleted`,
      [meshId],
    )
    if (!row) throw new DatabaseError('db_refused', 'Postgres returned no row for a count')
    cleared += row.count
    if (row.count < batch) return cleared
  }
}

export interface MeshTable {
  readonly name: string
  /** The columns of `name` as a list for a statement. */
  readonly columns: string
}

/** Tables with a `mesh_id` that describe this cell and are not copied. */
export const STAYS: ReadonlySet<string> = new Set([
  'mesh', // each cell has its own row, which records where the mesh lives
  'mesh_move',
  'mesh_pin', // names a shard of this cell
  'prepared_send', // belongs to the transactions of applications on this database
  'admin_token', // lists who may operate this cell
  'admin_audit', // lists the changes that operators made in this cell
])

/**
 * The tables that move with a mesh, referenced ones first: all with a `mesh_id` except `STAYS`, so that no new table is
 * forgotten.
 */
export const meshTables: readonly MeshTable[] = inOrder(
  (Object.values(schema) as unknown[])
    .filter((entry) => is(entry, PgTable))
    .filter((table) => columnsOf(table).includes('mesh_id') && !STAYS.has(getTableName(table))),
).map((table) => ({
  name: getTableName(table),
  columns: columnsOf(table)
    .map((column) => `"${column}"`)
    .join(', '),
}))

function columnsOf(table: PgTable): string[] {
  // `copy` accepts no generated columns
  return getTableConfig(table)
    .columns.filter(({ generated }) => generated === undefined)
    .map(({ name }) => name)
}

function inOrder(tables: readonly PgTable[]): PgTable[] {
  const ordered: PgTable[] = []
  const add = (table: PgTable) => {
    if (ordered.includes(table)) return
    for (const { reference } of getTableConfig(table).foreignKeys) {
      const { foreignTable } = reference()
      if (foreignTable !== table && tables.includes(foreignTable)) add(foreignTable)
    }
    ordered.push(table)
  }
  for (const table of tables) add(table)
  return ordered
}

/**
 * Opens the connection to one cell that all statements of a move use. @throws DatabaseError with the codes of
 * `openDatabase`
 */
export function openMoveConnection(url: string, { connectTimeoutMs = 10_000 } = {}): Promise<StreamingConnection> {
  return StreamingConnection.open(url, { applicationName: 'sealpost mover', connectTimeoutMs, session: SESSION })
}

/**
 * Opens the connection and acquires the mesh's lock for as long as it is open, so that a mesh has only one mover.
 * @throws DatabaseError with the codes of `openMoveConnection`, and `move_in_use` (retryable)
 */
export async function openLocked(url: string, meshId: MeshId): Promise<StreamingConnection> {
  const connection = await openMoveConnection(url)
  try {
    const [row] = await connection.run<{ isLocked: boolean }>(
      `select pg_try_advisory_lock($1::bit(64)::bigint) as "isLocked"`,
      [lockKey(meshId)],
    )
    if (!row?.isLocked) throw new DatabaseError('move_in_use', 'Another mover works on this mesh', { retryable: true })
    return connection
  } catch (error) {
    await connection.close()
    throw error
  }
}

/**
 * The settings of a move's connections. A copy may take long, so statements have no time limit. Lock waits have one,
 * because brokers' statements are short.
 */
const SESSION = {
  statement_timeout: 0,
  lock_timeout: 30_000,
  synchronous_commit: 'on',
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 60_000,
  // ends a killed mover's statement and releases its lock
  client_connection_check_interval: 1_000,
}

/** Returns the mesh's advisory lock key: the first 64 bits of its id, as in `readStalledMoves`. */
const lockKey = (meshId: MeshId): string =>
  BigInt(`0x${meshId.slice(0, 16)}`)
    .toString(2)
    .padStart(64, '0')

/** Interrupted moves without a mover, whose mesh is active in neither cell. */
export interface StalledMoves {
  readonly count: number
  /** The time since the oldest one froze its mesh; 0 if there is none. */
  readonly oldestMs: Millis
}

export async function readStalledMoves(db: Database): Promise<StalledMoves> {
  const [row] = await db.run(
    (sql) => sql<StalledMoves[]>`
      select count(*)::int as count,
        coalesce(extract(epoch from clock_timestamp() - min(m.frozen_at)) * 1000, 0)::float8 as "oldestMs"
      from mesh_move v join mesh m using (mesh_id)
      where v.side = 'source' and v.phase in ('frozen', 'copied', 'left') and m.frozen_at is not null
        and not exists (
          select from pg_locks l
          where l.locktype = 'advisory' and l.granted and l.objsubid = 1
            and l.database = (select oid from pg_database where datname = current_database())
            and (l.classid::bigint << 32 | l.objid::bigint)
              = ('x' || substr(replace(m.mesh_id::text, '-', ''), 1, 16))::bit(64)::bigint)`,
  )
  return row!
}
