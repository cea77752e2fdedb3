/**
 * The tables of state and history. Whoever writes into a space locks its row first, draws its numbers there, and so puts
 * all changes of a space into one order; the row's counters are what quotas are judged by.
 */
import { sql } from 'drizzle-orm'
import { boolean, foreignKey, index, integer, pgTable, primaryKey, smallint, text, uuid } from 'drizzle-orm/pg-core'
import { member } from './schema.ts'
import { bytea, count, instant } from './schema-columns.ts'

/** Where entries and history live: the mesh's own (its id is the mesh's), or a group's (its id is the group's). */
export const space = pgTable(
  'space',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    owner: integer('owner').notNull(),
    /** Of the statement. Only grows. */
    epoch: integer('epoch').notNull(),
    /** What its owner signed; the next four say it in columns. */
    statement: bytea('statement').notNull(),
    historyFor: text('history_for', { enum: ['none', 'joined', 'all'] }).notNull(),
    keepsMessages: boolean('keeps_messages').notNull(),
    keepSeconds: integer('keep_seconds').notNull(),
    keepBytes: count('keep_bytes').notNull(),
    /** From then on its events are there, or were; null: it keeps none. */
    keptSince: instant('kept_since'),
    /** Of the newest space key that was granted to somebody; 0: none was. */
    keyEpoch: integer('key_epoch').notNull().default(0),
    /** Of the newest event. Negative while the mesh is frozen, as the epoch of a session is. */
    lastSeq: count('last_seq').notNull().default(0),
    lastAt: instant('last_at'),
    /** Values that stand, deleted ones among them, and the bytes of their entries. */
    entries: integer('entries').notNull().default(0),
    entryBytes: count('entry_bytes').notNull().default(0),
    /** Of all events that are kept: records and bodies. */
    historyBytes: count('history_bytes').notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** A space key of one epoch, sealed to one member. */
export const spaceGrant = pgTable(
  'space_grant',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    keyEpoch: integer('key_epoch').notNull(),
    granter: integer('granter').notNull(),
    /** Gone once its member has said that it has the key. */
    box: bytea('box'),
    fetchedAt: instant('fetched_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.peerNo, t.keyEpoch] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
    foreignKey({ columns: [t.meshId, t.granter], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The last value under each key. A deleted one stays: its revisions go on. */
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
    /** Of the entry: what the next one must name as its former. */
    hash: bytea('hash').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.keyHash] }),
    // What was changed since, in order: how a reader comes up to date, and where it goes on after a cut.
    index('state_entry_seq').on(t.meshId, t.spaceId, t.seq),
  ],
)

/** Every change of an entry and every kept message, a partition for each day. Whole partitions go, never single rows. */
export const historyEvent = pgTable(
  'history_event',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** From 1, without a gap; the order of commits, and of `at`. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    /** 1: a value was set, 2: deleted, 3: a message. */
    kind: smallint('kind').notNull(),
    /** Of an entry. */
    keyHash: bytea('key_hash'),
    /** Of an entry: the event that set this key before; null for its first. Who asks for a state leaves those out. */
    formerSeq: count('former_seq'),
    author: integer('author').notNull(),
    /** The entry, or what opens the body of a message. */
    record: bytea('record').notNull(),
    /** Of a message. */
    bodyId: bytea('body_id'),
    body: bytea('body'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] }), // with former_seq included (migration 0025)
    // A message that is said again, with envelopes that were not stored before, is kept once.
    index('history_event_body').on(t.meshId, t.spaceId, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/** All last values of a space at one moment, once `done_at` is set. */
export const snapshot = pgTable(
  'snapshot',
  {
    meshId: uuid('mesh_id').notNull(),
    spaceId: uuid('space_id').notNull(),
    /** Of the last event that is in it. */
    seq: count('seq').notNull(),
    at: instant('at').notNull(),
    entries: integer('entries').notNull().default(0),
    bytes: count('bytes').notNull().default(0),
    doneAt: instant('done_at'),
    /** The seq of the last entry that was written, while it is being made. */
    progress: count('progress').notNull().default(0),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.spaceId, t.seq, t.at] })],
)

/** Written in the order of its key, which is the order of its pages, so that a replay reads it from one end to the other. */
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
