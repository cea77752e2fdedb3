/** The tables of the operators' interface. They belong to the whole database, not to a mesh: their keys begin with ids of their own. */
import { sql } from 'drizzle-orm'
import { bigint, index, integer, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import { bytea, instant } from './schema-columns.ts'

/** What lets an operator in. Only the hash of its secret is kept, so who reads this table can't use what it finds there. */
export const adminToken = pgTable('admin_token', {
  /** Stands in the token itself, so that it is found without its secret. */
  tokenId: text('token_id').primaryKey(),
  /** SHA-256 of the secret. */
  hash: bytea('hash').notNull(),
  name: text('name').notNull(),
  scope: text('scope', { enum: ['read', 'operate'] }).notNull(),
  /** The only mesh it is good for; none: all of them, and what is of no mesh. */
  meshId: uuid('mesh_id'),
  createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
  expiresAt: instant('expires_at').notNull(),
  revokedAt: instant('revoked_at'),
  lastUsedAt: instant('last_used_at'),
})

/** What operators changed. Nobody but the owner of the database may change or delete a row of it. */
export const adminAudit = pgTable(
  'admin_audit',
  {
    auditId: bigint('audit_id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    at: instant('at').notNull().default(sql`clock_timestamp()`),
    /** `token:NAME`, or `database:ACCOUNT` for what was done without the broker. */
    actor: text('actor').notNull(),
    /** What was done, as `peer.revoke`. */
    action: text('action').notNull(),
    meshId: uuid('mesh_id'),
    /** To whom or what; none where `count` says it. */
    subject: text('subject'),
    count: integer('count').notNull().default(1),
  },
  (t) => [index('admin_audit_mesh').on(t.meshId, t.auditId)],
)
