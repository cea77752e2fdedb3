/**
 * Every hot statement (the others are in `sql-cold.ts`), each with the index it walks. `sql.pg.test.ts` asserts the plans, on an empty and on a grown
 * table.
 *
 * The planner is left one way only, because a plan made for an empty table is the wrong one an hour later, and neither
 * a fresh plan for each batch (paid again by every small one) nor statistics (always late for a queue) help:
 * the connections forbid every scan and join but nested loops over indexes (`SESSION`); a row is looked up in a
 * `lateral (… offset 0)`, which can't be turned round into a walk over the whole index; and what is changed is found
 * first and then named by its `ctid`.
 *
 * Many rows are a few arrays. All envelopes of a checked commit are one `bytea` that the statement cuts up: parsing 1,000
 * single ones costs twice as much.
 */
import { ALONE_AFTER_ATTEMPTS, PRIORITY_COSTS } from '@sealpost/protocol'
import { ID_BLOCK } from '@sealpost/std'
import {
  deliveryColumns,
  isBornElsewhere,
  isFree,
  isFrozen,
  isHeld,
  isOpen,
  isReceipt,
  isStruckOut,
  isUncollected,
  LEASE_FUTURE_MAX,
  NO_DELIVERY,
  named,
  ONE_MORE,
  RECEIPTS,
  tell,
} from './parts.ts'

export * from './cold.ts'
export * from './pools.ts'
export * from './sql.ts'

const INT_MAX = 2 ** 31 - 1

/** Settings of the connections that run these statements. */
export const SESSION = {
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
  plan_cache_mode: 'force_generic_plan',
} as const

/**
 * A commit is a transaction of these steps, sent at once: `SETTLE` for what was settled, and for appends `ADMIT` or
 * `ADMIT_ONE` for each, `COPY_QUEUE` and `COPY_LEDGER`. The sender assigns the ids, the leases and the times.
 */

/** `$1–$3` recipients: mesh, peer, priority · `$4 $5` the first and last place in `$6`, all ids. Walks: message_queue's primary key. */
export const SETTLE = `
delete from message_queue where ctid = any (array(
  select q.ctid from unnest($1::uuid[], $2::int[], $3::smallint[], $4::int[], $5::int[])
    as s(mesh_id, recipient, priority, first, last)
  cross join lateral (select q.ctid from message_queue q where q.mesh_id = s.mesh_id and q.recipient = s.recipient
    and q.priority = s.priority and q.id = any (($6::bigint[])[s.first:s.last]) offset 0) q))`

/** The same for deliveries whose senders want to hear of it. */
export const SETTLE_AND_TELL = `
with gone as (${SETTLE}
  returning mesh_id, recipient, sender, id, envelope_id, terms, ${RECEIPTS.settled} as receipt
)${tell('gone')}`

/** Set beside the answer of both ways to admit. */
const CLOCK = 'extract(epoch from now()) * 1000, extract(epoch from clock_timestamp()) * 1000'

/** A claim could take it, or it was born leased elsewhere: something newer of its sender may not be born leased here (P6). */
const hasOlder = (
  at: Record<'mesh' | 'recipient' | 'floor' | 'senders' | 'epoch' | 'strikes' | 'seconds', string>,
) => `(select true
      from message_queue q
      where q.mesh_id = ${at.mesh} and q.recipient = ${at.recipient} and q.id >= ${at.floor}
        and case when ${isFree('q', at.epoch)} or q.attempts = 0 then q.sender = any (${at.senders})
          and q.expires_at > clock_timestamp() and not ${isStruckOut('q', at.strikes, at.seconds)}
          and not ${isReceipt('q')} else false end
      limit 1)`

/** Rejects a commit whose clock (in ms) is 1 s off or more: leases and expiry use the database clock. */
const isClockRight = (ms: string) => `abs(extract(epoch from clock_timestamp()) * 1000 - ${ms}::float8) < 1000`

/**
 * Moves the senders' marks and checks everything else. Ids past their sender's mark are new (P5), and a mark still where
 * this shard saw it says that nobody else stored anything of the sender. Moving it is a comparison and a change in one,
 * so of two transactions with the same envelope only one stores it. All parties must be
 * members that are not revoked; the sessions that are given birth leases must be current, and nothing of the same
 * senders may wait for them; the time given must be the time. Where anything is in doubt it divides by zero (`IN_DOUBT`), and nothing of the transaction
 * happens.
 *
 * `$1–$4` senders: mesh, peer, the envelope id this shard saw last and the last of these, and `$18` the places of their marks, in an order that all shards share, so that two transactions
 * can't wait for each other · `$5 $6` parties: mesh, peer · `$7–$9` recipients of birth leases: mesh, peer, epoch ·
 * `$10 $11` the first and last place of their senders in `$12` · `$13` shard · `$14 $15` strikes, and the seconds they must
 * span, of a dead delivery · `$16` the time given, in ms · `$17` where the look for what waits for those recipients begins. Answers 1, the time of the transaction and
 * the clock, in ms, and the new places of the marks.
 *
 * A mark is found by its place, its `ctid`, not by its key: it changes with every commit, and while a snapshot is held a
 * search by key walks over all its former versions. A place that is wrong is a mark that moved. After a wait for another
 * transaction it finds nothing, too, where a search would go on with the rest of the statement as it saw things before.
 *
 * Walks: the primary keys of member, session and message_queue.
 */
export const ADMIT = `
with moved as (
  update sender_mark m set last_envelope_id = s.last, version = m.version + 1
  from unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $18::tid[]) with ordinality
    as s(mesh_id, sender, mark, last, place, n)
  cross join lateral (select m.* from sender_mark m where m.ctid = s.place offset 0) found
  where m.ctid = s.place and found.mesh_id = s.mesh_id and found.sender = s.sender and found.last_envelope_id = s.mark
    and ${isOpen('m.version')}
  returning s.n, m.ctid as place
)
select 1 / ((select count(*) from moved) = cardinality($2::int[])
    and (select count(*) from unnest($5::uuid[], $6::int[]) as p(mesh_id, peer) cross join lateral (select from member m
      where m.mesh_id = p.mesh_id and m.peer_no = p.peer and m.revoked_at is null offset 0) m) = cardinality($6::int[])
    and (select count(*) from unnest($7::uuid[], $8::int[], $9::bigint[], $10::int[], $11::int[], $17::bigint[])
        as b(mesh_id, peer, epoch, first, last, floor)
      cross join lateral (select from session s where s.mesh_id = b.mesh_id and s.peer_no = b.peer and s.epoch = b.epoch
        and s.shard = $13::uuid offset 0) s
      where ${hasOlder({ mesh: 'b.mesh_id', recipient: 'b.peer', floor: 'b.floor', epoch: 'b.epoch', senders: '($12::int[])[b.first:b.last]', strikes: '$14', seconds: '$15' })} is null
    ) = cardinality($8::int[]) and ${isClockRight('$16')})::int, ${CLOCK},
  (select string_agg(place::text, ' ' order by n) from moved)`

/**
 * The same for one envelope, in two thirds of the time: what a small commit costs is the setting up of its statements.
 *
 * `$1–$4` mesh, sender, recipient, envelope id · `$5` the epoch to lease it under, or 0 · `$6` shard · `$7–$10` as
 * `$14–$17` of `ADMIT` · `$11 $12` the envelope id of the sender that this shard saw last, and the place of its mark.
 */
export const ADMIT_ONE = `
with moved as (
  update sender_mark m set last_envelope_id = $4::uuid, version = m.version + 1
  from (select m.* from sender_mark m where m.ctid = $12::tid offset 0) found
  where m.ctid = $12::tid and found.mesh_id = $1::uuid and found.sender = $2::int and found.last_envelope_id = $11::uuid
    and ${isOpen('m.version')}
  returning m.ctid as place
)
select 1 / coalesce((select count(*) from moved) = 1
    and (select true from member where mesh_id = $1::uuid and peer_no = $2::int and revoked_at is null)
    and (select true from member where mesh_id = $1::uuid and peer_no = $3::int and revoked_at is null)
    and ($5::bigint = 0 or (select true from session
        where mesh_id = $1::uuid and peer_no = $3::int and epoch = $5::bigint and shard = $6::uuid)
      and ${hasOlder({ mesh: '$1::uuid', recipient: '$3::int', floor: '$10::bigint', epoch: '$5::bigint', senders: 'array[$2::int]', strikes: '$7', seconds: '$8' })} is null
    ) and ${isClockRight('$9')}, false)::int, ${CLOCK}, (select place::text from moved)`

/**
 * What `ADMIT` fails with, `COPY_BODIES` when a body is there already, and the keeping of a message whose day gets a partition
 * at that moment.
 */
export const IN_DOUBT: readonly string[] = ['22012', '23505', '23514']

export const COPY_QUEUE = `
copy message_queue (mesh_id, recipient, priority, id, sender, attempts, envelope_id, expires_at, lease_epoch, lease_until,
  terms, body_id, body_bytes, envelope) from stdin (format binary)`

export const COPY_BODIES = 'copy shared_body (mesh_id, sender, body_id, readers, bytes) from stdin (format binary)'

/**
 * The same beside a checked commit. One that is there already stays what it is, and is young again, so that no sweep takes it
 * away from this commit. `$1–$5` mesh, sender, body id, bytes, readers as text, in an order that all shards share.
 */
export const KEEP_BODIES = `
insert into shared_body (mesh_id, sender, body_id, bytes, readers)
select b.mesh_id, b.sender, b.body_id, b.bytes, b.readers::int[]
from unnest($1::uuid[], $2::int[], $3::bytea[], $4::bytea[], $5::text[]) as b(mesh_id, sender, body_id, bytes, readers)
on conflict (mesh_id, sender, body_id) do update set stored_at = now()`

export const COPY_LEDGER = `
copy dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients, priorities)
from stdin (format binary)`

const BODY_BYTES = `(select octet_length(b.bytes) from shared_body b
      where b.mesh_id = judged.mesh_id and b.sender = judged.sender_no and b.body_id = judged.body_id)`

/**
 * Stores whatever may have been stored before: resends, what came out of order, and the first that a sender says through
 * this shard. The ledger says what is known; the version of the sender's mark says that nobody added to the ledger since
 * this statement's snapshot.
 *
 * The parties of a batch are its distinct peers, `$1 $2` (mesh, peer); appends name theirs by place, counted from 1, in
 * `$3–$12`: sender, recipient, envelope id, second of that id, priority, seconds to live, fingerprint, offset and length
 * in `$12`, all envelopes · `$13` seconds of dedupe · `$14 $15` senders: place, last envelope id · `$16–$18` appends: terms, the
 * time they are kept until in ms or 0, and the id of their shared body, which is there already.
 *
 * Answers one row: the status of each append (`+` stored, `=` duplicate, `!` id reused, `?` no such member, `>` due after its end, `<` its mesh
 * is moving or was moved, `~` a concurrent statement may be storing it), its delivery id, the time given, the last id, and after the place of each sender
 * that of its mark.
 *
 * Walks: the primary keys of message_queue, dedupe_ledger and member, and sender_mark_sender.
 */
export const COMMIT_CHECKED = `
with party as materialized (
  select array_agg(coalesce((
      select m.revoked_at is null from member m where m.mesh_id = p.mesh_id and m.peer_no = p.peer), false) order by n) as is_member
  from unnest($1::uuid[], $2::int[]) with ordinality as p(mesh_id, peer, n)
), known as materialized (
  select s.place, s.last, m.* from unnest($14::int[], $15::uuid[]) as s(place, last)
  cross join lateral (select m.ctid, m.version from sender_mark m
    where m.mesh_id = ($1::uuid[])[s.place] and m.sender = ($2::int[])[s.place] offset 0) m
), marked as (
  update sender_mark m
  set version = m.version + 1, last_envelope_id = greatest(m.last_envelope_id, k.last)
  from known k where m.ctid = k.ctid and m.version = k.version and ${isOpen('m.version')}
  returning k.place, m.ctid as mark_place
), input as materialized (
  select i.*, ($1::uuid[])[i.sender] as mesh_id, ($2::int[])[i.sender] as sender_no,
    ($2::int[])[i.recipient] as recipient_no, (select nextval('delivery_block')) * ${ID_BLOCK} + n as id,
    clock_timestamp() as at, i.not_before_ms / 1000 > extract(epoch from clock_timestamp()) + i.ttl as is_late, i.sender in (select place from marked) as is_alone,
    not i.sender in (select place from known where ${isOpen('version')}) and ${isFrozen('($1::uuid[])[i.sender]')} as is_away,
    (select is_member from party)[i.sender] and (select is_member from party)[i.recipient] as is_valid
  from unnest($3::int[], $4::int[], $5::uuid[], $6::bigint[], $7::smallint[], $8::int[], $9::bigint[], $10::int[],
    $11::int[], $16::bytea[], $17::float8[], $18::bytea[]) with ordinality
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
    body_id, ${BODY_BYTES}, substring((select $12::bytea) from start for size)
  from judged where is_stored and not_before_ms = 0
), put_off as (
  insert into delayed_delivery (mesh_id, due_at, id, recipient, priority, sender, envelope_id, enqueued_at, expires_at,
    terms, body_id, body_bytes, envelope)
  select mesh_id, to_timestamp(not_before_ms / 1000), id, recipient_no, priority, sender_no, envelope_id, at,
    at + make_interval(secs => ttl), terms, body_id, ${BODY_BYTES}, substring((select $12::bytea) from start for size)
  from judged where is_stored and not_before_ms > 0
), remembered as (
  insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
    priorities)
  select mesh_id, sender_no, second, min(id), max(greatest(at, to_timestamp(not_before_ms / 1000))) + make_interval(secs => $13::float8), array_agg(envelope_id),
    array_agg(fingerprint), array_agg(id), array_agg(recipient_no), array_agg(priority)
  from judged where is_stored group by mesh_id, sender_no, second
)
select string_agg(case when is_same then '=' when not is_same then '!' when is_away then '<' when not is_valid then '?' when is_late then '>' when is_alone then '+'
    else '~' end, '' order by n),
  string_agg((coalesce(earlier_id, id))::text, ',' order by n), extract(epoch from max(at)) * 1000, max(id),
  (select string_agg(k.place || ' ' || coalesce(m.mark_place, k.ctid)::text, ' ') from known k left join marked m using (place))
from judged`

/**
 * Claims for many sessions at once. It locks the *session* rows, never deliveries: locking those broke order within
 * seconds. A row that another statement holds is skipped and asked for again. The epochs are those the shard believes:
 * a stale or late claim matches nothing.
 *
 * The oldest delivery whose lease lapsed in this very session gets a strike; the others were only behind it. One that was
 * leased elsewhere at birth gets none when that lease lapses: it may not have been collected. Under a later epoch the same
 * doubt makes its next attempt the second.
 *
 * A delivery with `ALONE_AFTER_ATTEMPTS` is claimed alone: it fills the limit in bytes by itself, and is left when others come
 * before it.
 *
 * Deliveries are changed in the order of their places, as `SETTLE` deletes them (a scan by `ctid` sorts them): settles come
 * late for leases that lapsed, and a claim and a commit that wait for each other stand still until the server looks for
 * a deadlock; with its clock set back meanwhile, that is never.
 *
 * `$1` shard · `$2–$6` wants: mesh, peer, epoch, limit, limit in bytes · `$7` seconds of lease · `$8` strikes, and `$9`
 * seconds they must span, of a dead delivery · `$10–$15` wants: the first and last id, the
 * least urgent priority, and for each priority how far it has had its turn (`Want.turns`) · `$16` wants: `Want.collected`, as texts. Answers, to be read in binary, a row
 * for each want, with what became of it, and after them one for each delivery, in no order; among these one for each want that
 * says how many deliveries were picked.
 *
 * The picking sees the snapshot of this statement, and the update what is there now. A delivery that the peer's former
 * session settles in between was picked and is not returned, so a want can get fewer than its limit while more waits.
 * Only the number picked tells this from an empty queue (P6).
 *
 * Walks: session's and message_queue's primary keys.
 */
export const CLAIM = `
with held as materialized (
  select w.*, s.epoch as held from unnest($2::uuid[], $3::int[], $4::bigint[], $5::int[], $6::int[], $10::bigint[], $11::bigint[],
    $12::int2[], $13::float8[], $14::float8[], $15::float8[], $16::text[])
    with ordinality as w(mesh_id, peer, epoch, lim, lim_bytes, from_id, to_id, priority_max, turn_now, turn_next, turn_low,
      collected, n)
  left join lateral (
    select s.epoch from session s
    where s.mesh_id = w.mesh_id and s.peer_no = w.peer and s.epoch = w.epoch and s.shard = $1::uuid
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
          and q.expires_at > clock_timestamp() and not ${isStruckOut('q', '$8', '$9')}
        order by q.id limit h.lim
      ) q
      order by turn, q.priority limit h.lim
    ) q
  ) r
), leased as (
  update message_queue q
  set lease_epoch = r.epoch, lease_until = clock_timestamp() + make_interval(secs => $7::float8),
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
      where s.mesh_id = h.mesh_id and s.peer_no = h.peer and s.epoch = h.epoch and s.shard = $1::uuid), false) then 'locked'
    else 'stale' end as status, null::int as attempts, ${NO_DELIVERY}
from held h
union all
select r.n::int, 'picked', count(*)::int, ${NO_DELIVERY} from ready r group by r.n
union all
select l.n::int, null, l.attempts::int, ${deliveryColumns('l', 'l.mesh_id')}
from leased l`

const OPENED = 'set epoch = s.epoch + 2, opened_epoch = s.epoch + 2, shard = $1::uuid, opened_at = clock_timestamp()'
const OPENING = `s.epoch, replace(k.last_envelope_id::text, '-', '') as last_envelope_id, k.mark_place::text,
  nextval('delivery_block') as block,
  (extract(epoch from clock_timestamp()) * 1000)::float8 as clock_ms`

/**
 * Compares the epoch before it sets it: of all that read one epoch a single one opens, and one that comes late matches
 * nothing. Two steps, where a fence takes one: a late fence of the former session then never meets the epoch of this
 * one. `$1` shard · `$2 $3` mesh, peer · `$4` the epoch that was read. Answers the epoch, the peer's mark as a sender,
 * a block of ids and the clock. Walks: session's and member's primary keys, and sender_mark_sender.
 */
export const OPEN = `
update session s ${OPENED}
from member m, (select k.mesh_id, k.sender, k.last_envelope_id, k.ctid as mark_place from sender_mark k) k
where s.mesh_id = $2::uuid and s.peer_no = $3::int and s.epoch = $4::bigint and ${isOpen('s.epoch')}
  and m.mesh_id = s.mesh_id and m.peer_no = s.peer_no and m.revoked_at is null
  and k.mesh_id = s.mesh_id and k.sender = s.peer_no
returning ${OPENING}`

/**
 * The same for many, `$2–$4` in arrays, each with its place `n`. It passes by a row that another statement holds: nobody
 * waits for somebody else's, and no two of these for each other. Walks the same.
 */
export const OPEN_MANY = `
with free as materialized (
  select r.n, s.*, k.* from unnest($2::uuid[], $3::int[], $4::bigint[]) with ordinality as r(mesh_id, peer, epoch, n)
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
returning k.n::int, ${OPENING}`

export const DRAW_BLOCK = `select nextval('delivery_block') as block`

/** `$1` mesh. Walks: mesh's primary key. */
export const IS_AWAY = `select ${isFrozen('$1::uuid')} as is_away`

/** `$1` shard · `$2 $3` mesh, peer · `$4` epoch. Repeating it changes nothing. Walks: session's primary key. */
export const FENCE = `
update session set epoch = $4::bigint + 1
where mesh_id = $2::uuid and peer_no = $3::int and shard = $1::uuid and epoch in ($4::bigint, $4::bigint + 1)
returning epoch`

/**
 * A lease without an epoch is the pause before the next attempt, and its end no lapse, which would be a second strike:
 * after its seconds, but not so far ahead that it would count as given before a jump of the clock. Walks: message_queue's primary key.
 */
export const RETRY = `
update message_queue q set lease_epoch = null, lease_holder = null, attempts = greatest(q.attempts, 1),
  lease_until = clock_timestamp() + least(make_interval(secs => r.seconds), ${LEASE_FUTURE_MAX}),
  strikes = ${ONE_MORE('q')}, first_strike_at = coalesce(q.first_strike_at, clock_timestamp())
from ${named('seconds', 'float8')}
where q.ctid = r.ctid and ${isHeld('q')}`

export const STRIKE = `
update message_queue q set strikes = ${ONE_MORE('q')}, first_strike_at = coalesce(first_strike_at, clock_timestamp())
where mesh_id = $1::uuid and recipient = $2::int and priority = $3::smallint and id = $4::bigint`

/** What other shards leased at birth to sessions of this one is only read: no lock, no lease, nothing to write. */

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
