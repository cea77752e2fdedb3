/**
 * Defines the tables of state and history. A writer first locks the space's row and takes its sequence numbers from
 * that row, so all changes in a space are in one order. The counters in the space's row serve quotas.
 */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  foreignKey,
  index,
  integer,
  pgTable,
  primaryKey,
  smallint,
  text,
  uuid,
} from 'drizzle-orm/pg-core'
import { bytea, count, instant } from '../drizzle.ts'
import { member } from './members.ts'

/** Spaces: one for the mesh, with the mesh's id, and one per group, with the group's id. */
export const space = pgTable(
  'space',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    owner: integer('owner').notNull(),
    /** The epoch of the statement. It only increases. */
    epoch: integer('epoch').notNull(),
    /** The statement that the owner signed; the next four columns repeat its content. */
    statement: bytea('statement').notNull(),
    historyFor: text('history_for', { enum: ['none', 'joined', 'all'] }).notNull(),
    keepsMessages: boolean('keeps_messages').notNull(),
    keepSeconds: integer('keep_seconds').notNull(),
    keepBytes: count('keep_bytes').notNull(),
    /** When recording began; null if events are not recorded. */
    keptSince: instant('kept_since'),
    /** The epoch of the newest granted space key; 0 if there is none. */
    keyEpoch: integer('key_epoch').notNull().default(0),
    /** The number of the newest event. Negative while the mesh is frozen, like the epochs of its sessions. */
    lastSeq: count('last_seq').notNull().default(0),
    lastAt: instant('last_at'),
    /** The number of entries, including deleted ones. */
    entries: integer('entries').notNull().default(0),
    /** The total size of these entries. */
    entryBytes: count('entry_bytes').notNull().default(0),
    /** The total size of the records and bodies of all retained events. */
    historyBytes: count('history_bytes').notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** Space keys. Each row has the key of one epoch, sealed to one member. */
export const spaceGrant = pgTable(
  'space_grant',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    keyEpoch: integer('key_epoch').notNull(),
    granter: integer('granter').notNull(),
    /** Null once the member has confirmed the key. */
    box: bytea('box'),
    fetchedAt: instant('fetched_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.peerNo, t.keyEpoch] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
    foreignKey({ columns: [t.meshId, t.granter], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The current entry of each key. The row of a deleted entry stays, because its revision numbers continue. */
export const stateEntry = pgTable(
  'state_entry',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    keyHash: bytea('key_hash').notNull(),
    revision: count('revision').notNull(),
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    author: integer('author').notNull(),
    isDeleted: boolean('is_deleted').notNull(),
    entry: bytea('entry').notNull(),
    /** The hash of the entry, which the next entry of this key must name as its predecessor. */
    hash: bytea('hash').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.keyHash] }),
    // Finds the changes after a sequence number, in order, for a reader that catches up or resumes.
    index('state_entry_seq').on(t.meshId, t.spaceId, t.seq),
  ],
)

/**
 * Every change of an entry and every recorded message, in one partition per day. Rows are deleted only by dropping a
 * whole partition.
 */
export const historyEvent = pgTable(
  'history_event',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** Counts from 1 without gaps, in commit order, which is also the order of `at`. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    /** 1 if an entry was set, 2 if an entry was deleted, 3 for a message. */
    kind: smallint('kind').notNull(),
    /** Set only for an entry. */
    keyHash: bytea('key_hash'),
    /**
     * For an entry: the previous event of its key, which this event supersedes. Null for the first event of the key.
     */
    formerSeq: count('former_seq'),
    author: integer('author').notNull(),
    /** The entry, or the key that opens a message's body. */
    record: bytea('record').notNull(),
    /** Set only for a message. */
    bodyId: bytea('body_id'),
    body: bytea('body'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] }), // the migration also adds former_seq to this index
    // A message that is resent in new envelopes is recorded once; this index finds the earlier record.
    index('history_event_body').on(t.meshId, t.spaceId, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/** The entries of a space at one time. A snapshot is complete once `done_at` is set. */
export const snapshot = pgTable(
  'snapshot',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** The last event that the snapshot includes. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    entries: integer('entries').notNull().default(0),
    bytes: count('bytes').notNull().default(0),
    doneAt: instant('done_at'),
    /** The seq of the last entry that has been written to the snapshot so far. */
    progress: count('progress').notNull().default(0),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] })],
)

/** The entries of a snapshot. Rows are written in primary-key order, so that a replay reads the pages sequentially. */
export const snapshotEntry = pgTable(
  'snapshot_entry',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    snapshotSeq: count('snapshot_seq').notNull(),
    snapshotAt: instant('snapshot_at').notNull(),
    keyHash: bytea('key_hash').notNull(),
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    author: integer('author').notNull(),
    entry: bytea('entry').notNull(),
  },
  (t) => [
    primaryKey({
      name: 'snapshot_entry_pk',
      columns: [t.meshId, t.spaceId, t.snapshotSeq, t.snapshotAt, t.seq],
    }),
  ],
)

/**
 * Defines the tables of attachments, which are sealed files that envelopes refer to. Their chunks may be in an S3 store
 * instead.
 */

/** Sealed files. Their names, types and keys are inside envelopes, so the broker doesn't know them. */
export const attachment = pgTable(
  'attachment',
  {
    meshId: uuid('mesh_id').notNull(),
    /** Chosen by the owner, so that creation is idempotent. */
    attachmentId: uuid('attachment_id').notNull(),
    owner: integer('owner').notNull(),
    /** The peers that may download the file; null for a group, whose current members may download it. */
    recipients: integer('recipients').array(),
    groupId: uuid('group_id'),
    /** The total size of all sealed chunks. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    /** The size of each chunk except the last. */
    chunkBytes: integer('chunk_bytes').notNull(),
    store: text('store', { enum: ['postgres', 's3'] }).notNull(),
    /** The hash over the hashes of all chunks; null until the file is complete. */
    hash: bytea('hash'),
    /** How long the file is retained once it is complete. */
    keepSeconds: integer('keep_seconds').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    completedAt: instant('completed_at'),
    /**
     * When the file becomes invisible and a sweep deletes it. Until the file is complete, this is the deadline of the
     * upload.
     */
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId] }),
    index('attachment_owner').on(t.meshId, t.owner),
    index('attachment_expiry').on(t.meshId, t.expiresAt),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

export const attachmentChunk = pgTable(
  'attachment_chunk',
  {
    meshId: uuid('mesh_id').notNull(),
    attachmentId: uuid('attachment_id').notNull(),
    chunkNo: integer('chunk_no').notNull(),
    /** BLAKE2b-256 of the sealed bytes. */
    hash: bytea('hash').notNull(),
    /** Null if the chunk is in the S3 store. */
    content: bytea('content'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId, t.chunkNo] }),
    // The reference does not cascade: a file is deleted in steps, and the reference prevents that a chunk is added
    // afterwards.
    foreignKey({
      name: 'attachment_chunk_of',
      columns: [t.meshId, t.attachmentId],
      foreignColumns: [attachment.meshId, attachment.attachmentId],
    }),
  ],
)
