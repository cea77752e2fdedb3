/** The rows of a mesh: from one cell into another, and out of one. Bytes pass through, a buffer at a time. */
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { assert, ID_BLOCK, type MeshId } from '@sealpost/std'
import { DatabaseError } from './database-error.ts'
import { type MeshTable, meshTables } from './mesh-tables.ts'
import type { MoverLink } from './mover-link.ts'

export interface CopiedMesh {
  /** Of all tables. */
  readonly rows: number
  readonly bytes: number
}

/**
 * Copies all tables as one snapshot of the source saw them, inside a transaction of the destination that its caller has begun.
 * @throws DatabaseError
 */
export function copyMesh(source: MoverLink, destination: MoverLink, meshId: MeshId): Promise<CopiedMesh> {
  return source.transaction(async () => {
    let rows = 0
    let bytes = 0
    for (const table of meshTables) {
      const copied = await copyTable(source, destination, { table, meshId })
      rows += copied.rows
      bytes += copied.bytes
    }
    await outnumber(source, destination)
    return { rows, bytes }
  }, 'repeatable read read only')
}

async function copyTable(
  source: MoverLink,
  destination: MoverLink,
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
  /** Numbers passed over, so that those that brokers draw at this very moment lie below. */
  readonly margin: number
}

const SEQUENCES: readonly Sequence[] = [
  { name: 'delivery_block', margin: ID_BLOCK },
  { name: 'receipt_id', margin: 2 ** 20 },
  { name: 'member_peer_no_seq', margin: 1000 },
]

/** From here on the destination gives no number that the source may have given. It only goes forward. */
async function outnumber(source: MoverLink, destination: MoverLink): Promise<void> {
  for (const { name, margin } of SEQUENCES) {
    const [row] = await source.run<{ last_value: string }>(`select last_value from ${name}`)
    await destination.run(
      `select setval('${name}', $1::bigint + ${margin}) from ${name} where last_value <= $1::bigint`,
      [row!.last_value],
    )
  }
}

const CLEARED_AT_ONCE = 10_000
/** A row of these is large. */
const CLEARED_SLOWLY: Readonly<Record<string, number>> = { attachment_chunk: 100 }

/**
 * Deletes the mesh's rows, a batch in each transaction. Twice round at least: what ends a delivery that is still there
 * may leave another row behind.
 * @throws DatabaseError
 */
export async function clearMesh(link: MoverLink, meshId: MeshId): Promise<void> {
  while ((await clearOnce(link, meshId)) > 0);
}

async function clearOnce(link: MoverLink, meshId: MeshId): Promise<number> {
  let cleared = 0
  for (const { name } of [...meshTables].reverse())
    for (const leaf of await leavesOf(link, name)) cleared += await clearTable(link, leaf, meshId)
  return cleared
}

/** The tables that hold its rows: itself, or its partitions, since a place in one is a place in another, too. */
async function leavesOf(link: MoverLink, table: string): Promise<string[]> {
  const leaves = await link.run<{ leaf: string }>(
    `select relid::regclass::text as leaf from pg_partition_tree($1::regclass) where isleaf`,
    [table],
  )
  return leaves.length > 0 ? leaves.map(({ leaf }) => leaf) : [table]
}

async function clearTable(link: MoverLink, table: string, meshId: MeshId): Promise<number> {
  const atOnce = CLEARED_SLOWLY[table] ?? CLEARED_AT_ONCE
  for (let cleared = 0; ; ) {
    const [row] = await link.run<{ count: number }>(
      `with gone as (delete from ${table} where ctid = any (array(
         select ctid from ${table} where mesh_id = $1::uuid limit ${atOnce})) returning 1)
       select count(*)::int as count from gone`,
      [meshId],
    )
    if (!row) throw new DatabaseError('db_refused', 'A count was not answered')
    cleared += row.count
    if (row.count < atOnce) return cleared
  }
}
