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
 * The session of each member, whose epoch only increases. A claim locks this row, never deliveries. A lease from an
 * older epoch is void.
 */
export const session = pgTable(
  'session',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    shard: uuid('shard'),
    epoch: bigint('epoch', { mode: 'number' }).notNull().default(0),
    openedAt: instant('opened_at'),
    /** The epoch with which the session opened. Leases of pool deliveries use it, because they survive a fence. */
    openedEpoch: bigint('opened_epoch', { mode: 'number' }).notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * Deliveries until they are settled, expire or become dead letters. The primary key is the order of claims. No index
 * contains a lease column, so a claim is a heap-only update.
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
    /** The epoch of the session that leases the delivery, if any. */
    leaseEpoch: bigint('lease_epoch', { mode: 'number' }),
    leaseUntil: instant('lease_until'),
    /** The member of a pool that holds the lease; `lease_epoch` is then its session's `opened_epoch`. */
    leaseHolder: integer('lease_holder'),
    firstStrikeAt: instant('first_strike_at'),
    strikes: smallint('strikes').notNull().default(0),
    /** The sender's terms, or the mark of a receipt; usually null. Encoded by `packages/protocol/src/terms.ts`. */
    terms: bytea('terms'),
    /** The id and length of a broadcast's body in `shared_body`. */
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope').notNull(),
  },
  // No check constraints: Postgres prepares them for every statement, which takes 6 % of a small commit.
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.priority, t.id] }),
    index('message_queue_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/** Sealed bodies of broadcasts, stored once for all recipients and deleted when nothing refers to them. */
export const sharedBody = pgTable(
  'shared_body',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** Chosen by the sender. A collision affects only its own mail. */
    bodyId: bytea('body_id').notNull(),
    storedAt: instant('stored_at').notNull().default(sql`now()`),
    /** The members for whom a pool message has a box. */
    readers: integer('readers').array(),
    bytes: bytea('bytes').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.sender, t.bodyId] })],
)

/** Deliveries that are not due, in a table that no claim reads. */
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
 * Blocks of 2^16 delivery ids. A shard takes a new one when a session opens or a resend arrives, so that a sender's
 * later messages get higher ids. CACHE 1, because cached values would be too low.
 */
export const deliveryBlock = pgSequence('delivery_block', { cache: 1 })

/** Delivery ids of receipts, which start at 2^52. */
export const receiptId = pgSequence('receipt_id', { cache: 1 })

/**
 * The highest envelope id of each sender. Ids ascend (UUID v7), so one above the mark is new without a lookup in the
 * ledger. The version reveals concurrent commits.
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
    // Not unique, although each member has one mark: Postgres would check the index whenever a row moves to another
    // page, by walking all versions that a snapshot retains.
    index('sender_mark_sender').on(t.meshId, t.sender),
    foreignKey({ columns: [t.meshId, t.sender], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * Accepted envelopes, to detect resends of settled deliveries (P5). A row contains one commit's envelopes from one
 * sender in one time bucket, because one row each cost more than the queue itself. It stays while any of its deliveries
 * is queued.
 */
export const dedupeLedger = pgTable(
  'dedupe_ledger',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** The ids' milliseconds since 1970, divided by 1,024. */
    second: bigint('second', { mode: 'number' }).notNull(),
    /** The first of `ids`, which distinguishes rows of one time bucket. */
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
    /** The recipient's own reason, if it rejected the delivery. */
    detail: text('detail'),
    /** When the recipient was notified, except of its own rejections. */
    toldAt: instant('told_at'),
    terms: bytea('terms'),
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope'),
    /** for quotas, because the broker's role may not read the envelope */
    bytes: integer('bytes').generatedAlwaysAs(sql`coalesce(octet_length(envelope), 0) + coalesce(body_bytes, 0)`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.id] }),
    index('dead_letter_died').on(t.meshId, t.diedAt),
    index('dead_letter_untold').on(t.meshId, t.recipient, t.id).where(sql`${t.toldAt} is null`),
    index('dead_letter_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)
