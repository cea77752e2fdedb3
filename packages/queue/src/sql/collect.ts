/** What other shards leased at birth to sessions of this one is only read: no lock, no lease, nothing to write. */
import { deliveryColumns, isBornElsewhere, isFree, isStruckOut, LEASE_FUTURE_MAX } from './parts.ts'

/**
 * Per want what was leased to it, in the order of ids, up to the first delivery that only a claim may take: one that is free,
 * or whose lease has less than half of its time left. Past that one there could be newer mail of its sender.
 *
 * `$1` shard · `$2–$6` wants: mesh, peer, epoch, limit, limit in bytes · `$7 $8` their first and last id, of one block, so
 * that they were committed in this order · `$9` half a lease, in seconds · `$10 $11` strikes, and the seconds they must span, of
 * a dead delivery. Answers, to be read in binary, a row for each delivery of a want, the place of this want before it, and whether
 * only a claim may take it; one without a delivery for a want that has none; and no row for a session that is not current.
 *
 * Walks: the primary keys of session, message_queue, member and shared_body.
 */
export const COLLECT = `
select w.n::int, q.is_bar, ${deliveryColumns('q', 'w.mesh_id')}
from unnest($2::uuid[], $3::int[], $4::bigint[], $5::int[], $6::int[], $7::bigint[], $8::bigint[])
  with ordinality as w(mesh_id, peer, epoch, lim, lim_bytes, from_id, to_id, n)
cross join lateral (select from session s
  where s.mesh_id = w.mesh_id and s.peer_no = w.peer and s.epoch = w.epoch and s.shard = $1::uuid offset 0) s
left join lateral (
  select q.* from (
    select q.*, sum(q.size) over (order by q.id rows unbounded preceding) - q.size as bytes_before
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
  ) q
  where q.bytes_before < w.lim_bytes
) q on true`
