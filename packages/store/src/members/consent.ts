/** From whom a peer accepts mail: its policy, and the peers it allows or blocks. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { columnNames, consent, execute, member } from '@sealpost/schema'
import type { MemberRef, PeerKey, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'

export interface ConsentChange {
  /** Null leaves it unchanged. */
  readonly policy: 'open' | 'contacts' | null
  /** The last one counts if a peer occurs twice. */
  readonly verdicts: readonly { readonly peer: PeerKey; readonly verdict: 'allowed' | 'blocked' | 'forgotten' }[]
}

export interface ConsentRecord {
  readonly policy: 'open' | 'contacts'
  /** Grows with each change. */
  readonly version: number
  /** Ordered by key. */
  readonly named: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey; readonly isBlocked: boolean }[]
}

/** The limit of peers that one peer allows or blocks. Two concurrent changes may exceed it. */
export const NAMED_MAX = 1000

/**
 * Applies the whole change, or nothing if it would exceed `NAMED_MAX`. Ignores the peer itself.
 * @returns the listed keys that were never members
 * @throws DatabaseError
 */
export async function changeConsent(
  db: Database,
  { meshId, peer }: MemberRef,
  { policy, verdicts }: ConsentChange,
): Promise<{ isDone: boolean; unknown: PeerKey[] }> {
  const mesh = sql`${meshId}::uuid`
  const owner = sql`${peer}::int`
  const rows = await execute<{ isDone: boolean; peerKey: PeerKey | null }>(
    db,
    sql`
      with named as materialized (
        -- A device represents its user: consent is between users.
        select distinct on (coalesce(m.person, m.peer_no)) coalesce(m.person, m.peer_no) as peer_no, g.verdict
        from unnest(${arrayLiteral(verdicts.map((v) => byteaText(v.peer)))}::bytea[],
          ${arrayLiteral(verdicts.map((v) => v.verdict))}::text[]) with ordinality as g (peer_key, verdict, place)
        join ${member} m on m.mesh_id = ${mesh} and m.peer_key = g.peer_key
        order by coalesce(m.person, m.peer_no), g.place desc
      ), others as (
        select n.peer_no, n.verdict from named n where n.peer_no <> ${owner}
      ), fitting as (
        select where ${NAMED_MAX} >= (select count(*) from others o where o.verdict <> 'forgotten') + (
          select count(*) from ${consent} c where c.mesh_id = ${mesh} and c.owner = ${owner}
            and not exists (select from others o where o.peer_no = c.peer_no))
      ), changed as (
        update ${member} set ${columnNames(member.consentVersion)} = ${member.consentVersion} + 1,
          ${columnNames(member.consentPolicy)} = coalesce(${policy}::text, ${member.consentPolicy})
        where ${member.meshId} = ${mesh} and ${member.peerNo} = ${owner} and ${member.revokedAt} is null
          and exists (select from fitting)
        returning ${columnNames(member.peerNo)} as owner
      ), deleted as (
        delete from ${consent} c using others o, changed
        where c.mesh_id = ${mesh} and c.owner = changed.owner and c.peer_no = o.peer_no and o.verdict = 'forgotten'
      ), kept as (
        insert into ${consent} (${columnNames(consent.meshId, consent.owner, consent.peerNo, consent.isBlocked)})
        select ${mesh}, changed.owner, o.peer_no, o.verdict = 'blocked' from changed, others o where o.verdict <> 'forgotten'
        on conflict (${columnNames(consent.meshId, consent.owner, consent.peerNo)})
        do update set ${columnNames(consent.isBlocked)} = excluded.is_blocked
      )
      select exists (select from changed) as "isDone", encode(m.peer_key, 'hex') as "peerKey"
      from (select) as one left join ${member} m on m.mesh_id = ${mesh}
        and m.peer_key = any (${arrayLiteral(verdicts.map((v) => byteaText(v.peer)))}::bytea[])`,
  )
  const known = new Set(rows.map(({ peerKey }) => peerKey))
  const unknown = verdicts.map(({ peer }) => peer).filter((peerKey) => !known.has(peerKey))
  return { isDone: rows[0]!.isDone, unknown: [...new Set(unknown)] }
}

/** Returns null if the peer is not a member. @throws DatabaseError */
export async function findConsent(db: Database, { meshId, peer }: MemberRef): Promise<ConsentRecord | null> {
  const rows = await execute<
    Pick<ConsentRecord, 'policy' | 'version'> & { peer: PeerNo | null; peerKey: PeerKey; isBlocked: boolean }
  >(
    db,
    sql`
      select m.consent_policy as policy, m.consent_version as version, c.peer_no as peer,
        encode(p.peer_key, 'hex') as "peerKey", c.is_blocked as "isBlocked"
      from ${member} m
      left join ${consent} c on c.mesh_id = m.mesh_id and c.owner = m.peer_no
      left join ${member} p on p.mesh_id = c.mesh_id and p.peer_no = c.peer_no
      where m.mesh_id = ${meshId}::uuid and m.peer_no = ${peer}::int
      order by p.peer_key limit ${NAMED_MAX}`,
  )
  const [first] = rows
  if (!first) return null
  const named = rows.flatMap(({ peer, peerKey, isBlocked }) => (peer === null ? [] : [{ peer, peerKey, isBlocked }]))
  return { policy: first.policy, version: first.version, named }
}
