/**
 * Defines the tables of state and history. A writer locks the space's row and takes sequence numbers from it, so that
 * all changes of a space are ordered. Its counters serve quotas.
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
    epoch: integer('epoch').notNull(),
    /** The owner's statement, whose contents the next four columns repeat. */
    statement: bytea('statement').notNull(),
    historyFor: text('history_for', { enum: ['none', 'joined', 'all'] }).notNull(),
    keepsMessages: boolean('keeps_messages').notNull(),
    keepSeconds: integer('keep_seconds').notNull(),
    keepBytes: count('keep_bytes').notNull(),
    /** When recording began; null without a history. */
    keptSince: instant('kept_since'),
    /** The epoch of the newest granted space key; 0 if there is none. */
    keyEpoch: integer('key_epoch').notNull().default(0),
    /** The number of the newest event. Negative while the mesh is frozen, like the epochs of its sessions. */
    lastSeq: count('last_seq').notNull().default(0),
    lastAt: instant('last_at'),
    /** The number of entries, including deleted ones. */
    entries: integer('entries').notNull().default(0),
    entryBytes: count('entry_bytes').notNull().default(0),
    /** The total size of the retained events' records and bodies. */
    historyBytes: count('history_bytes').notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** Space keys. Each row contains one epoch's key, sealed to one member. */
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

/** The current entry of each key. Deleted entries keep their rows, because revisions continue. */
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
    /** The hash that the key's next entry must refer to. */
    hash: bytea('hash').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.keyHash] }),
    // finds the changes after a sequence number, for readers that catch up
    index('state_entry_seq').on(t.meshId, t.spaceId, t.seq),
  ],
)

/** Changes of entries and recorded messages, in one partition per day, which is dropped as a whole. */
export const historyEvent = pgTable(
  'history_event',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** Counts from 1 in commit order without gaps. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    /** 1 if an entry was set, 2 if an entry was deleted, 3 for a message. */
    kind: smallint('kind').notNull(),
    keyHash: bytea('key_hash'),
    /** The key's previous event, which this one supersedes; null for messages and a key's first event. */
    formerSeq: count('former_seq'),
    author: integer('author').notNull(),
    /** The entry, or a message's key to its body. */
    record: bytea('record').notNull(),
    bodyId: bytea('body_id'),
    body: bytea('body'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] }), // the migration also adds former_seq to this index
    // finds the earlier record of a message that is resent in new envelopes
    index('history_event_body').on(t.meshId, t.spaceId, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/** The entries of a space at one time, complete once `done_at` is set. */
export const snapshot = pgTable(
  'snapshot',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** The last event that is included. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    entries: integer('entries').notNull().default(0),
    bytes: count('bytes').notNull().default(0),
    doneAt: instant('done_at'),
    /** The seq of the last entry written so far. */
    progress: count('progress').notNull().default(0),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] })],
)

/** The entries of a snapshot, written in primary-key order, so that a replay reads pages sequentially. */
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

/** Files that envelopes refer to. Their names, types and keys are sealed. Chunks may be in an S3 store instead. */
export const attachment = pgTable(
  'attachment',
  {
    meshId: uuid('mesh_id').notNull(),
    /** Chosen by the owner, which makes creation idempotent. */
    attachmentId: uuid('attachment_id').notNull(),
    owner: integer('owner').notNull(),
    /** The peers that may download the file; null for a group's current members. */
    recipients: integer('recipients').array(),
    groupId: uuid('group_id'),
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    /** The size of each chunk except the last. */
    chunkBytes: integer('chunk_bytes').notNull(),
    store: text('store', { enum: ['postgres', 's3'] }).notNull(),
    /** The hash over the hashes of all chunks; null until the file is complete. */
    hash: bytea('hash'),
    /** How long the complete file is retained. */
    keepSeconds: integer('keep_seconds').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    completedAt: instant('completed_at'),
    /** When the file becomes invisible and may be deleted; until it is complete, the upload's deadline. */
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
    // A file is deleted in steps, so the reference does not cascade: it prevents chunks from being added in between.
    foreignKey({
      name: 'attachment_chunk_of',
      columns: [t.meshId, t.attachmentId],
      foreignColumns: [attachment.meshId, attachment.attachmentId],
    }),
  ],
)
