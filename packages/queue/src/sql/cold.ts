/**
 * Contains the statements outside the message path: rejects, receipts, recorded messages, members, measurements,
 * sweeps.
 */
import { sqlStatement } from '@sealpost/pg'
import { isOfSpace } from '@sealpost/store'
import {
  DELIVERIES,
  HELD,
  isFrozen,
  isHeld,
  isReceipt,
  isStruckOut,
  LEASE_FUTURE_MAX,
  LIMITS,
  named,
  RECEIPTS,
  sendReceipts,
} from './parts.ts'

/** Moves rejected deliveries to the dead letters, with the recipients' reasons. Walks: message_queue's primary key. */
export const REJECT = sqlStatement(
  `${HELD}, reasons text[]`,
  `
with gone as (
  delete from message_queue q
  using ${named({ column: 'said', parameter: 'reasons' })}
  where q.ctid = r.ctid and ${isHeld('q')}
  returning q.*, r.said, ${RECEIPTS.rejected} as receipt
), kept as (
  insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason,
    detail, told_at, terms, body_id, body_bytes, envelope)
  select mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, 'rejected', said,
    clock_timestamp(), terms, body_id, body_bytes, envelope
  from gone where not ${isReceipt('gone')}
)${sendReceipts('gone')}`,
)

/**
 * Extends leases, but not so far that they look like leases from before a clock jump. Walks: message_queue's primary
 * key.
 */
export const EXTEND = sqlStatement(
  `${HELD}, forSeconds float8[]`,
  `
update message_queue q
set lease_until = clock_timestamp() + least(make_interval(secs => r.seconds), ${LEASE_FUTURE_MAX})
from ${named({ column: 'seconds', parameter: 'forSeconds' })}
where q.ctid = r.ctid and ${isHeld('q')}`,
)

/**
 * Returns deliveries to their queues. `untouched`: 1 for each delivery whose attempt does not count, otherwise 0. A
 * repeated call changes nothing. Walks: message_queue's primary key.
 */
export const RELEASE = sqlStatement(
  `${HELD}, untouched int[]`,
  `
update message_queue q set lease_epoch = null, lease_holder = null, lease_until = null,
  attempts = greatest(q.attempts - r.untouched, 0)
from ${named({ column: 'untouched', parameter: 'untouched' })}
where q.ctid = r.ctid and ${isHeld('q')}`,
)

/** Sends requested `pushed` receipts, unless the delivery has ended. Walks: message_queue's primary key. */
export const NOTIFY_PUSHED = sqlStatement(
  DELIVERIES,
  `
with gone as (
  select found.*, ${RECEIPTS.pushed} as receipt
  from unnest(:meshes, :recipients, :priorities, :ids) as r(mesh_id, recipient, priority, id)
  cross join lateral (select q.* from message_queue q where q.mesh_id = r.mesh_id and q.recipient = r.recipient
    and q.priority = r.priority and q.id = r.id offset 0) found
)${sendReceipts('gone')}`,
)

/**
 * Moves up to `max` due deliveries of each mesh into the queue, under their ids. Returns the recipients, and the
 * seconds until the next delivery is due. Walks: delayed_delivery's primary key.
 */
export const RELEASE_DUE = sqlStatement(
  'max int',
  `
with due as materialized (
  select found.ctid from mesh m cross join lateral (
    select d.ctid from delayed_delivery d where d.mesh_id = m.mesh_id and d.due_at <= clock_timestamp()
    order by d.due_at, d.id limit :max for update skip locked) found
), gone as (
  delete from delayed_delivery d using due where d.ctid = due.ctid returning d.*
), queued as (
  insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, enqueued_at, expires_at, terms, body_id,
    body_bytes, envelope)
  select mesh_id, recipient, priority, id, sender, envelope_id, enqueued_at, expires_at, terms, body_id, body_bytes,
    envelope from gone
)
select replace(mesh_id::text, '-', '') as mesh_id, recipient as peer, null::float8 as next_seconds from gone
union all
select null, null, extract(epoch from min(found.due_at) - clock_timestamp())::float8
from mesh m cross join lateral (select d.due_at from delayed_delivery d
  where d.mesh_id = m.mesh_id and d.due_at > clock_timestamp() order by d.due_at limit 1) found`,
)

/**
 * Finds deliveries that left these peers' queues unsettled and were not reported to them. `n`: the peer's position.
 * Walks: dead_letter_untold, member's primary key.
 */
export const FIND_LOST = sqlStatement(
  'meshes uuid[], peers int[], limits int[]',
  `
select r.n::int, l.id, replace(l.envelope_id::text, '-', '') as envelope_id, l.reason,
  (select encode(m.peer_key, 'hex') from member m where m.mesh_id = r.mesh_id and m.peer_no = l.sender) as sender
from unnest(:meshes, :peers, :limits) with ordinality as r(mesh_id, peer, lim, n) cross join lateral (
  select l.id, l.envelope_id, l.reason, l.sender from dead_letter l where l.mesh_id = r.mesh_id and l.recipient = r.peer and l.told_at is null
  order by l.id limit r.lim) l
order by r.n, l.id`,
)

/** Marks lost deliveries as reported. Walks: dead_letter's primary key. */
export const LOST_REPORTED = sqlStatement(
  'mesh uuid, peer int, ids bigint[]',
  `
update dead_letter set told_at = clock_timestamp()
where mesh_id = :mesh and recipient = :peer and id = any (:ids)`,
)

/**
 * Moves expired deliveries, and those with too many failed attempts, out of the next `max` rows after a key. Walks the
 * table, because an index on the expiry would make every message more expensive. Returns the last key, and the numbers
 * of rows seen and moved.
 */
export const SWEEP_QUEUE = sqlStatement(
  `mesh uuid, recipient int, priority smallint, id bigint, max int, ${LIMITS}`,
  `
with seen as materialized (
  select ctid, mesh_id, recipient, priority, id, expires_at <= clock_timestamp() as is_expired,
    ${isStruckOut('message_queue')} and coalesce(lease_until <= clock_timestamp() or lease_epoch is null, true) as is_dead
  from message_queue where (mesh_id, recipient, priority, id) > (:mesh, :recipient, :priority, :id)
  order by mesh_id, recipient, priority, id limit :max
), doomed as materialized (
  select s.is_expired, found.ctid from seen s cross join lateral (
    select q.ctid from message_queue q where q.ctid = s.ctid offset 0 for update skip locked) found
  where s.is_expired or s.is_dead
), gone as (
  delete from message_queue q using doomed s where q.ctid = s.ctid
  returning q.*, s.is_expired, case when s.is_expired then ${RECEIPTS.expired} else ${RECEIPTS.struck_out} end as receipt
), kept as (
  insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason,
    terms, body_id, body_bytes, envelope)
  select mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at,
    case when is_expired then 'expired' else 'strikes' end, terms, case when not is_expired then body_id end,
    case when not is_expired then body_bytes end, case when not is_expired then envelope end
  from gone where not ${isReceipt('gone')}
), told as (${sendReceipts('gone')})
select (select count(*) from seen)::int as seen, (select count(*) from gone where is_expired)::int as expired,
  (select count(*) from gone where not is_expired)::int as dead, last.*
from (select 1) as one left join (
  select replace(mesh_id::text, '-', '') as mesh_id, recipient, priority, id from seen
  order by seen.mesh_id desc, recipient desc, priority desc, id desc limit 1) as last on true`,
)

/**
 * Deletes up to `max` due ledger rows of each mesh. A row whose delivery is still queued stays for another
 * `dedupeSeconds`. Walks: dedupe_ledger_due, message_queue's primary key.
 */
export const SWEEP_LEDGER = sqlStatement(
  'dedupeSeconds float8, max int',
  `
with due as materialized (
  select d.ctid, exists (
      select from unnest(d.recipients, d.priorities, d.ids) as u(recipient, priority, id)
      -- No second exists: planned on an empty table it became a join that walks the whole mesh.
      where (select true from message_queue q where q.mesh_id = d.mesh_id and q.recipient = u.recipient
        and q.priority = u.priority and q.id = u.id)) as is_queued
  from mesh m cross join lateral (
    select d.ctid, d.* from dedupe_ledger d where d.mesh_id = m.mesh_id and d.keep_until <= clock_timestamp()
    order by d.keep_until limit :max) d
), kept as (
  update dedupe_ledger d set keep_until = clock_timestamp() + make_interval(secs => :dedupeSeconds)
  from due where due.is_queued and d.ctid = due.ctid
), forgotten as (
  delete from dedupe_ledger d using due
  where not due.is_queued and d.ctid = due.ctid
  returning cardinality(d.ids) as size
)
select coalesce(sum(size), 0)::int as forgotten from forgotten`,
)

/**
 * Finds members by key; `n`: the key's position. For a device, the consent is the user's. Walks: member_peer_key;
 * member's, session's, mesh's and consent's primary keys.
 */
export const FIND_MEMBERS = sqlStatement(
  'meshes uuid[], peerKeys bytea[]',
  `
select k.n::int, m.peer_no, p.peer_no as person, m.peer_key, m.box_key, m.box_epoch, m.binding_not_after_ms, m.binding_signature,
  m.revoked_at is not null or coalesce(m.vouched_until < clock_timestamp(), false) as is_revoked,
  coalesce((select s.epoch from session s where s.mesh_id = m.mesh_id and s.peer_no = m.peer_no), -1) as session_epoch,
  (select replace(v.lineage || ' ' || v.lineage_in, '-', '') from mesh v where v.mesh_id = m.mesh_id) as lineage,
  p.consent_policy, p.consent_version, array_to_string(array(
    select c.peer_no from consent c where c.mesh_id = p.mesh_id and c.owner = p.peer_no
      and c.is_blocked = (p.consent_policy = 'open')), ',') as consent_named
from unnest(:meshes, :peerKeys) with ordinality as k(mesh_id, peer_key, n) cross join lateral (
  select * from member m where m.mesh_id = k.mesh_id and m.peer_key = k.peer_key and not m.is_pool offset 0) m cross join lateral (
  select * from member p where p.mesh_id = m.mesh_id and p.peer_no = coalesce(m.person, m.peer_no) offset 0) p`,
)

/** Checks sessions of this shard; `n`: the session's position. Walks: member's, session's and mesh's primary keys. */
export const CHECK_SESSIONS = sqlStatement(
  'shard uuid, meshes uuid[], peers int[], epochs bigint[]',
  `
select r.n::int, m.peer_key, m.revoked_at is not null as is_revoked,
  s.epoch > r.epoch and s.shard is distinct from :shard as is_elsewhere, ${isFrozen('r.mesh_id')} as is_away
from unnest(:meshes, :peers, :epochs) with ordinality as r(mesh_id, peer, epoch, n)
left join lateral (select * from member m where m.mesh_id = r.mesh_id and m.peer_no = r.peer offset 0) m
  on m.peer_key is not null
left join lateral (select * from session s where s.mesh_id = r.mesh_id and s.peer_no = r.peer offset 0) s on true`,
)

/**
 * Deletes the shared bodies without references among the next `max` after a key. Keeps recent bodies, whose deliveries
 * may not be stored yet. Returns the last key and the number of bodies seen. Walks: shared_body's primary key,
 * message_queue_body, dead_letter_body, delayed_delivery_body.
 */
export const SWEEP_BODIES = sqlStatement(
  'mesh uuid, sender int, bodyId bytea, max int',
  `
with seen as materialized (
  select b.ctid, b.mesh_id, b.sender, b.body_id, b.stored_at < clock_timestamp() - interval '10 minutes' and not coalesce((
      select true from message_queue q where q.mesh_id = b.mesh_id and q.sender = b.sender and q.body_id = b.body_id limit 1),
    false) and not coalesce((
      select true from dead_letter d where d.mesh_id = b.mesh_id and d.sender = b.sender and d.body_id = b.body_id limit 1),
    false) and not coalesce((
      select true from delayed_delivery d where d.mesh_id = b.mesh_id and d.sender = b.sender and d.body_id = b.body_id limit 1),
    false) as is_over
  from shared_body b where (b.mesh_id, b.sender, b.body_id) > (:mesh, :sender, :bodyId)
  order by b.mesh_id, b.sender, b.body_id limit :max
), gone as (
  delete from shared_body b using seen s where s.is_over and b.ctid = s.ctid
)
select (select count(*) from seen)::int as seen, last.* from (select 1) as one left join (
  select replace(mesh_id::text, '-', '') as mesh_id, sender, body_id from seen
  order by seen.mesh_id desc, sender desc, body_id desc limit 1) as last on true`,
)

/** Selects the user of `s.sender`, by a subquery that statistics can't turn into a scan. */
const personOf = (mesh: string) =>
  `coalesce((select m.person from member m where m.mesh_id = ${mesh} and m.peer_no = s.sender), s.sender)`

/**
 * Counts a mesh's backlog and dead letters by user, up to `max` rows of each kind. Walks: the primary keys of
 * message_queue, delayed_delivery, dead_letter and member.
 */
export const MEASURE_MESH = sqlStatement(
  'mesh uuid, max int',
  `
select ${personOf(':mesh')} as sender, sum(s.count)::int as count, sum(s.bytes)::float8 as bytes from (
select found.sender, count(*)::int as count, coalesce(sum(found.size), 0)::float8 as bytes from (
  (select q.sender, octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size from message_queue q
    where q.mesh_id = :mesh and not ${isReceipt('q')} limit :max)
  union all
  (select d.sender, octet_length(d.envelope) + coalesce(d.body_bytes, 0) from delayed_delivery d
    where d.mesh_id = :mesh limit :max)
  union all
  (select l.sender, l.bytes from dead_letter l
    where l.mesh_id = :mesh limit :max)
) found
group by found.sender) s
group by 1`,
)

/**
 * Counts recipients' backlogs by user, up to `max` rows of each kind. Omits receipts, which a recipient can't refuse.
 * Walks: message_queue's primary key, delayed_delivery_recipient, member's primary key.
 */
export const MEASURE = sqlStatement(
  'meshes uuid[], recipients int[], max int',
  `
select s.n, ${personOf('s.mesh_id')} as sender, sum(s.count)::int as count, sum(s.bytes)::float8 as bytes from (
select w.n::int, w.mesh_id, found.sender, count(*)::int as count, sum(found.size)::float8 as bytes
from unnest(:meshes, :recipients) with ordinality as w(mesh_id, recipient, n)
cross join lateral (
  (select q.sender, octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size from message_queue q
    where q.mesh_id = w.mesh_id and q.recipient = w.recipient and not ${isReceipt('q')} limit :max)
  union all
  (select d.sender, octet_length(d.envelope) + coalesce(d.body_bytes, 0) from delayed_delivery d
    where d.mesh_id = w.mesh_id and d.recipient = w.recipient limit :max)
) found
group by w.n, w.mesh_id, found.sender) s
group by 1, 2`,
)

/** Locks spaces in an order that all shards share. Walks: the primary key of space. */
export const LOCK_SPACES = sqlStatement(
  'meshes uuid[], spaces uuid[]',
  `
select s.space_id from unnest(:meshes, :spaces) as k(mesh_id, space_id)
cross join lateral (select space_id from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id offset 0 for update) s`,
)

/**
 * Records messages at the end of a commit, as events of their spaces. A message refers to its space by position, from
 * 1. An earlier step locked the spaces after the marks, so this statement sees the changes of the transactions that the
 * lock waited for.
 *
 * It skips a message without a stored delivery, one whose sender no longer belongs to the space, and one that was
 * recorded earlier. (A message may be sent again in new envelopes, even days later.)
 *
 * Walks: the primary keys of space, shared_body, member and peer_group, `message_queue_body` and `history_event_body`.
 */
export const RECORD_MESSAGES = sqlStatement(
  'meshes uuid[], spaces uuid[], places int[], senders int[], bodyIds bytea[], records bytea[]',
  `
with place as materialized (
  select s.mesh_id, s.space_id, s.last_seq, k.n as place, greatest(clock_timestamp(), s.last_at + interval '1 microsecond') as now
  from unnest(:meshes, :spaces) with ordinality as k(mesh_id, space_id, n)
  cross join lateral (select * from space s where s.mesh_id = k.mesh_id and s.space_id = k.space_id
    and s.keeps_messages and s.kept_since is not null and s.last_seq >= 0 offset 0) s
), said as materialized (
  select p.*, m.sender, m.body_id, m.record, b.bytes, row_number() over (partition by p.place order by m.n) as k
  from unnest(:places, :senders, :bodyIds, :records) with ordinality as m(place, sender, body_id, record, n)
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
select mesh_id, space_id, last_seq + k, now + (k - 1) * interval '1 microsecond', 3, sender, record, body_id, bytes from said`,
)
