/**
 * Contains the statements for pools, which assign, release and settle deliveries, and look up pools.
 *
 * The lease of a pool's delivery names its holder, and the epoch with which the holder's session opened. It ends when
 * it lapses, the holder opens a new session or releases the delivery, or the owner removes the holder.
 */
import { sqlStatement } from '@sealpost/pg'
import { PRIORITY_COSTS } from '@sealpost/protocol'
import {
  DELIVERIES,
  deliveryColumns,
  isOpen,
  isStruckOut,
  LEASE_FUTURE_MAX,
  LIMITS,
  NO_DELIVERY,
  ONE_MORE,
  RECEIPTS,
  sendReceipts,
} from './parts.ts'

const isHoldersSession = (row: string) => `coalesce((select h.opened_epoch = ${row}.lease_epoch from session h
      where h.mesh_id = ${row}.mesh_id and h.peer_no = ${row}.lease_holder), false)`

/** SQL: the delivery is free. `members`: the pool's members. */
const isFreeInPool = (
  row: string,
  members: string,
) => `(${row}.lease_until is null or ${row}.lease_until <= clock_timestamp()
      or ${row}.lease_until > clock_timestamp() + ${LEASE_FUTURE_MAX}
      or (${row}.lease_holder is not null
        and not (${row}.lease_holder = any (${members}) and ${isHoldersSession(row)})))`

/** Selects the first delivery of a priority that a slot may take and no earlier slot took. */
const FIRST_OF_PRIORITY = `
        select q.ctid, q.id, q.attempts,
          coalesce(q.lease_until <= clock_timestamp() and ${isHoldersSession('q')}, false) as is_struck
        from message_queue q
        where q.mesh_id = h.mesh_id and q.recipient = h.pool and q.priority = p.priority
          and p.priority <= s.priority_max and not q.id = any (d.taken) and ${isFreeInPool('q', 'h.members')}
          and q.expires_at > clock_timestamp() and not ${isStruckOut('q')}
          and (select s.member = any (b.readers) from shared_body b
            where b.mesh_id = q.mesh_id and b.sender = q.sender and b.body_id = q.body_id)
        order by q.id limit 1`

/**
 * Assigns deliveries of pools to free members, one delivery for each slot, the most urgent and oldest first. A delivery
 * goes only to a current member that is a reader of the envelope. The statement locks the *pool's* session row, so only
 * one shard assigns deliveries at a time; for another shard, the status is `locked` instead of a wait.
 *
 * A statement may take its snapshot before another statement assigns deliveries, and lock the row afterwards. So the
 * update compares the attempts again, and a delivery that the other statement has taken is picked but not assigned.
 *
 * A delivery whose lease lapsed in a session that still exists counts a failed attempt.
 *
 * `turnsNow` to `turnsLow` are the virtual times of the pools. Slots come in the order in which they are served;
 * `slotPools` contains the position of each slot's pool, from 1. Returns, in binary and in no particular order, a row
 * for each pool, a row with the number of deliveries picked for the pool, a row for each slot whose peer is not a
 * member, and a row for each delivery. All slots are numbered together from 1.
 *
 * Walks: the primary keys of session, pool, message_queue, shared_body and member.
 */
export const CLAIM_POOLS = sqlStatement(
  `shard uuid, meshes uuid[], pools int[], turnsNow float8[], turnsNext float8[], turnsLow float8[], slotPools int[],
    members int[], epochs bigint[], prioritiesMax int2[], leaseSeconds float8, ${LIMITS}`,
  `
with recursive held as materialized (
  select w.*, s.peer_no is not null as is_held, coalesce(p.members, '{}') as members
  from unnest(:meshes, :pools, :turnsNow, :turnsNext, :turnsLow) with ordinality
    as w(mesh_id, pool, turn_now, turn_next, turn_low, n)
  left join lateral (select s.peer_no from session s where s.mesh_id = w.mesh_id and s.peer_no = w.pool
    and ${isOpen('s.epoch')} for update skip locked) s on true
  left join lateral (select p.members from pool p where p.mesh_id = w.mesh_id and p.peer_no = w.pool offset 0) p on true
), slot as materialized (
  select w.*, row_number() over (partition by w.n order by w.slot) as k, w.member = any (h.members) as is_member,
    coalesce((select s.opened_epoch = w.epoch and s.shard = :shard from session s
      where s.mesh_id = h.mesh_id and s.peer_no = w.member), false) as is_current
  from unnest(:slotPools, :members, :epochs, :prioritiesMax) with ordinality as w(n, member, epoch, priority_max, slot)
  cross join lateral (select h.* from held h where h.n = w.n) h
), dealt as (
  select h.n, 0::bigint as k, null::bigint as slot, null::tid as place, null::int as attempts, false as is_struck,
    null::int as member, null::bigint as epoch, '{}'::bigint[] as taken, 0 as taken_now, 0 as taken_next, 0 as taken_low
  from held h where h.is_held
  union all
  select d.n, s.k, s.slot, f.ctid, f.attempts, f.is_struck, s.member, s.epoch,
    case when f.id is null then d.taken else d.taken || f.id end, d.taken_now + coalesce((f.priority = 0)::int, 0),
    d.taken_next + coalesce((f.priority = 1)::int, 0), d.taken_low + coalesce((f.priority = 2)::int, 0)
  from dealt d
  cross join lateral (select s.* from slot s where s.n = d.n and s.k = d.k + 1) s
  cross join lateral (select h.* from held h where h.n = d.n) h
  left join lateral (
    select q.*, p.priority from (values (0::smallint, h.turn_now + ${PRIORITY_COSTS[0]} * (d.taken_now + 1)),
      (1, h.turn_next + ${PRIORITY_COSTS[1]} * (d.taken_next + 1)),
      (2, h.turn_low + ${PRIORITY_COSTS[2]} * (d.taken_low + 1))) as p(priority, turn)
    cross join lateral (${FIRST_OF_PRIORITY}) q
    where s.is_member and s.is_current
    order by p.turn, p.priority limit 1) f on true
), leased as (
  update message_queue q
  set lease_epoch = d.epoch, lease_holder = d.member,
    lease_until = clock_timestamp() + make_interval(secs => :leaseSeconds), attempts = q.attempts + 1,
    strikes = case when d.is_struck then ${ONE_MORE('q')} else q.strikes end,
    first_strike_at = case when d.is_struck then coalesce(q.first_strike_at, clock_timestamp()) else q.first_strike_at end
  from (select * from dealt where place is not null order by place) d where q.ctid = d.place and q.attempts = d.attempts
  returning d.n, d.slot, q.mesh_id, q.priority, q.id, q.sender, q.envelope_id, q.attempts, q.enqueued_at, q.terms,
    q.body_id, q.envelope
)
select h.n::int, case when h.is_held then 'claimed' else 'locked' end as status, 0 as slot, null::int as attempts,
  ${NO_DELIVERY}
from held h
union all
select d.n::int, 'picked', 0, count(*)::int, ${NO_DELIVERY} from dealt d where d.place is not null group by d.n
union all
select s.n::int, 'stranger', s.slot::int, null, null, null, null, null, null, null, null, null from slot s where not s.is_member
union all
select l.n::int, null, l.slot::int, l.attempts::int, ${deliveryColumns('l', 'l.mesh_id')}
from leased l`,
)

/** Settles pool deliveries, except those that another member holds. Walks: message_queue's primary key. */
export const SETTLE_IN_POOL = sqlStatement(
  `${DELIVERIES}, holders int[]`,
  `
with gone as (
delete from message_queue q
using (select r.holder, found.ctid
  from unnest(:meshes, :recipients, :priorities, :ids, :holders) as r(mesh_id, recipient, priority, id, holder)
  cross join lateral (select q.ctid from message_queue q where q.mesh_id = r.mesh_id and q.recipient = r.recipient
    and q.priority = r.priority and q.id = r.id offset 0) found
  order by found.ctid) r
where q.ctid = r.ctid and q.lease_holder = r.holder
  returning q.mesh_id, q.recipient, q.sender, q.id, q.envelope_id, q.terms, ${RECEIPTS.settled} as receipt
)${sendReceipts('gone')}`,
)

/** The maximum number of former keys per member, to which waiting mail may be sealed. */
const FORMER_KEYS_MAX = 16

/**
 * Finds pools. A member is listed once for each current or former key. Walks: member_peer_key, former_identity_peer,
 * the primary keys of pool and member.
 */
export const FIND_POOLS = sqlStatement(
  'mesh uuid, pools bytea[]',
  `
select m.peer_no, m.peer_key, p.epoch, (
  select string_agg(n.peer_no || ' ' || encode(k.peer_key, 'hex'), ' ' order by n.peer_no)
  from unnest(p.members) as n(peer_no) cross join lateral (
    (select f.peer_key from member f where f.mesh_id = :mesh and f.peer_no = n.peer_no offset 0)
    union all
    (select f.peer_key from former_identity f where f.mesh_id = :mesh and f.peer_no = n.peer_no
      order by f.retired_at desc limit ${FORMER_KEYS_MAX})) k) as members
from unnest(:pools) as k(peer_key)
cross join lateral (select * from member m where m.mesh_id = :mesh and m.peer_key = k.peer_key and m.is_pool offset 0) m
cross join lateral (select * from pool p where p.mesh_id = m.mesh_id and p.peer_no = m.peer_no offset 0) p`,
)
