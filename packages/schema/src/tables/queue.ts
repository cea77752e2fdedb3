/** Defines the tables on the message path: sessions, deliveries, the ledger of accepted envelopes, and dead letters. */
import { sql } from 'drizzle-orm'
import {
  bigint,
  foreignKey,
  index,
  integer,
  pgSequence,
  pgTable,
  primaryKey,
  smallint,
  text,
  uuid,
} from 'drizzle-orm/pg-core'
import { bytea, instant } from '../drizzle.ts'
import { member } from './members.ts'

/**
 * The session of each member, one row per member. The epoch only increases. A claim locks this row, never single
 * deliveries. A lease from an older epoch is void.
 */
export const session = pgTable(
  'session',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    shard: uuid('shard'),
    epoch: bigint('epoch', { mode: 'number' }).notNull().default(0),
    openedAt: instant('opened_at'),
    /**
     * The epoch with which the session opened. Leases of pool deliveries use it, so they survive a fence of the
     * session.
     */
    openedEpoch: bigint('opened_epoch', { mode: 'number' }).notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * One row per delivery, until the delivery is settled, expires or becomes a dead letter. The primary key is the order
 * in which a recipient's deliveries are claimed. No index contains a lease column, so a claim is a heap-only update.
 */
export const messageQueue = pgTable(
  'message_queue',
  {
    meshId: uuid('mesh_id').notNull(),
    recipient: integer('recipient').notNull(),
    priority: smallint('priority').notNull(),
    /** Ascends in the order in which a sender sends. A shard assigns ids from blocks of `delivery_block`. */
    id: bigint('id', { mode: 'number' }).notNull(),
    sender: integer('sender').notNull(),
    attempts: integer('attempts').notNull().default(0),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull().default(sql`now()`),
    expiresAt: instant('expires_at').notNull(),
    /** The epoch of the session that leases the delivery; null while the delivery waits. */
    leaseEpoch: bigint('lease_epoch', { mode: 'number' }),
    leaseUntil: instant('lease_until'),
    /** For a pool: the member that holds the lease; `lease_epoch` is then the `opened_epoch` of its session. */
    leaseHolder: integer('lease_holder'),
    firstStrikeAt: instant('first_strike_at'),
    strikes: smallint('strikes').notNull().default(0),
    /** The sender's terms, or the mark of a receipt; usually null. Encoded by `packages/protocol/src/terms.ts`. */
    terms: bytea('terms'),
    /** For a broadcast, the id of its body in `shared_body` and the length of that body. */
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope').notNull(),
  },
  // The table has no check constraints, because Postgres prepares them for every statement. That takes 6 % of the time
  // of a small commit.
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.priority, t.id] }),
    index('message_queue_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/**
 * Sealed bodies of broadcasts. A body is stored once for all recipients, and deleted when no delivery or dead letter
 * refers to them.
 */
export const sharedBody = pgTable(
  'shared_body',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** Chosen by the sender. A colliding id would affect only the sender's own mail. */
    bodyId: bytea('body_id').notNull(),
    storedAt: instant('stored_at').notNull().default(sql`now()`),
    /** For a pool, the members for whom the envelope has a box. */
    readers: integer('readers').array(),
    bytes: bytea('bytes').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.sender, t.bodyId] })],
)

/** Deliveries that are not due yet, stored in a separate table that no claim reads. */
export const delayedDelivery = pgTable(
  'delayed_delivery',
  {
    meshId: uuid('mesh_id').notNull(),
    dueAt: instant('due_at').notNull(),
    id: bigint('id', { mode: 'number' }).notNull(),
    recipient: integer('recipient').notNull(),
    priority: smallint('priority').notNull(),
    sender: integer('sender').notNull(),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull(),
    expiresAt: instant('expires_at').notNull(),
    terms: bytea('terms'),
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.dueAt, t.id] }),
    index('delayed_delivery_recipient').on(t.meshId, t.recipient),
    index('delayed_delivery_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/**
 * Blocks of 2^16 delivery ids. A shard takes a new block whenever a session opens or a resend arrives, so that a
 * sender's messages through this shard get higher ids than all its earlier messages through other shards. The sequence
 * has CACHE 1, because a cached value would be too low.
 */
export const deliveryBlock = pgSequence('delivery_block', { cache: 1 })

/** Delivery ids of receipts, which start at 2^52. */
export const receiptId = pgSequence('receipt_id', { cache: 1 })

/**
 * The highest envelope id of each sender. Ids ascend with a sender's sends (UUID v7), so an id above the mark is new
 * without a lookup in the ledger. The version lets a statement that has read the ledger detect a concurrent commit.
 */
export const senderMark = pgTable(
  'sender_mark',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    version: bigint('version', { mode: 'number' }).notNull().default(0),
    lastEnvelopeId: uuid('last_envelope_id').notNull().default('00000000-0000-0000-0000-000000000000'),
  },
  (t) => [
    // The index is not unique, although each member has exactly one mark. Postgres checks a unique index whenever an
    // updated row moves to another page, and this check walks all old versions of the row while a snapshot is held.
    index('sender_mark_sender').on(t.meshId, t.sender),
    foreignKey({ columns: [t.meshId, t.sender], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * Accepted envelopes, so that a resend is detected even after its delivery was settled (P5). A row contains the
 * envelopes that one commit accepted from one sender and whose ids are in the same time bucket, because one row per
 * envelope cost more than the queue itself. A row is deleted when its retention time has passed and none of its
 * deliveries is queued.
 */
export const dedupeLedger = pgTable(
  'dedupe_ledger',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** The time bucket of the ids: their time in milliseconds since 1970, divided by 1,024. */
    second: bigint('second', { mode: 'number' }).notNull(),
    /** The first of `ids`, which distinguishes rows with the same time bucket. */
    firstId: bigint('first_id', { mode: 'number' }).notNull(),
    keepUntil: instant('keep_until').notNull(),
    envelopeIds: uuid('envelope_ids').array().notNull(),
    fingerprints: bigint('fingerprints', { mode: 'bigint' }).array().notNull(),
    ids: bigint('ids', { mode: 'number' }).array().notNull(),
    recipients: integer('recipients').array().notNull(),
    priorities: smallint('priorities').array().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.sender, t.second, t.firstId] }),
    index('dedupe_ledger_due').on(t.meshId, t.keepUntil),
  ],
)

/** Deliveries that left the queue unsettled, with their reasons (P2). Expired envelopes are deleted. */
export const deadLetter = pgTable(
  'dead_letter',
  {
    meshId: uuid('mesh_id').notNull(),
    recipient: integer('recipient').notNull(),
    id: bigint('id', { mode: 'number' }).notNull(),
    priority: smallint('priority').notNull(),
    sender: integer('sender').notNull(),
    attempts: integer('attempts').notNull(),
    strikes: smallint('strikes').notNull(),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull(),
    diedAt: instant('died_at').notNull().default(sql`clock_timestamp()`),
    reason: text('reason', { enum: ['expired', 'strikes', 'rejected'] }).notNull(),
    /** The reason in the recipient's own words, if it rejected the delivery. */
    detail: text('detail'),
    /** When the recipient was notified. A recipient is not notified of its own rejections. */
    toldAt: instant('told_at'),
    terms: bytea('terms'),
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope'),
    /** Quotas need the size in a column, because the broker's role may not read the envelope. */
    bytes: integer('bytes').generatedAlwaysAs(sql`coalesce(octet_length(envelope), 0) + coalesce(body_bytes, 0)`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.id] }),
    index('dead_letter_died').on(t.meshId, t.diedAt),
    index('dead_letter_untold').on(t.meshId, t.recipient, t.id).where(sql`${t.toldAt} is null`),
    index('dead_letter_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)
