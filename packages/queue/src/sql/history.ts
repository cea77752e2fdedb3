/**
 * Messages that are kept, at the end of a commit: an event for each, in the transaction that stores its deliveries. Spaces
 * are locked behind marks, in an order that all shards share, and what follows sees what those it waited for have done.
 */

import { isOfSpace } from '@sealpost/store'

/** `$1 $2` mesh and space. Walks: the primary key of space. */
export const LOCK_SPACES = `
select s.space_id from unnest($1::uuid[], $2::uuid[]) as k(mesh_id, space_id)
cross join lateral (select space_id from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id offset 0 for update) s`

/**
 * `$1 $2` the spaces, as they were locked · `$3–$6` messages: place of their space from 1, sender, id of their shared body,
 * record. A message none of whose deliveries was stored is passed by, as is one of a sender who does not belong to the space
 * any more, whatever its shard believes, and one that is kept already: said again, it has envelopes of its own, maybe days later.
 *
 * Walks: the primary keys of space, shared_body, member and peer_group, `message_queue_body` and `history_event_body`.
 */
export const KEEP_MESSAGES = `
with place as materialized (
  select s.mesh_id, s.space_id, s.last_seq, k.n as place, greatest(clock_timestamp(), s.last_at + interval '1 microsecond') as now
  from unnest($1::uuid[], $2::uuid[]) with ordinality as k(mesh_id, space_id, n)
  cross join lateral (select * from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id
    and s.keeps_messages and s.kept_since is not null and s.last_seq >= 0 offset 0) s
), said as materialized (
  select p.*, m.sender, m.body_id, m.record, b.bytes, row_number() over (partition by p.place order by m.n) as k
  from unnest($3::int[], $4::int[], $5::bytea[], $6::bytea[]) with ordinality as m(place, sender, body_id, record, n)
  join place p on p.place = m.place
  cross join lateral (select b.bytes from shared_body b
    where b.mesh_id = p.mesh_id and b.sender = m.sender and b.body_id = m.body_id offset 0) b
  where exists (select from message_queue q where q.mesh_id = p.mesh_id and q.sender = m.sender and q.body_id = m.body_id)
    and not exists (select from history_event h where h.mesh_id = p.mesh_id and h.space_id = p.space_id
      and h.body_id = m.body_id and h.author = m.sender and h.at > now() - interval '3 days')
    and exists (select from member a
      where a.mesh_id = p.mesh_id and a.peer_no = m.sender and ${isOfSpace('a', 'p.space_id')})
), counted as (
  update space s set last_seq = c.seq, last_at = c.at, history_bytes = s.history_bytes + c.bytes
  from (select mesh_id, space_id, max(last_seq + k) as seq, max(now + (k - 1) * interval '1 microsecond') as at,
    sum(length(record) + length(bytes)) as bytes from said group by mesh_id, space_id) c
  where s.mesh_id = c.mesh_id and s.space_id = c.space_id
)
insert into history_event (mesh_id, space_id, seq, at, kind, author, record, body_id, body)
select mesh_id, space_id, last_seq + k, now + (k - 1) * interval '1 microsecond', 3, sender, record, body_id, bytes from said`
