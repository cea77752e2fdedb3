import { encodeReceipt, RECEIPT_EVENTS, RECEIPT_IDS_FROM, type ReceiptEvent } from '@sealpost/protocol'
import { ID_BLOCK, toHex } from '@sealpost/std'

/** The remaining time above which a lease counts as lapsed: it was granted before the database clock jumped back. */
export const LEASE_FUTURE_MAX = `interval '5 minutes'`

/**
 * SQL: the mesh is not frozen. While a mesh moves, its versions and epochs are negative
 * (docs/adr/0007-moving-a-mesh.md). They are in the rows that a statement changes, so the check costs no lookup and is
 * repeated after a wait.
 */
export const isOpen = (number: 'version' | 'm.version' | 'epoch' | 's.epoch') => `${number} >= 0`

/** SQL: the mesh is frozen or, after a move, missing. */
export const isFrozen = (meshId: string) =>
  `coalesce((select m.frozen_at is not null from mesh m where m.mesh_id = ${meshId}), false)`

/** The parameters of `isStruckOut`. */
export const LIMITS = 'failedAttemptsMax int, failedAttemptsSpanSeconds float8'

/** SQL: the delivery has the maximum number of failed attempts. No claim returns it. */
export const isStruckOut = (row: string) => `coalesce(${row}.strikes >= :failedAttemptsMax
      and ${row}.first_strike_at <= clock_timestamp() - make_interval(secs => :failedAttemptsSpanSeconds), false)`

/** SQL: the number of failed attempts plus one, up to the column's maximum. */
export const ONE_MORE = (row: string) => `least(${row}.strikes, 32766) + 1`

/** The columns of a delivery, for `readDelivery`. */
export const deliveryColumns = (
  row: string,
  meshId: string,
) => `${row}.id, ${row}.priority, ${row}.enqueued_at, ${row}.envelope_id,
  (select m.peer_key from member m where m.mesh_id = ${meshId} and m.peer_no = ${row}.sender) as sender, ${row}.terms,
  case when ${row}.body_id is not null then (select b.bytes from shared_body b
    where b.mesh_id = ${meshId} and b.sender = ${row}.sender and b.body_id = ${row}.body_id) end as body, ${row}.envelope`

export const NO_DELIVERY = `null::bigint as id, null::smallint as priority, null::timestamptz as enqueued_at,
  null::uuid as envelope_id, null::bytea as sender, null::bytea as terms, null::bytea as body, null::bytea as envelope`

/** SQL: a claim may take the delivery. While an older delivery is free, no lease on insert may be granted. */
export const isFree = (row: string, epoch: string) => `(${row}.lease_until is null or ${row}.lease_epoch < ${epoch}
      or ${row}.lease_until <= clock_timestamp() or ${row}.lease_until > clock_timestamp() + ${LEASE_FUTURE_MAX})`

/** SQL: another shard leased the delivery on insert to this session. Only such leases do not count an attempt. */
export const isBornElsewhere = (row: string, epoch: string) =>
  `coalesce(${row}.attempts = 0 and ${row}.lease_epoch = ${epoch}, false)`

/** SQL: the session has not collected the delivery. `collected`: each block's last collected id. */
export const isUncollected = (row: string, epoch: string, collected: string) => `(${isBornElsewhere(row, epoch)}
      and not exists (select from unnest(${collected}) as c(id) where c.id / ${ID_BLOCK} = ${row}.id / ${ID_BLOCK} and ${row}.id <= c.id))`

/** Parameters for the keys of deliveries. */
export const DELIVERIES = 'meshes uuid[], recipients int[], priorities smallint[], ids bigint[]'

/** Parameters for the keys of deliveries, with the epochs and pool members that hold them. */
export const HELD = `${DELIVERIES}, epochs bigint[], holders int[]` as const

/**
 * SQL: the rows `r` of `HELD`, each with its `ctid` and one more column. Skips locked rows, because two statements that
 * lock in clients' orders would deadlock.
 */
export const named = (more?: { column: string; parameter: string }) => `(
  select r.*, found.ctid from unnest(:meshes, :recipients, :priorities, :ids, :epochs, :holders${more ? `, :${more.parameter}` : ''})
    as r(mesh_id, recipient, priority, id, epoch, holder${more ? `, ${more.column}` : ''})
  cross join lateral (select q.ctid from message_queue q where q.mesh_id = r.mesh_id and q.recipient = r.recipient
    and q.priority = r.priority and q.id = r.id offset 0 for update skip locked) found) r`

/** SQL: the session and holder in `named` hold the lease. */
export const isHeld = (row: string) =>
  `${row}.lease_epoch = r.epoch and ${row}.lease_holder is not distinct from r.holder`

const receiptOf = (event: ReceiptEvent) => `'\\x${toHex(encodeReceipt(event))}'::bytea`
export const RECEIPTS = Object.fromEntries(RECEIPT_EVENTS.map((event) => [event, receiptOf(event)])) as Record<
  ReceiptEvent,
  string
>
export const isReceipt = (row: string) => `coalesce(get_byte(${row}.terms, 0) = 2, false)`
const wantsReceipt = (row: string) => `coalesce(get_byte(${row}.terms, 0) = 1 and get_byte(${row}.terms, 1) > 0, false)`
/** The time to live of receipts, which is also the default for mail. */
const RECEIPT_TTL = `interval '14 days'`

/**
 * SQL: queues a receipt for each sender of these rows that asked for one. A receipt is a delivery from the envelope's
 * recipient, with the envelope's id.
 */
export const sendReceipts = (rows: string) => `
  insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, terms, envelope)
  select g.mesh_id, g.sender, 1, ${RECEIPT_IDS_FROM} + nextval('receipt_id'), g.recipient, g.envelope_id,
    clock_timestamp() + ${RECEIPT_TTL}, g.receipt, ''
  from (select * from ${rows} g where ${wantsReceipt('g')} order by g.id) g
`
