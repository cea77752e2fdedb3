/** The statements beside the hot path: what ends a delivery otherwise than by its settling, and what looks after the tables. */

import { isOfSpace } from '@sealpost/store'
import { isFrozen, isHeld, isReceipt, isStruckOut, LEASE_FUTURE_MAX, named, RECEIPTS, tell } from './parts.ts'

/**
 * Moves rejected deliveries to the dead letters, with what their recipient said. `$1–$4` mesh, recipient, priority, id ·
 * `$5 $6` the epoch of the session that holds them, and in a pool the member · `$7` what it said. Walks: message_queue's primary key.
 */
export const REJECT = `
with gone as (
  delete from message_queue q
  using ${named('said', 'text')}
  where q.ctid = r.ctid and ${isHeld('q')}
  returning q.*, r.said, ${RECEIPTS.rejected} as receipt
), kept as (
  insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason,
    detail, told_at, terms, body_id, body_bytes, envelope)
  select mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, 'rejected', said,
    clock_timestamp(), terms, body_id, body_bytes, envelope
  from gone where not ${isReceipt('gone')}
)${tell('gone')}`

/**
 * Leases go on for `$7` seconds from now, though not further than a jump of the clock could pass for. `$1–$6` as of
 * `REJECT`. Walks: message_queue's primary key.
 */
export const EXTEND = `
update message_queue q
set lease_until = clock_timestamp() + least(make_interval(secs => r.seconds), ${LEASE_FUTURE_MAX})
from ${named('seconds', 'float8')}
where q.ctid = r.ctid and ${isHeld('q')}`

/**
 * Tells the senders that want to hear of it that their mail was pushed. Nothing is said when it is gone already. `$1–$4`
 * mesh, recipient, priority, id. Walks: message_queue's primary key.
 */
export const TELL_PUSHED = `
with gone as (
  select found.*, ${RECEIPTS.pushed} as receipt
  from unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[]) as r(mesh_id, recipient, priority, id)
  cross join lateral (select q.* from message_queue q where q.mesh_id = r.mesh_id and q.recipient = r.recipient
    and q.priority = r.priority and q.id = r.id offset 0) found
)${tell('gone')}`

/**
 * Puts up to `$1` deliveries of each mesh whose time has come into the queue, under the ids they have. Answers the
 * recipient of each, as mesh and peer, and in how many seconds the next one is due. Walks: delayed_delivery's
 * primary key.
 */
export const RELEASE_DUE = `
with due as materialized (
  select found.ctid from mesh m cross join lateral (
    select d.ctid from delayed_delivery d where d.mesh_id = m.mesh_id and d.due_at <= clock_timestamp()
    order by d.due_at, d.id limit $1::int for update skip locked) found
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
  where d.mesh_id = m.mesh_id and d.due_at > clock_timestamp() order by d.due_at limit 1) found`

/**
 * What left these peers' queues unsettled without their knowledge. `$1–$3` mesh, peer, at most of each. Each row has the
 * place `n` of its peer. Walks: dead_letter_untold, member's primary key.
 */
export const FIND_LOST = `
select r.n::int, l.id, replace(l.envelope_id::text, '-', '') as envelope_id, l.reason,
  (select encode(m.peer_key, 'hex') from member m where m.mesh_id = r.mesh_id and m.peer_no = l.sender) as sender
from unnest($1::uuid[], $2::int[], $3::int[]) with ordinality as r(mesh_id, peer, lim, n) cross join lateral (
  select l.id, l.envelope_id, l.reason, l.sender from dead_letter l where l.mesh_id = r.mesh_id and l.recipient = r.peer and l.told_at is null
  order by l.id limit r.lim) l
order by r.n, l.id`

/** `$1 $2` mesh, peer · `$3` ids. Walks: dead_letter's primary key. */
export const TOLD_LOST = `
update dead_letter set told_at = clock_timestamp()
where mesh_id = $1::uuid and recipient = $2::int and id = any ($3::bigint[])`

/**
 * Looks at the next `$5` rows behind a place in the queue, in the order of the primary key, and moves out what expired
 * or has its strikes. A walk instead of an index on the expiry: that index would cost every message, this costs one
 * read a row in a while.
 *
 * `$1–$4` place: mesh, recipient, priority, id · `$6` strikes · `$7` seconds they must span. Answers the place reached,
 * the rows seen, and how many went.
 */
export const SWEEP_QUEUE = `
with seen as materialized (
  select ctid, mesh_id, recipient, priority, id, expires_at <= clock_timestamp() as is_expired,
    ${isStruckOut('message_queue', '$6', '$7')} and coalesce(lease_until <= clock_timestamp() or lease_epoch is null, true) as is_dead
  from message_queue where (mesh_id, recipient, priority, id) > ($1::uuid, $2::int, $3::smallint, $4::bigint)
  order by mesh_id, recipient, priority, id limit $5::int
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
), told as (${tell('gone')})
select (select count(*) from seen)::int as seen, (select count(*) from gone where is_expired)::int as expired,
  (select count(*) from gone where not is_expired)::int as dead, last.*
from (select 1) as one left join (
  select replace(mesh_id::text, '-', '') as mesh_id, recipient, priority, id from seen
  order by seen.mesh_id desc, recipient desc, priority desc, id desc limit 1) as last on true`

/**
 * Forgets up to `$2` ledger rows of each mesh whose time has passed; one that names a delivery still queued is kept for
 * another `$1` seconds. Walks: dedupe_ledger_due, message_queue's primary key.
 */
export const SWEEP_LEDGER = `
with due as materialized (
  select d.ctid, exists (
      select from unnest(d.recipients, d.priorities, d.ids) as u(recipient, priority, id)
      -- No second exists: planned on an empty table it became a join that walks the whole mesh.
      where (select true from message_queue q where q.mesh_id = d.mesh_id and q.recipient = u.recipient
        and q.priority = u.priority and q.id = u.id)) as is_queued
  from mesh m cross join lateral (
    select d.ctid, d.* from dedupe_ledger d where d.mesh_id = m.mesh_id and d.keep_until <= clock_timestamp()
    order by d.keep_until limit $2::int) d
), kept as (
  update dedupe_ledger d set keep_until = clock_timestamp() + make_interval(secs => $1::float8)
  from due where due.is_queued and d.ctid = due.ctid
), forgotten as (
  delete from dedupe_ledger d using due
  where not due.is_queued and d.ctid = due.ctid
  returning cardinality(d.ids) as size
)
select coalesce(sum(size), 0)::int as forgotten from forgotten`

/**
 * `$1 $2` meshes and peer keys. Each row has the place `n` of its key. The consent is that of the person. Walks:
 * member_peer_key; member's, session's, mesh's and consent's primary keys.
 */
export const FIND_MEMBERS = `
select k.n::int, m.peer_no, p.peer_no as person, m.peer_key, m.box_key, m.box_epoch, m.binding_not_after_ms, m.binding_signature,
  m.revoked_at is not null or coalesce(m.vouched_until < clock_timestamp(), false) as is_revoked,
  coalesce((select s.epoch from session s where s.mesh_id = m.mesh_id and s.peer_no = m.peer_no), -1) as session_epoch,
  (select replace(v.lineage || ' ' || v.lineage_in, '-', '') from mesh v where v.mesh_id = m.mesh_id) as lineage,
  p.consent_policy, p.consent_version, array_to_string(array(
    select c.peer_no from consent c where c.mesh_id = p.mesh_id and c.owner = p.peer_no
      and c.is_blocked = (p.consent_policy = 'open')), ',') as consent_named
from unnest($1::uuid[], $2::bytea[]) with ordinality as k(mesh_id, peer_key, n) cross join lateral (
  select * from member m where m.mesh_id = k.mesh_id and m.peer_key = k.peer_key and not m.is_pool offset 0) m cross join lateral (
  select * from member p where p.mesh_id = m.mesh_id and p.peer_no = coalesce(m.person, m.peer_no) offset 0) p`

/** `$1` this shard, `$2–$4` its sessions. Each row has the place `n` of its session. Walks: member's, session's and mesh's primary keys. */
export const STANDINGS = `
select r.n::int, m.peer_key, m.revoked_at is not null as is_revoked,
  s.epoch > r.epoch and s.shard is distinct from $1::uuid as is_elsewhere, ${isFrozen('r.mesh_id')} as is_away
from unnest($2::uuid[], $3::int[], $4::bigint[]) with ordinality as r(mesh_id, peer, epoch, n)
left join lateral (select * from member m where m.mesh_id = r.mesh_id and m.peer_no = r.peer and m.peer_key is not null offset 0) m on true
left join lateral (select * from session s where s.mesh_id = r.mesh_id and s.peer_no = r.peer offset 0) s on true`

/**
 * Looks at the next `$4` shared bodies behind a place and lets go those that nothing names any more. One that is young is
 * left: its deliveries may be about to be stored. `$1–$3` place: mesh, sender, body id. Answers the place reached, and how
 * many were seen. Walks: shared_body's primary key, message_queue_body, dead_letter_body,
 * delayed_delivery_body.
 */
export const SWEEP_BODIES = `
with seen as materialized (
  select b.ctid, b.mesh_id, b.sender, b.body_id, b.stored_at < clock_timestamp() - interval '10 minutes' and not coalesce((
      select true from message_queue q where q.mesh_id = b.mesh_id and q.sender = b.sender and q.body_id = b.body_id limit 1),
    false) and not coalesce((
      select true from dead_letter d where d.mesh_id = b.mesh_id and d.sender = b.sender and d.body_id = b.body_id limit 1),
    false) and not coalesce((
      select true from delayed_delivery d where d.mesh_id = b.mesh_id and d.sender = b.sender and d.body_id = b.body_id limit 1),
    false) as is_over
  from shared_body b where (b.mesh_id, b.sender, b.body_id) > ($1::uuid, $2::int, $3::bytea)
  order by b.mesh_id, b.sender, b.body_id limit $4::int
), gone as (
  delete from shared_body b using seen s where s.is_over and b.ctid = s.ctid
)
select (select count(*) from seen)::int as seen, last.* from (select 1) as one left join (
  select replace(mesh_id::text, '-', '') as mesh_id, sender, body_id from seen
  order by seen.mesh_id desc, sender desc, body_id desc limit 1) as last on true`

/** Of the row `s` with a sender; one lookup for each, whatever the statistics say. */
const personOf = (mesh: string) =>
  `coalesce((select m.person from member m where m.mesh_id = ${mesh} and m.peer_no = s.sender), s.sender)`

/**
 * What waits in a mesh and lies among its dead letters, of each person, as `MEASURE`; of each kind `$2` at most. `$1` mesh.
 * Walks: the primary keys of message_queue, delayed_delivery, dead_letter and member.
 */
export const MEASURE_MESH = `
select ${personOf('$1::uuid')} as sender, sum(s.count)::int as count, sum(s.bytes)::float8 as bytes from (
select found.sender, count(*)::int as count, coalesce(sum(found.size), 0)::float8 as bytes from (
  (select q.sender, octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size from message_queue q
    where q.mesh_id = $1::uuid and not ${isReceipt('q')} limit $2::int)
  union all
  (select d.sender, octet_length(d.envelope) + coalesce(d.body_bytes, 0) from delayed_delivery d
    where d.mesh_id = $1::uuid limit $2::int)
  union all
  (select l.sender, l.bytes from dead_letter l
    where l.mesh_id = $1::uuid limit $2::int)
) found
group by found.sender) s
group by 1`

/**
 * What waits for recipients, of each person with its devices, at most `$3` of each. Receipts are left out: nobody can refuse
 * them. `$1 $2` mesh, recipient. Walks: message_queue's primary key, delayed_delivery_recipient, member's primary key.
 */
export const MEASURE = `
select s.n, ${personOf('s.mesh_id')} as sender, sum(s.count)::int as count, sum(s.bytes)::float8 as bytes from (
select w.n::int, w.mesh_id, found.sender, count(*)::int as count, sum(found.size)::float8 as bytes
from unnest($1::uuid[], $2::int[]) with ordinality as w(mesh_id, recipient, n)
cross join lateral (
  (select q.sender, octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size from message_queue q
    where q.mesh_id = w.mesh_id and q.recipient = w.recipient and not ${isReceipt('q')} limit $3::int)
  union all
  (select d.sender, octet_length(d.envelope) + coalesce(d.body_bytes, 0) from delayed_delivery d
    where d.mesh_id = w.mesh_id and d.recipient = w.recipient limit $3::int)
) found
group by w.n, w.mesh_id, found.sender) s
group by 1, 2`

/**
 * Messages that are kept, at the end of a commit: an event for each, in the transaction that stores its deliveries. Spaces
 * are locked behind marks, in an order that all shards share, and what follows sees what those it waited for have done.
 */

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
