/** Defines the table of prepared sends, which applications fill in their own transactions. */
import { sql } from 'drizzle-orm'
import { bigint, check, index, integer, pgTable, smallint, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { bytea, instant } from '../drizzle.ts'

/**
 * Signed send requests (docs/adr/0014-transactional-send.md). `sealpost.send` inserts a row in the application's
 * transaction; a broker takes committed rows in the order of their ids, and stores the decision in the row. The row then
 * stays for a day, so that a replayed request is recognized and the application can read its status.
 */
export const preparedSend = pgTable(
  'prepared_send',
  {
    id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    meshId: uuid('mesh_id').notNull(),
    sender: bytea('sender').notNull(),
    recipient: bytea('recipient').notNull(),
    priority: smallint('priority').notNull(),
    envelopeId: uuid('envelope_id').notNull(),
    queuedAt: instant('queued_at').notNull().default(sql`clock_timestamp()`),
    expiresAt: instant('expires_at').notNull(),
    /** When a broker may take the row: now, after a pause, or once the lease of a broker that died has ended. */
    dueAt: instant('due_at').notNull().default(sql`clock_timestamp()`),
    attempts: integer('attempts').notNull().default(0),
    /** When an attempt began whose outcome is unknown, if any. Its envelope may be stored. */
    doubtSince: instant('doubt_since'),
    status: text('status', { enum: ['queued', 'stored', 'refused', 'in_doubt'] })
      .notNull()
      .default('queued'),
    code: text('code'),
    decidedAt: instant('decided_at'),
    /** Null once the request is decided. */
    request: bytea('request'),
  },
  (t) => [
    uniqueIndex('prepared_send_envelope').on(t.envelopeId, t.sender),
    index('prepared_send_queued').on(t.id).where(sql`${t.status} = 'queued'`),
    check('prepared_send_decided', sql`(${t.status} = 'queued') = (${t.decidedAt} is null)`),
  ],
)
