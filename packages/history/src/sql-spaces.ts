/**
 * The statements of spaces and of key grants. Every change locks the space's row, exclusively or shared, and finds
 * `last_seq` negative while the mesh moves to another cell (docs/adr/0007-moving-a-mesh.md).
 */
import { isOfSpace, isOwnerOfSpace } from '@sealpost/store'

export const isOpen = (space: string) => `${space}.last_seq >= 0`
export const micros = (instant: string) => `(extract(epoch from ${instant}) * 1000000)::float8`

const SPACE = `s.space_id, s.epoch, s.statement, s.history_for, s.keeps_messages, s.keep_seconds, s.keep_bytes, s.key_epoch,
  case when s.last_seq < 0 then -1 - s.last_seq else s.last_seq end as last_seq, ${micros('s.last_at')} as last_at,
  (select sum(o.entry_bytes + o.history_bytes)::bigint from space o where o.mesh_id = s.mesh_id) as mesh_bytes,
  ${micros('s.kept_since')} as kept_since, s.entries, s.entry_bytes, s.history_bytes, ${micros('clock_timestamp()')} as now`

/** `$1–$3` mesh, space, and the peer that must belong to it. Reads: the primary keys of space and member. */
export const FIND_SPACE = `
select ${SPACE} from space s join member m on m.mesh_id = s.mesh_id and m.peer_no = $3::int
where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOfSpace('m', 's.space_id')}`

/**
 * Replaces an older statement. `$1–$3` mesh, space, the signing peer · `$4–$9` its terms. Returns no row if other terms
 * were stored concurrently; the next try sees them. Recorded history survives a change of terms, except when the space
 * stops keeping history.
 */
export const PUT_SPACE = `
with former as materialized (
  select statement, epoch from space where mesh_id = $1::uuid and space_id = $2::uuid
), home as materialized (
  select from mesh where mesh_id = $1::uuid and frozen_at is null
), asker as materialized (
  select m.peer_no from member m where m.mesh_id = $1::uuid and m.peer_no = $3::int and ${isOwnerOfSpace('m', '$2::uuid')}
), put as (
  insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, kept_since)
  select $1::uuid, $2::uuid, peer_no, $4::int, $5::bytea, $6::text, $7::bool, $8::int, $9::bigint,
    case when $6::text <> 'none' then clock_timestamp() end
  from asker, home
  on conflict (mesh_id, space_id) do update
  set (owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, kept_since) =
    (excluded.owner, excluded.epoch, excluded.statement, excluded.history_for, excluded.keeps_messages, excluded.keep_seconds,
     excluded.keep_bytes, case when excluded.history_for <> 'none' then coalesce(space.kept_since, excluded.kept_since) end)
  where space.epoch < excluded.epoch and ${isOpen('space')}
  returning true
)
select case when not exists (select from asker) then 'not_owner'
  when exists (select from put) or exists (select from former where statement = $5::bytea) then 'done'
  when exists (select from former where epoch >= $4::int) then 'stale'
  when not exists (select from home) then 'away' end as outcome`

const MEMBERS = `select m.peer_no, m.peer_key from member m where m.mesh_id = $1::uuid and ${isOfSpace('m', '$2::uuid')}`

const grantedTo = (m: string) => `coalesce((select max(g.key_epoch) from space_grant g
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = ${m}.peer_no), 0)`

export const COUNT_MEMBERS = `
with granted as materialized (
  select g.peer_no from space_grant g where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.key_epoch = $3::int
)
select count(*)::int as members,
  ((select count(*) from granted) - count(*) filter (where m.peer_no in (select peer_no from granted)))::int as departed
from (${MEMBERS}) m`

export const FIND_LACKING = `
select encode(m.peer_key, 'hex') as peer, ${grantedTo('m')} as key_epoch from (${MEMBERS}) m
where not exists (select from space_grant g
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = m.peer_no and g.key_epoch = $3::int)
order by m.peer_no limit $4::int`

export const LIST_MEMBERS = `
select encode(m.peer_key, 'hex') as peer, ${grantedTo('m')} as key_epoch from (${MEMBERS} and m.peer_key > $3::bytea) m
order by m.peer_key limit $4::int`

/**
 * Stores boxes for members, of the current key or the next one, which then becomes current: of two concurrent rotations
 * the second finds the first. A rotation deletes the boxes of departed members. `$1–$3` mesh, space, granter · `$4 $5`
 * the epoch that the granter believes to be current, and that of the boxes · `$6 $7` peers and boxes. Returns the epoch
 * that was current, or no row if the space is unknown, moving, or no longer open to the granter. An existing box is not
 * replaced.
 */
export const PUT_GRANTS = `
with held as materialized (
  select s.key_epoch from space s
  where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOpen('s')}
    and exists (select from (${MEMBERS}) m where m.peer_no = $3::int) for update
), turned as (
  update space set key_epoch = $5::int from held
  where space.mesh_id = $1::uuid and space.space_id = $2::uuid and held.key_epoch = $4::int and $5::int > $4::int
  returning true
), left_out as (
  delete from space_grant g using turned where g.mesh_id = $1::uuid and g.space_id = $2::uuid
    and not exists (select from (${MEMBERS}) m where m.peer_no = g.peer_no)
), granted as (
  insert into space_grant (mesh_id, space_id, peer_no, key_epoch, granter, box)
  select $1::uuid, $2::uuid, m.peer_no, $5::int, $3::int, b.box
  from held cross join unnest($6::bytea[], $7::bytea[]) as b(peer_key, box)
  cross join lateral (${MEMBERS} and m.peer_key = b.peer_key offset 0) m
  where held.key_epoch = $4::int
  on conflict do nothing
)
select key_epoch from held`

export const FIND_GRANTS = `
select g.key_epoch, encode(m.peer_key, 'hex') as granter, g.box from space_grant g
join member m on m.mesh_id = g.mesh_id and m.peer_no = g.granter
where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = $3::int and g.box is not null order by g.key_epoch`

/** The peer `$3` has the key `$4`, and needs no earlier box. Returns no row while the space is moving. */
export const GRANT_FETCHED = `
with held as materialized (
  select from space s where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOpen('s')} for share
), former as (
  delete from space_grant g using held
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = $3::int and g.key_epoch < $4::int
), fetched as (
  update space_grant g set box = null, fetched_at = clock_timestamp() from held
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = $3::int and g.key_epoch = $4::int and g.box is not null
)
select true as is_done from held`

/** The peer could not open the box `$4`: a member can make another. */
export const GRANT_USELESS = `
with held as materialized (
  select from space s where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOpen('s')} for share
), forgotten as (
  delete from space_grant g using held
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = $3::int and g.key_epoch = $4::int
)
select true as is_done from held`
