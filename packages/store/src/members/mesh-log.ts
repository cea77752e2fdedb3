/**
 * Reads the transparent log of a mesh (docs/adr/0023). Triggers append its entries in the transactions that store
 * statements, so nothing here does, except for the statements from before the log.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { columnNames, execute, logEntry, logNode, logSigner, meshLog } from '@sealpost/schema'
import type { MeshId, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'

export interface LogHead {
  readonly size: number
  /** Whether the statements from before the log have entries. */
  readonly isComplete: boolean
}

/** Returns the head of the log. A mesh without statements has an empty one. */
export async function readLogHead(db: Database, meshId: MeshId): Promise<LogHead> {
  const [row] = await execute<LogHead>(
    db,
    sql`
      select coalesce((select max(e.seq) + 1 from ${logEntry} e where e.mesh_id = ${meshId}::uuid), 0) as size,
        not exists (select from ${meshLog} l where l.mesh_id = ${meshId}::uuid and not l.is_complete) as "isComplete"`,
  )
  return row!
}

/** Returns the stored hashes at these positions. A position that the log has not reached is missing. */
export async function readLogNodes(
  db: Database,
  meshId: MeshId,
  positions: readonly number[],
): Promise<ReadonlyMap<number, Uint8Array>> {
  const rows = await execute<{ position: number; hash: Uint8Array }>(
    db,
    sql`
      select n.position, n.hash from ${logNode} n
      where n.mesh_id = ${meshId}::uuid and n.position = any (${arrayLiteral(positions)}::int8[])`,
  )
  return new Map(rows.map(({ position, hash }) => [position, hash]))
}

/** Returns where the log has these leaves, as hex. */
export async function findLogLeaves(
  db: Database,
  meshId: MeshId,
  leaves: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const rows = await execute<{ leaf: string; seq: number }>(
    db,
    sql`
      select encode(e.leaf, 'hex') as leaf, e.seq from ${logEntry} e
      where e.mesh_id = ${meshId}::uuid and e.leaf = any (${arrayLiteral(leaves.map(byteaText))}::bytea[])`,
  )
  return new Map(rows.map(({ leaf, seq }) => [leaf, seq]))
}

export interface StoredEntry {
  readonly kind: number
  readonly statement: Uint8Array
}

/** Returns entries in their order, from number `from` on. */
export function listLogEntries(
  db: Database,
  meshId: MeshId,
  { from, limit }: { from: number; limit: number },
): Promise<StoredEntry[]> {
  return execute<StoredEntry>(
    db,
    sql`
      select e.kind, e.statement from ${logEntry} e where e.mesh_id = ${meshId}::uuid and e.seq >= ${from}::int8
      order by e.seq limit ${limit}::int`,
  )
}

/**
 * Appends statements from before the log, up to `batch` of one mesh. Returns whether to call it again; another broker may
 * be working on it.
 */
export async function backfillLogs(db: Database, batch: number): Promise<boolean> {
  const [row] = await execute<{ isLeft: boolean }>(db, sql`select log_backfill(${batch}::int) as "isLeft"`)
  return row!.isLeft
}

/** Stores the certificate of a shard that signs checkpoints of the mesh. */
export async function putLogSigner(
  db: Database,
  meshId: MeshId,
  { signer, certificate }: { signer: PeerKey; certificate: Uint8Array },
): Promise<void> {
  await execute(
    db,
    sql`
      insert into ${logSigner} (${columnNames(logSigner.meshId, logSigner.signer, logSigner.certificate)})
      values (${meshId}::uuid, ${byteaText(signer)}::bytea, ${byteaText(certificate)}::bytea)
      on conflict (${columnNames(logSigner.meshId, logSigner.signer)})
      do update set ${columnNames(logSigner.certificate)} = excluded.certificate
      where ${logSigner.certificate} <> excluded.certificate`,
  )
}

/** Returns the stored certificates of these signers. */
export async function findLogSigners(
  db: Database,
  meshId: MeshId,
  signers: readonly PeerKey[],
): Promise<readonly Uint8Array[]> {
  const rows = await execute<{ certificate: Uint8Array }>(
    db,
    sql`
      select s.certificate from ${logSigner} s
      where s.mesh_id = ${meshId}::uuid and s.signer = any (${arrayLiteral(signers.map(byteaText))}::bytea[])`,
  )
  return rows.map(({ certificate }) => certificate)
}
