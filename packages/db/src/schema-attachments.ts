/** The tables of attachments: sealed files beside the envelopes that name them. Chunks may lie in an S3 store instead. */
import { sql } from 'drizzle-orm'
import { bigint, foreignKey, index, integer, pgTable, primaryKey, text, uuid } from 'drizzle-orm/pg-core'
import { member } from './schema.ts'
import { bytea, instant } from './schema-columns.ts'

/** A sealed file. Its name, type and key are none of the broker's business: they stand in envelopes. */
export const attachment = pgTable(
  'attachment',
  {
    meshId: uuid('mesh_id').notNull(),
    /** Drawn by its owner, so that asking twice makes one. */
    attachmentId: uuid('attachment_id').notNull(),
    owner: integer('owner').notNull(),
    /** Who may fetch it; none for one of a group, whose members of the moment may. */
    recipients: integer('recipients').array(),
    groupId: uuid('group_id'),
    /** Of all sealed chunks, and of each but the last one. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    chunkBytes: integer('chunk_bytes').notNull(),
    store: text('store', { enum: ['postgres', 's3'] }).notNull(),
    /** Over the hashes of all chunks, once it is complete. */
    hash: bytea('hash'),
    /** It is kept for so long from its completion. */
    keepSeconds: integer('keep_seconds').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    completedAt: instant('completed_at'),
    /** From then on nobody is told of it; the sweep takes it away. Of an unfinished one: when it is given up. */
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId] }),
    index('attachment_owner').on(t.meshId, t.owner),
    index('attachment_expiry').on(t.meshId, t.expiresAt),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** A sealed chunk of it. */
export const attachmentChunk = pgTable(
  'attachment_chunk',
  {
    meshId: uuid('mesh_id').notNull(),
    attachmentId: uuid('attachment_id').notNull(),
    /** From 0. */
    chunkNo: integer('chunk_no').notNull(),
    /** BLAKE2b-256 of the sealed bytes. */
    hash: bytea('hash').notNull(),
    /** None: it lies in the S3 store. */
    content: bytea('content'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId, t.chunkNo] }),
    // No cascade: a file goes in steps, and no chunk may come behind its end.
    foreignKey({
      name: 'attachment_chunk_of',
      columns: [t.meshId, t.attachmentId],
      foreignColumns: [attachment.meshId, attachment.attachmentId],
    }),
  ],
)
