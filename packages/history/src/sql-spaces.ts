/**
 * Contains the statements for spaces, key grants and entries. Every change locks the space's row, exclusively or
 * shared, and sees a negative `last_seq` while the mesh moves to another cell (docs/adr/0007-moving-a-mesh.md).
 */
import { isOfSpace, isOwnerOfSpace } from '@sealpost/store'

export const isOpen = (space: string) => `${space}.last_seq >= 0`
export const micros = (instant: string) => `(extract(epoch from ${instant}) * 1000000)::float8`

const SPACE = `s.space_id, s.epoch, s.statement, s.history_for, s.keeps_messages, s.keep_seconds, s.keep_bytes, s.key_epoch,
  case when s.last_seq < 0 then -1 - s.last_seq else s.last_seq end as last_seq, ${micros('s.last_at')} as last_at,
  (select sum(o.entry_bytes + o.history_bytes)::bigint from space o where o.mesh_id = s.mesh_id) as mesh_bytes,
  ${micros('s.kept_since')} as kept_since, s.entries, s.entry_bytes, s.history_bytes, ${micros('clock_timestamp()')} as now`

/**
 * Finds a space. `$1–$3`: the mesh, the space, and the peer, which must belong to the space. Reads: the primary keys of
 * space and member.
 */
export const FIND_SPACE = `
select ${SPACE} from space s join member m on m.mesh_id = s.mesh_id and m.peer_no = $3::int
where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOfSpace('m', 's.space_id')}`

/**
 * Replaces older terms. `$1–$3` mesh, space, the signing peer · `$4–$9` the terms. Returns no row if other terms were
 * stored concurrently. History survives a change of terms unless the space stops keeping it.
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
 * Stores boxes for members, with the current key or the next one, which then becomes current. A rotation deletes the
 * boxes of departed members. `$1–$3` mesh, space, granter · `$4 $5` the epoch that the granter believes to be current,
 * and the epoch of the boxes · `$6 $7` peers and boxes. Returns the epoch that was current, or no row if the space is
 * unknown, moving, or no longer open to the granter. An existing box is not replaced.
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

/**
 * Marks the key of epoch `$4` as stored by peer `$3`, which needs no earlier boxes. Returns no row while the space is
 * moving.
 */
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

/** Marks the box of epoch `$4` as useless, so that a member makes another one. */
export const GRANT_USELESS = `
with held as materialized (
  select from space s where s.mesh_id = $1::uuid and s.space_id = $2::uuid and ${isOpen('s')} for share
), forgotten as (
  delete from space_grant g using held
  where g.mesh_id = $1::uuid and g.space_id = $2::uuid and g.peer_no = $3::int and g.key_epoch = $4::int
)
select true as is_done from held`

/**
 * Locks spaces, so that `WRITE_ENTRIES` in the same transaction sees the results of earlier writers, and `seq` follows
 * the commit order. `$1 $2`: their meshes and ids, in an order that all shards share. Reads: the primary key of space.
 */
export const LOCK_SPACES = `
select s.space_id from unnest($1::uuid[], $2::uuid[]) as k(mesh_id, space_id)
cross join lateral (select space_id from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id offset 0 for update) s`

const NO_ENTRY = `'\\x${'00'.repeat(32)}'::bytea`

/**
 * `$1 $2` the spaces, in lock order · `$3–$11` entries, at most one per key: index of the space from 1, key hash,
 * revision, hash of the previous entry, hash of this one, author, whether it deletes, epoch of its space key, length ·
 * `$12` all entries, concatenated · `$13–$15` maximum entries and bytes of a space, and maximum bytes of entries and
 * history of a mesh.
 *
 * Returns a row for each entry, in the order of the entries: the status (`+` written, `=` already stored, `!` conflict,
 * `k` sealed under another epoch's key, `q` quota exceeded, `<` the mesh is moving, `?` no such space, or the author no
 * longer belongs to it), seq and time of the write, and in a conflict the current entry.
 *
 * Reads: the primary keys of space, state_entry, and of member and peer_group for each author.
 */
export const WRITE_ENTRIES = `
with place as materialized (
  select s.*, k.n as place, greatest(clock_timestamp(), s.last_at + interval '1 microsecond') as now,
    $15::bigint - (select sum(o.entry_bytes + o.history_bytes) from space o where o.mesh_id = s.mesh_id) as mesh_room
  from unnest($1::uuid[], $2::uuid[]) with ordinality as k(mesh_id, space_id, n)
  cross join lateral (select * from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id offset 0) s
), input as materialized (
  select i.*, substring((select $12::bytea) from (sum(i.size) over (order by i.n) - i.size + 1)::int for i.size) as entry
  from unnest($3::int[], $4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[], $8::int[], $9::bool[], $10::int[], $11::int[])
    with ordinality as i(place, key_hash, revision, former, hash, author, is_deleted, key_epoch, size, n)
), known as materialized (
  select i.place, i.author from (select distinct place, author from input) i join place p on p.place = i.place
  cross join lateral (select from member m
    where m.mesh_id = p.mesh_id and m.peer_no = i.author and ${isOfSpace('m', 'p.space_id')} offset 0) m
), met as materialized (
  select i.*, p.mesh_id, p.space_id, p.last_seq, p.now, p.entries, p.entry_bytes, p.mesh_room, p.kept_since is not null as is_kept,
    e.hash as standing_hash, e.seq as standing_seq, e.at as standing_at, e.entry as standing_entry,
    (e.hash is null)::int as entries_more, i.size - coalesce(octet_length(e.entry), 0) as bytes_more,
    case when p.kept_since is null then 0 else i.size end as history_more,
    case when p.place is null then '?' when not ${isOpen('p')} then '<' when e.hash = i.hash then '='
      when k.author is null then '?'
      when i.key_epoch <> p.key_epoch then 'k'
      when i.revision <> coalesce(e.revision, 0) + 1 or i.former <> coalesce(e.hash, ${NO_ENTRY}) then '!'
      else '+' end as status
  from input i left join place p on p.place = i.place left join known k on k.place = i.place and k.author = i.author
  left join lateral (select * from state_entry e
    where e.mesh_id = p.mesh_id and e.space_id = p.space_id and e.key_hash = i.key_hash offset 0) e on true
), fitting as (
  select m.*, status = '+' and (is_deleted or (
      entries + sum(entries_more) filter (where status = '+') over up_to <= $13::int
      and entry_bytes + sum(bytes_more) filter (where status = '+') over up_to <= $14::bigint
      and sum(bytes_more + history_more) filter (where status = '+') over up_to <= mesh_room)) as is_written
  from met m window up_to as (partition by place order by n)
), numbered as materialized (
  select f.*, last_seq + count(*) filter (where is_written) over up_to as new_seq,
    now + (count(*) filter (where is_written) over up_to - 1) * interval '1 microsecond' as new_at
  from fitting f window up_to as (partition by place order by n)
), written as materialized (
  select *, new_seq as seq, new_at as at from numbered where is_written
), counted as (
  update space s set last_seq = c.seq, last_at = c.at, entries = s.entries + c.entries,
    entry_bytes = s.entry_bytes + c.bytes, history_bytes = s.history_bytes + c.history
  from (select mesh_id, space_id, max(seq) as seq, max(at) as at, sum(entries_more) as entries, sum(bytes_more) as bytes,
    sum(history_more) as history from written group by mesh_id, space_id) c
  where s.mesh_id = c.mesh_id and s.space_id = c.space_id
), stood as (
  insert into state_entry (mesh_id, space_id, key_hash, revision, seq, at, author, is_deleted, entry, hash)
  select mesh_id, space_id, key_hash, revision, seq, at, author, is_deleted, entry, hash from written
  on conflict (mesh_id, space_id, key_hash) do update set (revision, seq, at, author, is_deleted, entry, hash) =
    (excluded.revision, excluded.seq, excluded.at, excluded.author, excluded.is_deleted, excluded.entry, excluded.hash)
), happened as (
  insert into history_event (mesh_id, space_id, seq, at, kind, key_hash, former_seq, author, record)
  select mesh_id, space_id, seq, at, case when is_deleted then 2 else 1 end, key_hash, standing_seq, author, entry from written where is_kept
)
select case when status = '+' and not is_written then 'q' else status end,
  case when is_written then new_seq when status = '=' then standing_seq end,
  case when is_written then ${micros('new_at')} when status = '=' then ${micros('standing_at')} end,
  case when status = '!' then encode(standing_entry, 'hex') end
from numbered order by n`
