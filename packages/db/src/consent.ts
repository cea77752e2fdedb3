/** Whom a peer takes mail from: its policy, and the peers it has allowed or blocked. */
import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { consent, member } from './schema.ts'

/** A member, by its number. */
export interface Owner {
  readonly meshId: MeshId
  readonly peer: PeerNo
}

export interface ConsentChange {
  /** Null: as it is. */
  readonly policy: 'open' | 'contacts' | null
  /** Of a peer that is named twice the last word counts. */
  readonly verdicts: readonly { readonly peer: PeerKey; readonly verdict: 'allowed' | 'blocked' | 'forgotten' }[]
}

export interface ConsentRecord {
  readonly policy: 'open' | 'contacts'
  /** Grows with each change. */
  readonly version: number
  /** By their keys. */
  readonly named: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey; readonly isBlocked: boolean }[]
}

/** Peers that one peer may have allowed or blocked. Of two changes at the same moment both may fit. */
export const NAMED_MAX = 1000

/**
 * All of the change or, when more than `NAMED_MAX` would be named, nothing of it. Naming oneself changes nothing.
 * @returns the named keys that were never members
 * @throws DatabaseError
 */
export async function changeConsent(
  db: Database,
  { meshId, peer }: Owner,
  { policy, verdicts }: ConsentChange,
): Promise<{ isDone: boolean; unknown: PeerKey[] }> {
  const mesh = sql`${meshId}::uuid`
  const owner = sql`${peer}::int`
  const rows = await execute<{ isDone: boolean; peerKey: PeerKey | null }>(
    db,
    sql`
      with named as materialized (
        -- A device stands for its person: consent is between people.
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
        update ${member} set ${names(member.consentVersion)} = ${member.consentVersion} + 1,
          ${names(member.consentPolicy)} = coalesce(${policy}::text, ${member.consentPolicy})
        where ${member.meshId} = ${mesh} and ${member.peerNo} = ${owner} and ${member.revokedAt} is null
          and exists (select from fitting)
        returning ${names(member.peerNo)} as owner
      ), forgotten as (
        delete from ${consent} c using others o, changed
        where c.mesh_id = ${mesh} and c.owner = changed.owner and c.peer_no = o.peer_no and o.verdict = 'forgotten'
      ), kept as (
        insert into ${consent} (${names(consent.meshId, consent.owner, consent.peerNo, consent.isBlocked)})
        select ${mesh}, changed.owner, o.peer_no, o.verdict = 'blocked' from changed, others o where o.verdict <> 'forgotten'
        on conflict (${names(consent.meshId, consent.owner, consent.peerNo)})
        do update set ${names(consent.isBlocked)} = excluded.is_blocked
      )
      select exists (select from changed) as "isDone", encode(m.peer_key, 'hex') as "peerKey"
      from (select) as one left join ${member} m on m.mesh_id = ${mesh}
        and m.peer_key = any (${arrayLiteral(verdicts.map((v) => byteaText(v.peer)))}::bytea[])`,
  )
  const known = new Set(rows.map(({ peerKey }) => peerKey))
  const unknown = verdicts.map(({ peer }) => peer).filter((peerKey) => !known.has(peerKey))
  return { isDone: rows[0]!.isDone, unknown: [...new Set(unknown)] }
}

/** Null for one that is no member. @throws DatabaseError */
export async function findConsent(db: Database, { meshId, peer }: Owner): Promise<ConsentRecord | null> {
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
