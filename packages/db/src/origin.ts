/**
 * Which server a connection leads to, and whether the database there still has what was acknowledged. A standby that took
 * over keeps the incarnation when every broker finds its last acknowledged commit there: docs/adr/0010-failover.md.
 */
import type { EnvelopeId, MeshId, Millis, PeerNo, ShardId } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { Database } from './connect.ts'
import { execute } from './drizzle-run.ts'

/** Of a database whose brokers have agreed on where it is. */
export interface Origin {
  /** The number of the system and the timeline of its WAL. */
  readonly server: string
  readonly incarnation: string
}

/** An envelope that a broker acknowledged. */
export interface Acknowledged {
  readonly meshId: MeshId
  readonly sender: PeerNo
  /** Of the envelope id: it leads to the row of the ledger. */
  readonly second: number
  readonly envelopeId: EnvelopeId
}

/** What one broker did last, in the order of the WAL: where this is, all is that it acknowledged before. */
export interface LastActs {
  readonly shard: ShardId
  /** As the database gave it when the lease of the shard was renewed last; null: it never was. */
  readonly leaseUntil: string | null
  /** What was acknowledged since; null: more than is remembered. */
  readonly acknowledged: readonly Acknowledged[] | null
}

export type Verdict =
  | ({ readonly is: 'decided' } & Origin)
  /** Other brokers are yet to attest, or the server is still a standby. */
  | { readonly is: 'waiting' }

export interface Attestation {
  readonly acts: LastActs
  /** The incarnation that was served; null by a broker that starts. */
  readonly former: string | null
  /** How long to wait for the other brokers, from the first attestation on. */
  readonly patienceMs: Millis
}

/**
 * Where a connection leads, in one row of three texts: the server, and the origin and incarnation that are noted in its
 * database. The first is null on a standby.
 */
export const ASK_ORIGIN = `select database_origin(), origin, replace(incarnation::text, '-', '') from cluster`

/** The origin in an answer to `ASK_ORIGIN`; null while nobody has judged the server, or it is a standby. */
export function originOf([server, noted, incarnation]: readonly (string | null)[]): Origin | null {
  return server != null && server === noted && incarnation ? { server, incarnation } : null
}

/** Says what this broker finds of its acts in the database, and asks for the verdict of all. @throws DatabaseError */
export async function attestOrigin(db: Database, { acts, former, patienceMs }: Attestation): Promise<Verdict> {
  const isWhole = await findsActs(db, acts)
  const [row] = await execute<{ verdict: string; origin: string; incarnation: string }>(
    db,
    sql`select verdict, origin, replace(incarnation::text, '-', '') as incarnation
      from attest_origin(${acts.shard}::uuid, ${former}::uuid, ${isWhole}::boolean, ${patienceMs / 1000}::float8)`,
  )
  const { verdict, origin: server, incarnation } = row!
  return verdict === 'decided' ? { is: 'decided', server, incarnation } : { is: 'waiting' }
}

/**
 * Waits until it is decided where the database is, as a broker does that starts. Brokers that run decide; a new
 * incarnation begins when there are none. @throws DatabaseError
 */
export async function decidedOrigin(db: Database, shard: ShardId, patienceMs: Millis): Promise<Origin> {
  const acts: LastActs = { shard, leaseUntil: null, acknowledged: [] }
  for (;;) {
    const verdict = await attestOrigin(db, { acts, former: null, patienceMs })
    if (verdict.is === 'decided') return verdict
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
  }
}

const ASK_AGAIN_MS: Millis = 100

/** Null: it has done nothing. @throws DatabaseError */
async function findsActs(db: Database, { shard, leaseUntil, acknowledged }: LastActs): Promise<boolean | null> {
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
