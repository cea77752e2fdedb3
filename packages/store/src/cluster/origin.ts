/**
 * Determines which server a connection reaches, and whether its database still has every acknowledged commit. A standby
 * that took over keeps the incarnation if every broker finds its last acknowledged commit there; a restored backup
 * begins a new incarnation, and peers then resend. See docs/adr/0010-failover.md.
 */
import type { Database } from '@sealpost/pg'
import { adminAudit, execute } from '@sealpost/schema'
import type { EnvelopeId, MeshId, Millis, PeerNo, ShardId } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditValues } from '../operators/operators.ts'

/** The server that the brokers have agreed on. */
export interface Origin {
  /** The system identifier and the WAL timeline. */
  readonly server: string
  readonly incarnation: string
}

export interface AckedEnvelope {
  readonly meshId: MeshId
  readonly sender: PeerNo
  /** The envelope id's time bucket, which is part of the ledger's key. */
  readonly second: number
  readonly envelopeId: EnvelopeId
}

/** The last commits of one broker. A database with these commits has all earlier ones, because WAL is ordered. */
export interface BrokerCheckpoint {
  readonly shard: ShardId
  /** The result of the shard's last lease renewal; null before the first. */
  readonly leaseUntil: string | null
  /** The envelopes acknowledged since then; null if there were too many to remember. */
  readonly acknowledged: readonly AckedEnvelope[] | null
}

export type OriginVerdict =
  | ({ readonly is: 'decided' } & Origin)
  /** Other brokers have not attested yet, or the server is still a standby. */
  | { readonly is: 'waiting' }

export interface Attestation {
  readonly checkpoint: BrokerCheckpoint
  /** The incarnation that this broker has served; null when it starts. */
  readonly former: string | null
  /** How long brokers wait for each other after the first attestation. */
  readonly patienceMs: Millis
}

/** Selects the connected server (null on a standby), and its database's recorded origin and incarnation. */
export const SELECT_ORIGIN = `select database_origin(), origin, replace(incarnation::text, '-', '') from cluster`

/** Parses the row of `SELECT_ORIGIN`. Returns null on a standby or without an agreed server. */
export function parseOrigin([server, noted, incarnation]: readonly (string | null)[]): Origin | null {
  return server != null && server === noted && incarnation ? { server, incarnation } : null
}

/** Records whether this database has the broker's last commits. Returns the verdict of all brokers. */
export async function attestOrigin(
  db: Database,
  { checkpoint: acts, former, patienceMs }: Attestation,
): Promise<OriginVerdict> {
  const isWhole = await findsActs(db, acts)
  const [row] = await execute<{ verdict: string; origin: string; incarnation: string }>(
    db,
    sql`select verdict, origin, replace(incarnation::text, '-', '') as incarnation
      from attest_origin(${acts.shard}::uuid, ${former}::uuid, ${isWhole}::boolean, ${patienceMs / 1000}::float8)`,
  )
  const { verdict, origin: server, incarnation } = row!
  return verdict === 'decided' ? { is: 'decided', server, incarnation } : { is: 'waiting' }
}

/** Waits for the verdict when a broker starts. Running brokers decide; if none is running, a new incarnation begins. */
export async function awaitOrigin(db: Database, shard: ShardId, patienceMs: Millis): Promise<Origin> {
  const acts: BrokerCheckpoint = { shard, leaseUntil: null, acknowledged: [] }
  for (;;) {
    const verdict = await attestOrigin(db, { checkpoint: acts, former: null, patienceMs })
    if (verdict.is === 'decided') return verdict
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
  }
}

const ASK_AGAIN_MS: Millis = 100

/** Returns whether the database has the broker's last commits; null if it has committed nothing. */
async function findsActs(db: Database, { shard, leaseUntil, acknowledged }: BrokerCheckpoint): Promise<boolean | null> {
  if (acknowledged === null) return false
  if (leaseUntil === null && acknowledged.length === 0) return null
  const found = await execute<{ isLeased: boolean; found: number }>(
    db,
    sql`select ${leaseUntil}::numeric is null or coalesce((select extract(epoch from lease_until) >= ${leaseUntil}::numeric
          from shard where shard_id = ${shard}::uuid), false) as "isLeased",
        (select count(*)::int from unnest(${list(acknowledged.map(({ meshId }) => meshId))}::uuid[],
            ${list(acknowledged.map(({ sender }) => sender))}::int[], ${list(acknowledged.map(({ second }) => second))}::bigint[],
            ${list(acknowledged.map(({ envelopeId }) => envelopeId))}::uuid[]) as a(mesh_id, sender, second, envelope_id)
          where exists (select from dedupe_ledger l where l.mesh_id = a.mesh_id and l.sender = a.sender
            and l.second = a.second and a.envelope_id = any (l.envelope_ids))) as found`,
  )
  const [{ isLeased, found: count }] = found as [{ isLeased: boolean; found: number }]
  return isLeased && count === acknowledged.length
}

const list = (values: readonly (string | number)[]): string => `{${values.join()}}`

/** Returns the incarnation as 32 hex digits. Begins a new one if the server or its timeline has changed. */
export async function currentIncarnation(db: Database): Promise<string> {
  const [row] = await db.run((sql) => sql<{ incarnation: string }[]>`select note_origin(false) as incarnation`)
  return row!.incarnation.replaceAll('-', '')
}

/** Begins a new incarnation after a restore that copied files without running a recovery. Running brokers adopt it. */
export async function beginIncarnation(db: Database): Promise<string> {
  const [row] = await execute<{ incarnation: string }>(
    db,
    sql`
      with begun as materialized (
        select replace(note_origin(true)::text, '-', '') as incarnation
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(null, 'database.restored')}, null::uuid, incarnation, 1 from begun
      )
      select incarnation from begun`,
  )
  return row!.incarnation
}
