/**
 * Contains every statement of the message path, with the index that it walks; `cold.ts` and `pools.ts` contain the
 * other statements. `sql.pg.test.ts` asserts the plans on empty and on grown tables.
 *
 * Each statement has a single possible plan. A plan made for an empty table is wrong an hour later, planning each batch
 * again costs small batches too much, and a queue's statistics are always outdated. So the connections forbid every
 * scan and join except nested loops over indexes (`SESSION`). Rows are looked up in a `lateral (… offset 0)`, which the
 * planner can't turn into a walk over the whole index. A change first finds its rows and then names them by `ctid`.
 *
 * A commit is a transaction of these steps, sent in one write: `SETTLE`, then for appends `ADMIT`, `COPY_QUEUE` and
 * `COPY_LEDGER`, or `STORE_ONE` for each of a few appends.
 *
 * Many rows are sent as a few arrays. All envelopes of a checked commit are one `bytea`, which the statement splits,
 * because parsing 1,000 separate values costs twice as much.
 */
import { sqlStatement } from '@sealpost/pg'
import { ALONE_AFTER_ATTEMPTS, PRIORITY_COSTS } from '@sealpost/protocol'
import { ID_BLOCK } from '@sealpost/std'
import {
  deliveryColumns,
  HELD,
  isBornElsewhere,
  isFree,
  isFrozen,
  isHeld,
  isOpen,
  isReceipt,
  isStruckOut,
  isUncollected,
  LEASE_FUTURE_MAX,
  LIMITS,
  NO_DELIVERY,
  named,
  ONE_MORE,
  RECEIPTS,
  sendReceipts,
} from './parts.ts'

export * from './cold.ts'
export * from './pools.ts'

const INT_MAX = 2 ** 31 - 1

/** The settings of these statements' connections. */
export const SESSION = {
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
  plan_cache_mode: 'force_generic_plan',
} as const

/** Settled deliveries, with one range of `ids` for each lane. Walks: message_queue's primary key. */
const SETTLED = 'meshes uuid[], recipients int[], priorities smallint[], firsts int[], lasts int[], ids bigint[]'
const settled = `
delete from message_queue where ctid = any (array(
  select q.ctid from unnest(:meshes, :recipients, :priorities, :firsts, :lasts)
    as s(mesh_id, recipient, priority, first, last)
  cross join lateral (select q.ctid from message_queue q where q.mesh_id = s.mesh_id and q.recipient = s.recipient
    and q.priority = s.priority and q.id = any ((:ids)[s.first:s.last]) offset 0) q))`

export const SETTLE = sqlStatement(SETTLED, settled)

export const SETTLE_WITH_RECEIPT = sqlStatement(
  SETTLED,
  `
with gone as (${settled}
  returning mesh_id, recipient, sender, id, envelope_id, terms, ${RECEIPTS.settled} as receipt
)${sendReceipts('gone')}`,
)

/** SQL: the start of transaction and statement, in ms. */
const CLOCK = `date_part('epoch', now()) * 1000, date_part('epoch', clock_timestamp()) * 1000`

/**
 * SQL: these senders have an older delivery that is free or leased by another shard, so newer ones may not be leased on
 * insert (P6).
 */
const hasOlder = (at: Record<'mesh' | 'recipient' | 'floor' | 'isOfSenders' | 'epoch', string>) => `(select true
      from message_queue q
      where q.mesh_id = ${at.mesh} and q.recipient = ${at.recipient} and q.id >= ${at.floor}
        and case when ${isFree('q', at.epoch)} or q.attempts = 0 then ${at.isOfSenders}
          and q.expires_at > clock_timestamp() and not ${isStruckOut('q')}
          and not ${isReceipt('q')} else false end
      limit 1)`

/** SQL: the shard's clock is off by less than 1 s. Leases use the database clock. */
const IS_CLOCK_RIGHT = `clock_timestamp() between :at - interval '1 s' and :at + interval '1 s'`

/**
 * SQL: the mark belongs to this sender. No index supports this comparison, so the planner must use the mark's `ctid`.
 */
const isMarkOf = (mesh: string, sender: string) =>
  `m.mesh_id is not distinct from ${mesh} and m.sender is not distinct from ${sender}`

/**
 * Moves the senders' marks and checks what the shard assumed:
 * - Each mark is unchanged since this shard last saw it. So no other shard has stored an envelope from the sender,
 *   and ids beyond the mark are new (P5). The comparison and the change are one step, so of two transactions with the
 *   same envelope only one stores it.
 * - All parties are members and not revoked.
 * - Sessions that are given leases on insert are current: `leasedEpochs` from `leasedFirsts` to `leasedLasts`
 *   contains the epochs of each mesh in the order of its peers. No older delivery from the same senders waits for these
 *   sessions at or above the id in `floors`; `firsts` and `lasts` give the range of their senders in `leasedSenders`.
 * - The shard's clock is correct.
 *
 * If any check fails, the statement divides by zero (`CHECK_FAILED`) and the transaction changes nothing. Otherwise it
 * returns 1, the times, and the new `ctid` of each mark. Senders are in an order that all shards share, so that two
 * transactions can't wait for each other.
 *
 * A mark is found by its `ctid`, because each commit changes the mark, and while a snapshot is held, a search by key
 * walks over all former versions. After a wait for another transaction, Postgres checks the conditions on `m` again,
 * now on the row that the other transaction wrote. That row's mark differs unless the other transaction stored nothing
 * from the sender.
 *
 * Walks: the primary keys of member, session and message_queue.
 */
export const ADMIT = sqlStatement(
  `senderMeshes uuid[], senders int[], marks uuid[], lastIds uuid[], markCtids tid[], partyMeshes uuid[], parties int[],
    leasedMeshes uuid[], leasedFirsts int[], leasedLasts int[], leasedPeerMeshes uuid[], leasedPeers int[],
    leasedEpochs bigint[], floors bigint[], firsts int[], lasts int[], leasedSenders int[], shard uuid, ${LIMITS}, at timestamptz`,
  `
with moved as (
  update sender_mark m set last_envelope_id = s.last, version = m.version + 1
  from unnest(:senderMeshes, :senders, :marks, :lastIds, :markCtids) with ordinality
    as s(mesh_id, sender, mark, last, place, n)
  where m.ctid = s.place and ${isMarkOf('s.mesh_id', 's.sender')} and m.last_envelope_id = s.mark
    and ${isOpen('m.version')}
  returning s.n, m.ctid as place
)
select 1 / ((select count(*) from moved) = cardinality(:senders)
    and (select count(*) from unnest(:partyMeshes, :parties) as p(mesh_id, peer) cross join lateral (select from member m
      where m.mesh_id = p.mesh_id and m.peer_no = p.peer and m.revoked_at is null offset 0) m) = cardinality(:parties)
    and not exists (select from unnest(:leasedMeshes, :leasedFirsts, :leasedLasts) as l(mesh_id, first, last)
      cross join lateral (select array_agg(s.epoch order by s.peer_no) as epochs from session s where s.mesh_id = l.mesh_id
        and s.peer_no = any ((:leasedPeers)[l.first:l.last]) and s.shard = :shard offset 0) s
      where s.epochs is distinct from (:leasedEpochs)[l.first:l.last])
    and not exists (select from unnest(:leasedPeerMeshes, :leasedPeers, :leasedEpochs, :floors, :firsts, :lasts)
        as b(mesh_id, peer, epoch, floor, first, last)
      where ${hasOlder({ mesh: 'b.mesh_id', recipient: 'b.peer', floor: 'b.floor', epoch: 'b.epoch', isOfSenders: 'q.sender = any ((:leasedSenders)[b.first:b.last])' })})
    and ${IS_CLOCK_RIGHT})::int, ${CLOCK},
  (select string_agg(place::text, ' ' order by n) from moved)`,
)

/**
 * Stores one envelope from a sender: one statement makes the checks of `ADMIT` and inserts the row and its ledger
 * entry. It returns the times and the new `ctid` of the mark. If anything is uncertain, it returns no row and changes
 * nothing, and the other steps of the transaction still take effect. `BatchWriter` writes its parameters in this order.
 * `attempts` is 1 for a lease on insert by this shard, otherwise 0.
 *
 * Walks: the primary keys of member, session and message_queue.
 */
export const STORE_ONE = sqlStatement(
  `mesh uuid, sender int, recipient int, envelopeId uuid, mark uuid, markCtid tid, shard uuid, floor bigint, ${LIMITS},
    at timestamptz, id bigint, priority smallint, attempts int, leaseEpoch bigint, leaseUntil timestamptz,
    expiresAt timestamptz, terms bytea, envelope bytea, second bigint, keepUntil timestamptz, fingerprint bigint`,
  `
with moved as (
  update sender_mark m set last_envelope_id = :envelopeId, version = m.version + 1
  where m.ctid = :markCtid and ${isMarkOf(':mesh', ':sender')} and m.last_envelope_id = :mark
    and ${isOpen('m.version')}
    and (select true from member where mesh_id = :mesh and peer_no = :sender and revoked_at is null)
    and (select true from member where mesh_id = :mesh and peer_no = :recipient and revoked_at is null)
    and (:attempts = 0 or (select true from session
        where mesh_id = :mesh and peer_no = :recipient and epoch = :leaseEpoch and shard = :shard)
      and ${hasOlder({ mesh: ':mesh', recipient: ':recipient', floor: ':floor', epoch: ':leaseEpoch', isOfSenders: 'q.sender = :sender' })} is null)
    and ${IS_CLOCK_RIGHT}
  returning m.ctid as place
), queued as (
  insert into message_queue (mesh_id, recipient, priority, id, sender, attempts, envelope_id, expires_at, lease_epoch,
    lease_until, terms, envelope)
  select :mesh, :recipient, :priority, :id, :sender, :attempts, :envelopeId, :expiresAt, :leaseEpoch, :leaseUntil,
    :terms, :envelope from moved
), remembered as (
  insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
    priorities)
  select :mesh, :sender, :second, :id, :keepUntil, array[:envelopeId], array[:fingerprint], array[:id],
    array[:recipient], array[:priority] from moved
)
select ${CLOCK}, place::text from moved`,
)

/**
 * SQLSTATEs after which an optimistic commit must be repeated as a checked one: `ADMIT` failed, `COPY_BODIES` found an
 * existing body, or the partition for a recorded message was being created.
 */
export const CHECK_FAILED: readonly string[] = ['22012', '23505', '23514']

export const COPY_QUEUE = `
copy message_queue (mesh_id, recipient, priority, id, sender, attempts, envelope_id, expires_at, lease_epoch, lease_until,
  terms, body_id, body_bytes, envelope) from stdin (format binary)`

export const COPY_BODIES = 'copy shared_body (mesh_id, sender, body_id, readers, bytes) from stdin (format binary)'

/**
 * Stores the shared bodies of a checked commit, in an order that all shards share. Renews the timestamp of an existing
 * body, so that no sweep deletes it before the commit.
 */
export const STORE_BODIES = sqlStatement(
  'meshes uuid[], senders int[], bodyIds bytea[], bytes bytea[], readers text[]',
  `
insert into shared_body (mesh_id, sender, body_id, bytes, readers)
select b.mesh_id, b.sender, b.body_id, b.bytes, b.readers::int[]
from unnest(:meshes, :senders, :bodyIds, :bytes, :readers) as b(mesh_id, sender, body_id, bytes, readers)
on conflict (mesh_id, sender, body_id) do update set stored_at = now()`,
)

export const COPY_LEDGER = `
copy dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients, priorities)
from stdin (format binary)`

const BODY_BYTES = `(select octet_length(b.bytes) from shared_body b
      where b.mesh_id = judged.mesh_id and b.sender = judged.sender_no and b.body_id = judged.body_id)`

/**
 * Stores appends that may be resends, because they are out of order or the sender's first through this shard. The
 * ledger shows which envelopes were stored. The version of the sender's mark shows whether another statement has added
 * to the ledger since this statement's snapshot.
 *
 * `partyMeshes` and `parties` are the distinct peers of the batch. Appends refer to senders and recipients by their
 * position in these arrays, from 1, and to envelopes by position and length in `envelopes`. `markedSenders` also
 * contains positions. `notBeforeMs` is the time at which a delayed append becomes due, or 0. An earlier step stores the
 * shared bodies.
 *
 * Returns one row: a letter for the status of each append (see `outcomeOf`), their delivery ids, the time of the
 * statement, the last id, and for each sender its position and the new `ctid` of its mark.
 *
 * Walks: the primary keys of message_queue, dedupe_ledger and member, and sender_mark_sender.
 */
export const COMMIT_CHECKED = sqlStatement(
  `partyMeshes uuid[], parties int[], senders int[], recipients int[], envelopeIds uuid[], seconds bigint[],
    priorities smallint[], ttls int[], fingerprints bigint[], starts int[], sizes int[], envelopes bytea, terms bytea[],
    notBeforeMs float8[], bodyIds bytea[], markedSenders int[], lastIds uuid[], dedupeSeconds float8`,
  `
with party as materialized (
  select array_agg(coalesce((
      select m.revoked_at is null from member m where m.mesh_id = p.mesh_id and m.peer_no = p.peer), false) order by n) as is_member
  from unnest(:partyMeshes, :parties) with ordinality as p(mesh_id, peer, n)
), known as materialized (
  select s.place, s.last, m.* from unnest(:markedSenders, :lastIds) as s(place, last)
  cross join lateral (select m.ctid, m.version from sender_mark m
    where m.mesh_id = (:partyMeshes)[s.place] and m.sender = (:parties)[s.place] offset 0) m
), marked as (
  update sender_mark m
  set version = m.version + 1, last_envelope_id = greatest(m.last_envelope_id, k.last)
  from known k where m.ctid = k.ctid and m.version = k.version and ${isOpen('m.version')}
  returning k.place, m.ctid as mark_place
), input as materialized (
  select i.*, (:partyMeshes)[i.sender] as mesh_id, (:parties)[i.sender] as sender_no,
    (:parties)[i.recipient] as recipient_no, (select nextval('delivery_block')) * ${ID_BLOCK} + n as id,
    clock_timestamp() as at, i.not_before_ms / 1000 > extract(epoch from clock_timestamp()) + i.ttl as is_late, i.sender in (select place from marked) as is_alone,
    not i.sender in (select place from known where ${isOpen('version')}) and ${isFrozen('(:partyMeshes)[i.sender]')} as is_away,
    (select is_member from party)[i.sender] and (select is_member from party)[i.recipient] as is_valid
  from unnest(:senders, :recipients, :envelopeIds, :seconds, :priorities, :ttls, :fingerprints, :starts,
    :sizes, :terms, :notBeforeMs, :bodyIds) with ordinality
    as i(sender, recipient, envelope_id, second, priority, ttl, fingerprint, start, size, terms, not_before_ms, body_id, n)
), judged as materialized (
  select i.*, e.earlier_id, e.is_same, e.earlier_id is null and is_valid and is_alone and not is_late as is_stored
  from input i left join lateral (
    select l.ids[place.at] as earlier_id, l.fingerprints[place.at] = i.fingerprint as is_same
    from dedupe_ledger l cross join lateral (select array_position(l.envelope_ids, i.envelope_id) as at) place
    where l.mesh_id = i.mesh_id and l.sender = i.sender_no and l.second = i.second and place.at is not null limit 1
  ) e on true
), queued as (
  insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, enqueued_at, expires_at, terms,
    body_id, body_bytes, envelope)
  select mesh_id, recipient_no, priority, id, sender_no, envelope_id, at, at + make_interval(secs => ttl), terms,
    body_id, ${BODY_BYTES}, substring((select :envelopes) from start for size)
  from judged where is_stored and not_before_ms = 0
), put_off as (
  insert into delayed_delivery (mesh_id, due_at, id, recipient, priority, sender, envelope_id, enqueued_at, expires_at,
    terms, body_id, body_bytes, envelope)
  select mesh_id, to_timestamp(not_before_ms / 1000), id, recipient_no, priority, sender_no, envelope_id, at,
    at + make_interval(secs => ttl), terms, body_id, ${BODY_BYTES}, substring((select :envelopes) from start for size)
  from judged where is_stored and not_before_ms > 0
), remembered as (
  insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
    priorities)
  select mesh_id, sender_no, second, min(id), max(greatest(at, to_timestamp(not_before_ms / 1000))) + make_interval(secs => :dedupeSeconds), array_agg(envelope_id),
    array_agg(fingerprint), array_agg(id), array_agg(recipient_no), array_agg(priority)
  from judged where is_stored group by mesh_id, sender_no, second
)
select string_agg(case when is_same then '=' when not is_same then '!' when is_away then '<' when not is_valid then '?' when is_late then '>' when is_alone then '+'
    else '~' end, '' order by n),
  string_agg((coalesce(earlier_id, id))::text, ',' order by n), extract(epoch from max(at)) * 1000, max(id),
  (select string_agg(k.place || ' ' || coalesce(m.mark_place, k.ctid)::text, ' ') from known k left join marked m using (place))
from judged`,
)

/**
 * Claims for many sessions. The statement locks the *session* rows, never deliveries: locking deliveries broke the
 * order within seconds. It skips a row that another statement has locked, and the want is repeated. The epochs are
 * those that the shard knows, so a stale or late claim matches nothing.
 *
 * The oldest delivery whose lease lapsed in this session counts a failed attempt; the other lapsed deliveries were only
 * queued behind it. A delivery that another shard leased on insert counts no failed attempt, because the session may
 * not have collected it. Under a later epoch, its next attempt counts as the second, because it may have been pushed.
 *
 * A delivery with `ALONE_AFTER_ATTEMPTS` attempts is claimed alone: it uses up the byte limit, and stays in the queue
 * if others come before it.
 *
 * Deliveries are changed in the order of their `ctid`, in which `SETTLE` also deletes them, because a late settle of a
 * lapsed lease may meet a claim. Two transactions that wait for each other stop until the server looks for a deadlock.
 * If the server's clock was set back in the meantime, it never does.
 *
 * `fromIds` to `prioritiesMax` limit each want, `turnsNow` to `turnsLow` are the want's virtual times for each
 * priority, and `collected` is `Want.collected` as text. Returns, in binary and in no particular order, a row with the
 * status of each want, a row with the number of deliveries picked for each want, and a row for each delivery.
 *
 * The selection sees the statement's snapshot, and the update sees the current rows. A delivery that the peer's former
 * session settles in between was picked but is not returned, so a want can return fewer deliveries than its limit while
 * more are waiting. Only the number of picked deliveries distinguishes this case from an empty queue (P6).
 *
 * Walks: session's and message_queue's primary keys.
 */
export const CLAIM = sqlStatement(
  `shard uuid, meshes uuid[], peers int[], epochs bigint[], limits int[], byteLimits int[], fromIds bigint[], toIds bigint[],
    prioritiesMax int2[], turnsNow float8[], turnsNext float8[], turnsLow float8[], collected text[], leaseSeconds float8,
    ${LIMITS}`,
  `
with held as materialized (
  select w.*, s.epoch as held from unnest(:meshes, :peers, :epochs, :limits, :byteLimits, :fromIds, :toIds,
    :prioritiesMax, :turnsNow, :turnsNext, :turnsLow, :collected)
    with ordinality as w(mesh_id, peer, epoch, lim, lim_bytes, from_id, to_id, priority_max, turn_now, turn_next, turn_low,
      collected, n)
  left join lateral (
    select s.epoch from session s
    where s.mesh_id = w.mesh_id and s.peer_no = w.peer and s.epoch = w.epoch and s.shard = :shard
    for update skip locked) s on true
), ready as materialized (
  select h.n, h.epoch, h.lim_bytes, r.* from held h cross join lateral (
    select q.*, q.id = min(q.id) filter (where q.is_lapsed) over () as is_struck,
      sum(q.size) over (order by q.turn, q.priority rows unbounded preceding) - q.size as bytes_before
    from (
      select q.*, p.turn + p.cost * row_number() over (partition by p.priority order by q.id) as turn
      from (values (0::smallint, ${PRIORITY_COSTS[0]}::float8, h.turn_now), (1, ${PRIORITY_COSTS[1]}, h.turn_next),
        (2, ${PRIORITY_COSTS[2]}, h.turn_low)) as p(priority, cost, turn)
      cross join lateral (
        select q.ctid, q.priority, q.id, q.attempts >= ${ALONE_AFTER_ATTEMPTS} as is_alone,
          case when q.attempts >= ${ALONE_AFTER_ATTEMPTS} then ${INT_MAX}
            else octet_length(q.envelope) + coalesce(q.body_bytes, 0) end as size,
          coalesce(q.lease_epoch = h.epoch and q.lease_until <= clock_timestamp() and q.attempts > 0, false) as is_lapsed,
          ${isUncollected('q', 'h.epoch', 'h.collected::bigint[]')} as is_uncollected
        from message_queue q
        where h.held is not null and p.priority <= h.priority_max and q.mesh_id = h.mesh_id and q.recipient = h.peer
          and q.priority = p.priority and q.id between h.from_id and h.to_id
          and (${isFree('q', 'h.epoch')} or ${isUncollected('q', 'h.epoch', 'h.collected::bigint[]')})
          and q.expires_at > clock_timestamp() and not ${isStruckOut('q')}
        order by q.id limit h.lim
      ) q
      order by turn, q.priority limit h.lim
    ) q
  ) r
), leased as (
  update message_queue q
  set lease_epoch = r.epoch, lease_until = clock_timestamp() + make_interval(secs => :leaseSeconds),
    attempts = greatest(q.attempts, (q.lease_epoch is not null and not r.is_uncollected)::int) + 1,
    strikes = case when r.is_struck then ${ONE_MORE('q')} else q.strikes end,
    first_strike_at = case when r.is_struck then coalesce(q.first_strike_at, clock_timestamp()) else q.first_strike_at end
  from (select * from ready where bytes_before < lim_bytes and (bytes_before = 0 or not is_alone) order by ctid) r
  where q.ctid = r.ctid
  returning r.n, q.mesh_id, q.priority, q.id, q.sender, q.envelope_id, q.attempts, q.enqueued_at, q.terms, q.body_id, q.envelope
)
-- No exists: planned on an empty table it became a hash over all sessions.
select h.n::int, case when h.held is not null then 'claimed' when ${isFrozen('h.mesh_id')} then 'away'
    when coalesce((select true from session s
      where s.mesh_id = h.mesh_id and s.peer_no = h.peer and s.epoch = h.epoch and s.shard = :shard), false) then 'locked'
    else 'stale' end as status, null::int as attempts, ${NO_DELIVERY}
from held h
union all
select r.n::int, 'picked', count(*)::int, ${NO_DELIVERY} from ready r group by r.n
union all
select l.n::int, null, l.attempts::int, ${deliveryColumns('l', 'l.mesh_id')}
from leased l`,
)

/**
 * Reads the deliveries that other shards leased on insert to sessions of this shard, without a lock or a change. For
 * each want it reads in id order, up to the first delivery that only a claim may take because it is free or half of its
 * lease has passed. After that delivery, newer mail from its sender could follow.
 *
 * `fromIds` and `toIds` are in one block, whose ids were committed in order. Returns, in binary, for each delivery the
 * position of its want and whether only a claim may take it; for a want without deliveries, one row without a delivery;
 * for a session that is not current, no row. Walks: the primary keys of session, message_queue, member and shared_body.
 */
export const COLLECT = sqlStatement(
  `shard uuid, meshes uuid[], peers int[], epochs bigint[], limits int[], byteLimits int[], fromIds bigint[], toIds bigint[],
    halfLeaseSeconds float8, ${LIMITS}`,
  `
select w.n::int, q.is_bar, ${deliveryColumns('q', 'w.mesh_id')}
from unnest(:meshes, :peers, :epochs, :limits, :byteLimits, :fromIds, :toIds)
  with ordinality as w(mesh_id, peer, epoch, lim, lim_bytes, from_id, to_id, n)
cross join lateral (select from session s
  where s.mesh_id = w.mesh_id and s.peer_no = w.peer and s.epoch = w.epoch and s.shard = :shard offset 0) s
left join lateral (
  select q.* from (
    select q.*, sum(q.size) over (order by q.id rows unbounded preceding) - q.size as bytes_before
    from (
      select q.id, q.priority, q.enqueued_at, q.envelope_id, q.sender, q.terms, q.body_id, q.envelope,
        octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size,
        not (${isBornElsewhere('q', 'w.epoch')} and q.lease_until > clock_timestamp() + make_interval(secs => :halfLeaseSeconds)
          and q.lease_until <= clock_timestamp() + ${LEASE_FUTURE_MAX}) as is_bar
      from message_queue q
      where q.mesh_id = w.mesh_id and q.recipient = w.peer and q.priority = any ('{0,1,2}'::smallint[])
        and q.id between w.from_id and w.to_id
        and (${isBornElsewhere('q', 'w.epoch')} or ${isFree('q', 'w.epoch')})
        and q.expires_at > clock_timestamp() and not ${isStruckOut('q')}
      order by q.id limit w.lim
    ) q
  ) q
  where q.bytes_before < w.lim_bytes
) q on true`,
)

const OPENED = 'set epoch = s.epoch + 2, opened_epoch = s.epoch + 2, shard = :shard, opened_at = clock_timestamp()'
const OPENING = `s.epoch, replace(k.last_envelope_id::text, '-', '') as last_envelope_id, k.mark_place::text,
  nextval('delivery_block') as block,
  (extract(epoch from clock_timestamp()) * 1000)::float8 as clock_ms`

/**
 * Opens a session by compare-and-set on the epoch, so that a late call changes nothing. Opening raises the epoch by two
 * and a fence by one, so that a late fence never matches the next session. Returns the epoch, the peer's mark as a
 * sender, a block of ids and the time. Walks: session's and member's primary keys, and sender_mark_sender.
 */
export const OPEN = sqlStatement(
  'shard uuid, mesh uuid, peer int, epoch bigint',
  `
update session s ${OPENED}
from member m, (select k.mesh_id, k.sender, k.last_envelope_id, k.ctid as mark_place from sender_mark k) k
where s.mesh_id = :mesh and s.peer_no = :peer and s.epoch = :epoch and ${isOpen('s.epoch')}
  and m.mesh_id = s.mesh_id and m.peer_no = s.peer_no and m.revoked_at is null
  and k.mesh_id = s.mesh_id and k.sender = s.peer_no
returning ${OPENING}`,
)

/** Does what `OPEN` does for many peers, except for locked rows, so that no peer waits. */
export const OPEN_MANY = sqlStatement(
  'shard uuid, meshes uuid[], peers int[], epochs bigint[]',
  `
with free as materialized (
  select r.n, s.*, k.* from unnest(:meshes, :peers, :epochs) with ordinality as r(mesh_id, peer, epoch, n)
  cross join lateral (
    select k.last_envelope_id, k.ctid as mark_place from sender_mark k
    where k.mesh_id = r.mesh_id and k.sender = r.peer offset 0) k
  cross join lateral (
    select m.peer_no as member from member m
    where m.mesh_id = r.mesh_id and m.peer_no = r.peer and m.revoked_at is null offset 0) m
  cross join lateral (
    select s.mesh_id, s.peer_no, s.epoch from session s
    where s.mesh_id = r.mesh_id and s.peer_no = r.peer and s.epoch = r.epoch and ${isOpen('s.epoch')}
    for update skip locked) s
)
update session s ${OPENED}
from free k
where s.mesh_id = k.mesh_id and s.peer_no = k.peer_no and s.epoch = k.epoch
returning k.n::int, ${OPENING}`,
)

export const DRAW_BLOCK = `select nextval('delivery_block') as block`

export const IS_AWAY = sqlStatement('mesh uuid', `select ${isFrozen(':mesh')} as is_away`)

/** Voids a session's leases. A repeated call changes nothing. Walks: session's primary key. */
export const FENCE = sqlStatement(
  'shard uuid, mesh uuid, peer int, epoch bigint',
  `
update session set epoch = :epoch + 1
where mesh_id = :mesh and peer_no = :peer and shard = :shard and epoch in (:epoch, :epoch + 1)
returning epoch`,
)

/**
 * Sets a lease without an epoch for the pause before the next attempt. Its end counts as neither a lapse nor a failed
 * attempt, and it is too short to look like a lease from before a clock jump. Walks: message_queue's primary key.
 */
export const RETRY = sqlStatement(
  `${HELD}, afterSeconds float8[]`,
  `
update message_queue q set lease_epoch = null, lease_holder = null, attempts = greatest(q.attempts, 1),
  lease_until = clock_timestamp() + least(make_interval(secs => r.seconds), ${LEASE_FUTURE_MAX}),
  strikes = ${ONE_MORE('q')}, first_strike_at = coalesce(q.first_strike_at, clock_timestamp())
from ${named({ column: 'seconds', parameter: 'afterSeconds' })}
where q.ctid = r.ctid and ${isHeld('q')}`,
)

export const COUNT_FAILED_ATTEMPT = sqlStatement(
  'mesh uuid, recipient int, priority smallint, id bigint',
  `
update message_queue q set strikes = ${ONE_MORE('q')}, first_strike_at = coalesce(first_strike_at, clock_timestamp())
where mesh_id = :mesh and recipient = :recipient and priority = :priority and id = :id`,
)
