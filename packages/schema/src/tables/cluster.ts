/** Defines the tables of servers and operators, which mostly don't belong to a mesh. */
import { sql } from 'drizzle-orm'
import { bigint, check, index, integer, pgTable, smallint, text, uuid } from 'drizzle-orm/pg-core'
import { bytea, instant } from '../drizzle.ts'
import { mesh } from './members.ts'

/** One row for the database. A new incarnation means that an older state may have been restored. */
export const cluster = pgTable(
  'cluster',
  {
    one: smallint('one').primaryKey().default(1),
    incarnation: uuid('incarnation').notNull().default(sql`gen_random_uuid()`),
    /** The server and its WAL timeline, as last agreed. A change means a failover or a restored backup. */
    origin: text('origin'),
    /** A server and timeline whose commits the brokers are checking. */
    candidate: text('candidate'),
    candidateSince: instant('candidate_since'),
    /** The shards that found all of their commits there. */
    attested: uuid('attested').array(),
    /** Until when a broker looks for prepared sends by itself, so that transactions need not notify it. */
    preparedPolledUntil: instant('prepared_polled_until'),
  },
  (t) => [check('cluster_single_row', sql`${t.one} = 1`)],
)

/** The shards of this database, one row per name. A shard with an expired lease is dead. */
export const shard = pgTable(
  'shard',
  {
    name: text('name').primaryKey(),
    /** The process that currently has this name. */
    shardId: uuid('shard_id').notNull(),
    epoch: bigint('epoch', { mode: 'number' }).notNull().default(1),
    /** The address for peers; null if the shard can never be a home shard. */
    url: text('url'),
    brokerKey: bytea('broker_key').notNull(),
    /** The certificate of a shard with its own key, signed with the cluster's key. */
    certificate: bytea('certificate'),
    leaseUntil: instant('lease_until').notNull(),
  },
  (t) => [check('shard_key_length', sql`length(${t.brokerKey}) = 32`)],
)

/** Meshes pinned to a home shard. A pin has no effect while that shard is dead. */
export const meshPin = pgTable('mesh_pin', {
  meshId: uuid('mesh_id')
    .primaryKey()
    .references(() => mesh.meshId),
  shardName: text('shard_name').notNull(),
})

/** The latest move of a mesh, as this cell knows it. `packages/mesh-move/src/mesh-move.ts` describes the phases. */
export const meshMove = pgTable('mesh_move', {
  meshId: uuid('mesh_id').primaryKey(),
  moveId: uuid('move_id').notNull(),
  side: text('side', { enum: ['source', 'destination'] }).notNull(),
  phase: text('phase', { enum: ['frozen', 'copied', 'left', 'arrived', 'done', 'undone'] }).notNull(),
  cell: text('cell').notNull(),
  rows: bigint('rows', { mode: 'number' }),
  /** How long the mesh was unavailable, from the freeze to its arrival. */
  pauseMs: bigint('pause_ms', { mode: 'number' }),
})

/** Tokens of operators. A copy of the table is useless, because secrets are hashed. */
export const adminToken = pgTable('admin_token', {
  /** The part of the token that identifies the row. */
  tokenId: text('token_id').primaryKey(),
  /** SHA-256 of the secret. */
  hash: bytea('hash').notNull(),
  name: text('name').notNull(),
  scope: text('scope', { enum: ['read', 'operate'] }).notNull(),
  /** The only mesh for which the token is valid; null for all. */
  meshId: uuid('mesh_id'),
  createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
  expiresAt: instant('expires_at').notNull(),
  revokedAt: instant('revoked_at'),
  lastUsedAt: instant('last_used_at'),
})

/** The audit log. Only the database owner may change or delete a row. */
export const adminAudit = pgTable(
  'admin_audit',
  {
    auditId: bigint('audit_id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    at: instant('at').notNull().default(sql`clock_timestamp()`),
    /** `token:NAME`; `database:ACCOUNT` for a change without a broker. */
    actor: text('actor').notNull(),
    action: text('action').notNull(),
    meshId: uuid('mesh_id'),
    /** The subject of the change; null if `count` says enough. */
    subject: text('subject'),
    count: integer('count').notNull().default(1),
  },
  (t) => [index('admin_audit_mesh').on(t.meshId, t.auditId)],
)
