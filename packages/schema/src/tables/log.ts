/**
 * Defines the transparent log of each mesh (docs/adr/0023). Triggers of the statements' tables append to it. Only the
 * owner of the tables can change it.
 */
import { sql } from 'drizzle-orm'
import { boolean, index, pgTable, primaryKey, smallint, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { bytea, count } from '../drizzle.ts'
import { mesh } from './members.ts'

/** The logs. A transaction that appends holds the lock of this row until it commits. */
export const meshLog = pgTable(
  'mesh_log',
  {
    meshId: uuid('mesh_id')
      .primaryKey()
      .references(() => mesh.meshId),
    /** Whether the statements from before the log have entries. */
    isComplete: boolean('is_complete').notNull().default(true),
  },
  (t) => [index('mesh_log_incomplete').on(t.meshId).where(sql`not ${t.isComplete}`)],
)

/** The statements in the order in which they were stored, from 0 and without a gap. */
export const logEntry = pgTable(
  'log_entry',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    seq: count('seq').notNull(),
    /** What the statement is; a number that `packages/identity/src/log/log-entry.ts` defines. */
    kind: smallint('kind').notNull(),
    /** The hash of the entry as a leaf of the tree. */
    leaf: bytea('leaf').notNull(),
    statement: bytea('statement').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.seq] }), uniqueIndex('log_entry_leaf').on(t.meshId, t.leaf)],
)

/** The hashes of the perfect subtrees. */
export const logNode = pgTable(
  'log_node',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    /** The number of the node from left to right; leaves have even numbers. */
    position: count('position').notNull(),
    hash: bytea('hash').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.position] })],
)

/** The certificates of shards that have signed checkpoints, for peers that receive such a checkpoint from another peer. */
export const logSigner = pgTable(
  'log_signer',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    signer: bytea('signer').notNull(),
    certificate: bytea('certificate').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.signer] })],
)
