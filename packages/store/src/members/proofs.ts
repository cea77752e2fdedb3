/**
 * Stores and returns the signed statements that prove who is a member (docs/adr/0017): the root of a mesh, certificates,
 * endorsements and revocations. Callers have verified the signatures of what they store. Readers verify everything again.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import {
  columnNames,
  device,
  execute,
  formerIdentity,
  member,
  memberProof,
  memberRevocation,
  meshRoot,
} from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { isRecoverySql } from './key-bindings.ts'
import { proofColumns } from './membership.ts'
import { heirsAndRecoveriesSql } from './recoveries.ts'

export type StoredProofKind =
  | 'certificate'
  | 'endorsement'
  | 'admission'
  | 'device'
  | 'removal'
  | 'succession'
  | 'heirs'
  | 'recovery'
  | 'pending_recovery'

export interface StoredProof {
  readonly kind: StoredProofKind
  readonly statement: Uint8Array
}

/** An endorsement whose signature the caller has verified. */
export interface NewEndorsement {
  readonly peerKey: PeerKey
  readonly issuer: PeerKey
  readonly atMs: Millis
  readonly bytes: Uint8Array
}

/** Returns all statements about these keys, and the successions and recoveries that lead from or to them. */
export function findProofs(db: Database, meshId: MeshId, peers: readonly PeerKey[]): Promise<StoredProof[]> {
  const mesh = sql`${meshId}::uuid`
  return execute<StoredProof>(
    db,
    sql`
      with asked as materialized (
        select key from unnest(${arrayLiteral(peers.map(byteaText))}::bytea[]) as k (key)
      ), found as materialized (
        select m.peer_no, m.peer_key from ${member} m join asked on asked.key = m.peer_key where m.mesh_id = ${mesh}
      )
      select p.kind, p.statement from asked join ${memberProof} p on p.mesh_id = ${mesh} and p.peer_key = asked.key
      union all
      select 'device', d.statement from found join ${device} d on d.mesh_id = ${mesh} and d.peer_no = found.peer_no
      union all
      select 'removal', d.removal from found join ${device} d on d.mesh_id = ${mesh} and d.peer_no = found.peer_no
      where d.removal is not null
      union all
      select 'succession', f.statement from ${formerIdentity} f where f.mesh_id = ${mesh}
        and (f.peer_key in (select key from asked) or f.peer_no in (select peer_no from found)) and not ${isRecoverySql}
      union all
      ${heirsAndRecoveriesSql(mesh)}`,
  )
}

export interface MeshRootFacts {
  readonly root: PeerKey | null
  readonly revocationCount: number
}

/** Returns the root of the mesh, null if it has adopted none, and the number of its revocations. */
export async function findMeshRoot(db: Database, meshId: MeshId): Promise<MeshRootFacts> {
  const [row] = await execute<MeshRootFacts>(
    db,
    sql`
      select (select encode(r.root_key, 'hex') from ${meshRoot} r where r.mesh_id = ${meshId}::uuid) as root,
        coalesce((select max(v.number) from ${memberRevocation} v where v.mesh_id = ${meshId}::uuid), 0) as "revocationCount"`,
  )
  return row!
}

/** Returns revocations in their order, from `after` + 1 on. */
export async function listRevocations(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: number; limit: number },
): Promise<Uint8Array[]> {
  const rows = await execute<{ statement: Uint8Array }>(
    db,
    sql`
      select v.statement from ${memberRevocation} v where v.mesh_id = ${meshId}::uuid and v.number > ${after}::int
      order by v.number limit ${limit}::int`,
  )
  return rows.map(({ statement }) => statement)
}

/** SQL: the requester is an admin of the mesh, and not revoked. */
const isAdmin = ({ meshId, peer }: MemberRef): SQL => sql`exists (select from ${member} m
  where m.mesh_id = ${meshId}::uuid and m.peer_no = ${peer}::int and m.role = 'admin' and m.revoked_at is null)`

/**
 * Stores the root on behalf of an admin, or of the operator if `requester` is null.
 * @returns the stored root, which differs from `root` if another one was adopted before; null if the requester is no admin
 */
export async function adoptRoot(
  db: Database,
  { meshId, root, replaces }: { meshId: MeshId; root: PeerKey; replaces: PeerKey | null },
  requester: MemberRef | null,
): Promise<PeerKey | null> {
  const key = sql`${byteaText(root)}::bytea`
  const former = sql`${replaces === null ? null : byteaText(replaces)}::bytea`
  const [row] = await execute<{ isAllowed: boolean; stored: PeerKey }>(
    db,
    sql`
      with allowed as materialized (select ${requester ? isAdmin(requester) : sql`true`} as is_so), adopted as (
        insert into ${meshRoot} (${columnNames(meshRoot.meshId, meshRoot.rootKey)})
        select ${meshId}::uuid, ${key} from allowed where is_so
        on conflict (${columnNames(meshRoot.meshId)}) do update set ${columnNames(meshRoot.rootKey)} = excluded.root_key,
          ${columnNames(meshRoot.adoptedAt)} = clock_timestamp() where ${meshRoot.rootKey} = ${former}
        returning 1
      )
      select (select is_so from allowed) as "isAllowed", case when exists (select from adopted) then ${root}::text
        else (select encode(r.root_key, 'hex') from ${meshRoot} r where r.mesh_id = ${meshId}::uuid) end as stored`,
  )
  return row!.isAllowed ? row!.stored : null
}

/** Stores endorsements on behalf of an admin, or of the operator if `requester` is null. @returns whether it may do so */
export async function putEndorsements(
  db: Database,
  meshId: MeshId,
  { endorsements, requester }: { endorsements: readonly NewEndorsement[]; requester: MemberRef | null },
): Promise<boolean> {
  const bytes = (pick: (endorsement: NewEndorsement) => PeerKey | Uint8Array) =>
    arrayLiteral(endorsements.map((each) => byteaText(pick(each))))
  const [row] = await execute<{ isAllowed: boolean }>(
    db,
    sql`
      with allowed as materialized (select ${requester ? isAdmin(requester) : sql`true`} as is_so), given as (
        select distinct on (peer_key, issuer) * from unnest(
          ${bytes((a) => a.peerKey)}::bytea[], ${bytes((a) => a.issuer)}::bytea[],
          ${arrayLiteral(endorsements.map(({ atMs }) => atMs))}::int8[], ${bytes((a) => a.bytes)}::bytea[]
        ) as g (peer_key, issuer, at_ms, statement) order by peer_key, issuer, at_ms desc
      ), stored as (
        insert into ${memberProof} (${proofColumns})
        select ${meshId}::uuid, peer_key, 'endorsement', issuer, at_ms, statement from given, allowed where is_so
        on conflict (${columnNames(memberProof.meshId, memberProof.peerKey, memberProof.kind, memberProof.issuer)})
        do update set ${columnNames(memberProof.atMs)} = excluded.at_ms, ${columnNames(memberProof.statement)} = excluded.statement
        where ${memberProof.atMs} < excluded.at_ms
      )
      select is_so as "isAllowed" from allowed`,
  )
  return row!.isAllowed
}

/** Stores a member's own admission, unless it has one by another issuer. A repeated call replaces it. */
export async function putAdmission(
  db: Database,
  meshId: MeshId,
  { peerKey, issuer, atMs, bytes }: NewEndorsement,
): Promise<void> {
  await execute(
    db,
    sql`
      insert into ${memberProof} (${proofColumns})
      select ${meshId}::uuid, key, 'admission', by, ${atMs}::int8, ${byteaText(bytes)}::bytea
      from (select ${byteaText(peerKey)}::bytea as key, ${byteaText(issuer)}::bytea as by) as given
      where not exists (select from ${memberProof} p
        where p.mesh_id = ${meshId}::uuid and p.peer_key = key and p.kind = 'admission' and p.issuer <> by)
      on conflict (${columnNames(memberProof.meshId, memberProof.peerKey, memberProof.kind, memberProof.issuer)})
      do update set ${columnNames(memberProof.atMs)} = excluded.at_ms, ${columnNames(memberProof.statement)} = excluded.statement`,
  )
}

/**
 * Stores the next revocation on behalf of an admin. A repeated call has no further effect.
 * @returns `stale` if another revocation has this number, or an earlier one is missing
 */
export async function addRevocation(
  db: Database,
  requester: MemberRef,
  { number, bytes }: { number: number; bytes: Uint8Array },
): Promise<'done' | 'stale' | 'not_admin'> {
  const mesh = sql`${requester.meshId}::uuid`
  const statement = sql`${byteaText(bytes)}::bytea`
  const [row] = await execute<{ outcome: 'done' | 'stale' | 'not_admin' }>(
    db,
    sql`
      with allowed as materialized (select ${isAdmin(requester)} as is_so), added as (
        insert into ${memberRevocation} (${columnNames(memberRevocation.meshId, memberRevocation.number)}, statement)
        select ${mesh}, ${number}::int, ${statement} from allowed where is_so and ${number}::int = 1 + coalesce(
          (select max(v.number) from ${memberRevocation} v where v.mesh_id = ${mesh}), 0)
        on conflict do nothing returning 1
      )
      select case when not is_so then 'not_admin'
        when exists (select from added) or exists (select from ${memberRevocation} v
          where v.mesh_id = ${mesh} and v.number = ${number}::int and v.statement = ${statement}) then 'done'
        else 'stale' end as outcome from allowed`,
  )
  return row!.outcome
}
