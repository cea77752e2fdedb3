/**
 * Writes entries in one transaction of two statements, sent at once. The first locks the spaces; the second sees the
 * results of the writers that it waited for, and checks and writes. So one of two writers of a revision wins, and `seq`
 * follows the order of commits: the numbers of a transaction are consecutive, and a reader that reads up to the number
 * in the space's row has seen all of them.
 */
import { isOfSpace } from '@sealpost/store'
import { isOpen, micros } from './sql-spaces.ts'

/** `$1 $2` mesh and space, in an order that all shards share. Reads: the primary key of space. */
export const LOCK_SPACES = `
select s.space_id from unnest($1::uuid[], $2::uuid[]) as k(mesh_id, space_id)
cross join lateral (select space_id from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id offset 0 for update) s`

const NO_ENTRY = `'\\x${'00'.repeat(32)}'::bytea`

/**
 * `$1 $2` the spaces, in the order of the locks · `$3–$11` entries, no two of one key: index of the space from 1, key
 * hash, revision, hash of the previous entry, hash of this one, author, whether it deletes, epoch of its space key,
 * length · `$12` all entries, concatenated · `$13–$15` maximum entries and bytes of a space, and maximum bytes of
 * entries and history of a mesh.
 *
 * Returns a row for each, in their order: the status (`+` written, `=` already stored, `!` conflict, `k` sealed under
 * another epoch's key, `q` quota exceeded, `<` the mesh is moving, `?` no such space, or the author no longer belongs
 * to it), seq and time of the write, and in a conflict the current entry.
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
