/** Attachments: sealed files next to the envelopes that refer to them. Chunks may be in an S3 store instead. */
import { sql } from 'drizzle-orm'
import { bigint, foreignKey, index, integer, pgTable, primaryKey, text, uuid } from 'drizzle-orm/pg-core'
import { bytea, instant } from './columns.ts'
import { member } from './members.ts'

/** Sealed files. Their names, types and keys are inside envelopes, unknown to the broker. */
export const attachment = pgTable(
  'attachment',
  {
    meshId: uuid('mesh_id').notNull(),
    /** Chosen by the owner, which makes creation idempotent. */
    attachmentId: uuid('attachment_id').notNull(),
    owner: integer('owner').notNull(),
    /** Who may download it; null for a group, whose current members may. */
    recipients: integer('recipients').array(),
    groupId: uuid('group_id'),
    /** The size of all sealed chunks, and of each but the last. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    chunkBytes: integer('chunk_bytes').notNull(),
    store: text('store', { enum: ['postgres', 's3'] }).notNull(),
    /** Over the hashes of all chunks; null until the file is complete. */
    hash: bytea('hash'),
    /** Retention from completion on. */
    keepSeconds: integer('keep_seconds').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    completedAt: instant('completed_at'),
    /** When it becomes invisible; a sweep deletes it later. For an incomplete file, the deadline of the upload. */
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId] }),
    index('attachment_owner').on(t.meshId, t.owner),
    index('attachment_expiry').on(t.meshId, t.expiresAt),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** Sealed chunks of attachments. */
export const attachmentChunk = pgTable(
  'attachment_chunk',
  {
    meshId: uuid('mesh_id').notNull(),
    attachmentId: uuid('attachment_id').notNull(),
    /** From 0. */
    chunkNo: integer('chunk_no').notNull(),
    /** BLAKE2b-256 of the sealed bytes. */
    hash: bytea('hash').notNull(),
    /** Null: the S3 store has it. */
    content: bytea('content'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.attachmentId, t.chunkNo] }),
    // No cascade: a file is deleted in steps, and no chunk may be added afterwards.
    foreignKey({
      name: 'attachment_chunk_of',
      columns: [t.meshId, t.attachmentId],
      foreignColumns: [attachment.meshId, attachment.attachmentId],
    }),
  ],
)
