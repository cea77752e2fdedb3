/** What other shards leased at birth to sessions of this one is only read: no lock, no lease, nothing to write. */
import { isBornElsewhere, isFree, isStruckOut, LEASE_FUTURE_MAX } from './sql-parts.ts'

/**
 * Per want what was leased to it, in the order of ids, up to the first delivery that only a claim may take: one that is free,
 * or whose lease has less than half of its time left. Past that one there could be newer mail of its sender.
 *
 * `$1` shard · `$2–$6` wants: mesh, peer, epoch, limit, limit in bytes · `$7 $8` their first and last id, of one block, so
 * that they were committed in this order · `$9` half a lease, in seconds · `$10 $11` strikes, and the seconds they must span, of
 * a dead delivery. Answers a row for each want, with all its deliveries as one `bytea` (`records.ts`): a row and its columns
 * as text cost Postgres and the broker twice as much.
 *
 * Walks: session's and message_queue's primary keys.
 */
export const COLLECT = `
select w.n::int, coalesce((select true from session s
    where s.mesh_id = w.mesh_id and s.peer_no = w.peer and s.epoch = w.epoch and s.shard = $1::uuid), false) as is_current,
  found.*
from unnest($2::uuid[], $3::int[], $4::bigint[], $5::int[], $6::int[], $7::bigint[], $8::bigint[])
  with ordinality as w(mesh_id, peer, epoch, lim, lim_bytes, from_id, to_id, n)
cross join lateral (
  select coalesce(bool_or(q.is_barred), false) as is_barred, string_agg(record_send(row(q.id, q.priority, q.enqueued_at,
      q.envelope_id,
      (select m.peer_key from member m where m.mesh_id = w.mesh_id and m.peer_no = q.sender),
      q.terms,
      case when q.body_id is not null then (select b.bytes from shared_body b
        where b.mesh_id = w.mesh_id and b.sender = q.sender and b.body_id = q.body_id) end,
      q.envelope)), ''::bytea) filter (where not q.is_barred and q.bytes_before < w.lim_bytes) as deliveries
  from (
    select q.*, bool_or(q.is_bar) over ids as is_barred, sum(q.size) over ids - q.size as bytes_before
    from (
      select q.id, q.priority, q.enqueued_at, q.envelope_id, q.sender, q.terms, q.body_id, q.envelope,
        octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size,
        not (${isBornElsewhere('q', 'w.epoch')} and q.lease_until > clock_timestamp() + make_interval(secs => $9::float8)
          and q.lease_until <= clock_timestamp() + ${LEASE_FUTURE_MAX}) as is_bar
      from message_queue q
      where q.mesh_id = w.mesh_id and q.recipient = w.peer and q.priority = any ('{0,1,2}'::smallint[])
        and q.id between w.from_id and w.to_id
        and (${isBornElsewhere('q', 'w.epoch')} or ${isFree('q', 'w.epoch')})
        and q.expires_at > clock_timestamp() and not ${isStruckOut('q', '$10', '$11')}
      order by q.id limit w.lim
    ) q
    window ids as (order by q.id rows unbounded preceding)
  ) q
) found`
