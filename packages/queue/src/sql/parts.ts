/** Conditions and parts that several statements share. */
import { encodeReceipt, RECEIPT_EVENTS, RECEIPT_IDS_FROM, type ReceiptEvent } from '@sealpost/protocol'
import { ID_BLOCK, toHex } from '@sealpost/std'

/** A lease further ahead than this was given before the database clock jumped back: it counts as lapsed. */
export const LEASE_FUTURE_MAX = `interval '5 minutes'`

/**
 * The mesh is not frozen: while it moves to another cell the versions of its marks and the epochs of its sessions are
 * negative (docs/adr/0007-moving-a-mesh.md). Asked of the row that a statement locks or changes, so that it costs no look
 * and is asked again after a wait.
 */
export const isOpen = (number: 'version' | 'm.version' | 'epoch' | 's.epoch') => `${number} >= 0`

/** For the answer, once a row was not open, or not there at all: what was left behind of a mesh is cleared away. */
export const isFrozen = (meshId: string) =>
  `coalesce((select m.frozen_at is not null from mesh m where m.mesh_id = ${meshId}), false)`

/** It has its strikes and awaits the sweep: a recipient that dies of it must not get it once more. */
export const isStruckOut = (
  row: string,
  strikes: string,
  seconds: string,
) => `coalesce(${row}.strikes >= ${strikes}::int
      and ${row}.first_strike_at <= clock_timestamp() - make_interval(secs => ${seconds}::float8), false)`

/** Counted to the end of the column's type: past it the statement would fail for everything else it carries. */
export const ONE_MORE = (row: string) => `least(${row}.strikes, 32766) + 1`

/** A delivery as `readDelivery` reads it. */
export const deliveryColumns = (
  row: string,
  meshId: string,
) => `${row}.id, ${row}.priority, ${row}.enqueued_at, ${row}.envelope_id,
  (select m.peer_key from member m where m.mesh_id = ${meshId} and m.peer_no = ${row}.sender) as sender, ${row}.terms,
  case when ${row}.body_id is not null then (select b.bytes from shared_body b
    where b.mesh_id = ${meshId} and b.sender = ${row}.sender and b.body_id = ${row}.body_id) end as body, ${row}.envelope`

/** In their place, in a row of another kind. */
export const NO_DELIVERY = `null::bigint as id, null::smallint as priority, null::timestamptz as enqueued_at,
  null::uuid as envelope_id, null::bytea as sender, null::bytea as terms, null::bytea as body, null::bytea as envelope`

/** What a claim may take. Before a birth lease the same is asked, or an older delivery could be overtaken. */
export const isFree = (row: string, epoch: string) => `(${row}.lease_until is null or ${row}.lease_epoch < ${epoch}
      or ${row}.lease_until <= clock_timestamp() or ${row}.lease_until > clock_timestamp() + ${LEASE_FUTURE_MAX})`

/** Another shard leased it at birth to the session of this epoch: nothing that a claim or this shard leased is at its first attempt. */
export const isBornElsewhere = (row: string, epoch: string) =>
  `coalesce(${row}.attempts = 0 and ${row}.lease_epoch = ${epoch}, false)`

/** And that session has not collected it: `collected` are the last ids that it has, one of a block. */
export const isUncollected = (row: string, epoch: string, collected: string) => `(${isBornElsewhere(row, epoch)}
      and not exists (select from unnest(${collected}) as c(id) where c.id / ${ID_BLOCK} = ${row}.id / ${ID_BLOCK} and ${row}.id <= c.id))`

/**
 * The deliveries that a client named, with their `ctid`: `$1–$5` mesh, recipient, priority, id and the epoch of the session
 * that holds them, `$6` the member that does, in a pool, `$7` one thing more of each. What another statement holds is passed by: they stand in the client's order,
 * and waiting for one while holding others could stop two statements for good.
 */
export const named = (more: string, type: string) => `(
  select r.*, found.ctid from unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[], $6::int[], $7::${type}[])
    as r(mesh_id, recipient, priority, id, epoch, holder, ${more})
  cross join lateral (select q.ctid from message_queue q where q.mesh_id = r.mesh_id and q.recipient = r.recipient
    and q.priority = r.priority and q.id = r.id offset 0 for update skip locked) found) r`

/** By the holder given to `named`. */
export const isHeld = (row: string) =>
  `${row}.lease_epoch = r.epoch and ${row}.lease_holder is not distinct from r.holder`

const receiptOf = (event: ReceiptEvent) => `'\\x${toHex(encodeReceipt(event))}'::bytea`
export const RECEIPTS = Object.fromEntries(RECEIPT_EVENTS.map((event) => [event, receiptOf(event)])) as Record<
  ReceiptEvent,
  string
>
/** See the protocol's `terms.ts`. */
export const isReceipt = (row: string) => `coalesce(get_byte(${row}.terms, 0) = 2, false)`
const wantsReceipt = (row: string) => `coalesce(get_byte(${row}.terms, 0) = 1 and get_byte(${row}.terms, 1) > 0, false)`
/** A receipt is kept as long as mail is by default. */
const RECEIPT_TTL = `interval '14 days'`

/**
 * Puts a receipt into the queue of the sender of each of these rows that asked for one. It is a delivery like any other,
 * so it survives an absent sender; it names the envelope it is about, and as its sender the recipient of that.
 */
export const tell = (rows: string) => `
  insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, terms, envelope)
  select g.mesh_id, g.sender, 1, ${RECEIPT_IDS_FROM} + nextval('receipt_id'), g.recipient, g.envelope_id,
    clock_timestamp() + ${RECEIPT_TTL}, g.receipt, ''
  from (select * from ${rows} g where ${wantsReceipt('g')} order by g.id) g
`
