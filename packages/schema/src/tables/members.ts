/**
 * Defines the tables of meshes, members, and members' signed statements. Every key begins with `mesh_id`, because a
 * mesh can be moved, deleted and placed on its own.
 *
 * Inside a mesh, `peer_no` identifies a peer. Its four bytes keep the hot tables smaller than a 32-byte key would. The
 * number never leaves the server.
 */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  check,
  foreignKey,
  index,
  integer,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core'
import { bytea, instant } from '../drizzle.ts'

export const mesh = pgTable('mesh', {
  meshId: uuid('mesh_id').primaryKey(),
  name: text('name').notNull(),
  createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
  /** When this cell began to refuse changes, because the mesh is moving or has moved. */
  frozenAt: instant('frozen_at'),
  /** The other cell, once the mesh lives there. */
  movedTo: text('moved_to'),
  /** The incarnation that the mesh brought with it. Its peers see it while the cell's own incarnation is `lineageIn`. */
  lineage: uuid('lineage'),
  /** This cell's incarnation when the mesh arrived. */
  lineageIn: uuid('lineage_in'),
})

/** The members of a mesh. Each has an ed25519 key, which vouches for the member's box key in a signed key binding. */
export const member = pgTable(
  'member',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    peerNo: integer('peer_no').notNull().generatedAlwaysAsIdentity(),
    peerKey: bytea('peer_key').notNull(),
    boxKey: bytea('box_key').notNull(),
    boxEpoch: integer('box_epoch').notNull(),
    bindingNotAfterMs: bigint('binding_not_after_ms', { mode: 'number' }).notNull(),
    bindingSignature: bytea('binding_signature').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    revokedAt: instant('revoked_at'),
    /** The ASCII form. Null only if an operator enrolled the member. */
    name: text('name'),
    /** What the name looks like (UTS 39). Null if the previous version of the broker enrolled the member. */
    skeleton: text('skeleton'),
    /** The Unicode form without differences of case. Null like `skeleton`. */
    folded: text('folded'),
    role: text('role', { enum: ['member', 'admin'] })
      .notNull()
      .default('member'),
    /** The invite that enrolled the member, so that enrolment is idempotent. */
    inviteId: uuid('invite_id'),
    /** Whose mail the member accepts; `consent` lists exceptions. */
    consentPolicy: text('consent_policy', { enum: ['open', 'contacts'] })
      .notNull()
      .default('open'),
    /** Whether the row is a pool, whose key is its id and whose box key and binding are zeros. */
    isPool: boolean('is_pool').notNull().default(false),
    /** Increases with each change of the consent, so that readers recognize outdated data. */
    consentVersion: integer('consent_version').notNull().default(0),
    /** The user of a device. */
    person: integer('person'),
    /** When a device's voucher expires. */
    vouchedUntil: instant('vouched_until'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    // Partial, so that a search by number never uses these: on an empty table, they would look as good as the primary
    // key.
    uniqueIndex('member_peer_key').on(t.meshId, t.peerKey).where(sql`${t.peerKey} is not null`),
    // Ignores case, because such names would be confused.
    uniqueIndex('member_name').on(t.meshId, sql`lower(${t.name})`).where(sql`${t.name} is not null`),
    uniqueIndex('member_skeleton')
      .on(t.meshId, t.skeleton)
      .where(sql`${t.name} is not null and ${t.skeleton} is not null`),
    uniqueIndex('member_folded').on(t.meshId, t.folded).where(sql`${t.name} is not null and ${t.folded} is not null`),
    // Contains only the members that the previous version enrolled: two of them can have one skeleton.
    index('member_skeleton_of_ascii')
      .on(t.meshId, sql`name_skeleton(${t.name})`)
      .where(sql`${t.name} is not null and ${t.skeleton} is null`),
    check(
      'member_lengths',
      sql`length(${t.peerKey}) = 32 and length(${t.boxKey}) = 32 and length(${t.bindingSignature}) = 64`,
    ),
  ],
)

/** Devices of users. Removed ones keep their rows, so that their invites can't be used again. */
export const device = pgTable(
  'device',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    person: integer('person').notNull(),
    /** The key of the invite that enrols the device. */
    inviteKey: bytea('invite_key').notNull(),
    statement: bytea('statement').notNull(),
    /** The user's signed removal; null for an enrolled device. */
    removal: bytea('removal'),
    removedAt: instant('removed_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    uniqueIndex('device_invite').on(t.meshId, t.person, t.inviteKey),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
    foreignKey({ columns: [t.meshId, t.person], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** Rotated identity keys, with the statement that both keys signed. They can't be enrolled again. */
export const formerIdentity = pgTable(
  'former_identity',
  {
    meshId: uuid('mesh_id').notNull(),
    peerKey: bytea('peer_key').notNull(),
    peerNo: integer('peer_no').notNull(),
    statement: bytea('statement').notNull(),
    retiredAt: instant('retired_at').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerKey] }),
    index('former_identity_peer').on(t.meshId, t.peerNo),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The newest statement of each user that names the devices that may certify its successor (docs/adr/0016). */
export const heirStatement = pgTable(
  'heir_statement',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    /** The identity key that signed the statement. */
    userKey: bytea('user_key').notNull(),
    /** Only increases for one key. */
    epoch: integer('epoch').notNull(),
    statement: bytea('statement').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * The newest recovery of each identity key that a device published. It is done if the former identity has the same statement,
 * cancelled if the user has rotated the key or named heirs with a higher epoch, and otherwise pending.
 */
export const keyRecovery = pgTable(
  'key_recovery',
  {
    meshId: uuid('mesh_id').notNull(),
    formerKey: bytea('former_key').notNull(),
    peerNo: integer('peer_no').notNull(),
    /** The epoch of the heir statement that the recovery contains. */
    epoch: integer('epoch').notNull(),
    heirKey: bytea('heir_key').notNull(),
    successorKey: bytea('successor_key').notNull(),
    statement: bytea('statement').notNull(),
    publishedAt: instant('published_at').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.formerKey] }),
    index('key_recovery_successor').on(t.meshId, t.successorKey),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** Key bindings from before a rotation, needed to open messages sealed under them. */
export const formerBinding = pgTable(
  'former_binding',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    boxEpoch: integer('box_epoch').notNull(),
    boxKey: bytea('box_key').notNull(),
    bindingNotAfterMs: bigint('binding_not_after_ms', { mode: 'number' }).notNull(),
    bindingSignature: bytea('binding_signature').notNull(),
    /** The identity key that signed the binding; null if it is the current identity key. */
    peerKey: bytea('peer_key'),
    retiredAt: instant('retired_at').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo, t.boxEpoch] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The peers that a peer allows or blocks, by peer number, so that the entries survive a key rotation. */
export const consent = pgTable(
  'consent',
  {
    meshId: uuid('mesh_id').notNull(),
    owner: integer('owner').notNull(),
    peerNo: integer('peer_no').notNull(),
    isBlocked: boolean('is_blocked').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.owner, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The newest signed statement of each group. The other columns repeat the parts that queries need. */
export const peerGroup = pgTable(
  'peer_group',
  {
    meshId: uuid('mesh_id').notNull(),
    groupId: uuid('group_id').notNull(),
    owner: integer('owner').notNull(),
    /** Only increases. The highest value ends the group. */
    epoch: integer('epoch').notNull(),
    statement: bytea('statement').notNull(),
    /** Null while the group exists. */
    overAt: instant('over_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.groupId] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The newest signed statement of each pool. A pool is a recipient, and each of its deliveries goes to one member. */
export const pool = pgTable(
  'pool',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    owner: integer('owner').notNull(),
    /** Only increases. */
    epoch: integer('epoch').notNull(),
    /** The members' numbers, in one array so that they change together. */
    members: integer('members').array().notNull(),
    statement: bytea('statement').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * Invites that were used or revoked. Members create invites without the broker, which stores only a hash. If an invite
 * was revoked before its first use, its row has only the id.
 */
export const invite = pgTable(
  'invite',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    inviteId: uuid('invite_id').notNull(),
    /** BLAKE2b-256 of the invite, so that no other invite can use the same id. */
    hash: bytea('hash'),
    /** The admin that signed the invite; null if an operator issued it, or if only its revocation is known. */
    issuer: integer('issuer'),
    uses: integer('uses').notNull().default(0),
    usesMax: integer('uses_max'),
    notAfter: instant('not_after'),
    revokedAt: instant('revoked_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.inviteId] }),
    foreignKey({ columns: [t.meshId, t.issuer], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The key that certifies the first admins of a mesh. Its secret is not in the database. */
export const meshRoot = pgTable('mesh_root', {
  meshId: uuid('mesh_id')
    .primaryKey()
    .references(() => mesh.meshId),
  rootKey: bytea('root_key').notNull(),
  adoptedAt: instant('adopted_at').notNull().default(sql`clock_timestamp()`),
})

/** Signed statements that name a member. Peers verify them, so a false one has no effect. They outlive the membership. */
export const memberProof = pgTable(
  'member_proof',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    peerKey: bytea('peer_key').notNull(),
    kind: text('kind', { enum: ['certificate', 'endorsement', 'admission'] }).notNull(),
    issuer: bytea('issuer').notNull(),
    atMs: bigint('at_ms', { mode: 'number' }).notNull(),
    statement: bytea('statement').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.peerKey, t.kind, t.issuer] })],
)

/** The signed revocations of a mesh. Each names its number and the hash of the one before. */
export const memberRevocation = pgTable(
  'member_revocation',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    number: integer('number').notNull(),
    statement: bytea('statement').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.number] })],
)

/** Access tokens for HTTP. A copy of the table is useless, because tokens are hashed. */
export const accessToken = pgTable(
  'access_token',
  {
    meshId: uuid('mesh_id').notNull(),
    /** BLAKE2b-256 of the token's bytes. */
    hash: bytea('hash').notNull(),
    peerNo: integer('peer_no').notNull(),
    createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
    expiresAt: instant('expires_at').notNull(),
    revokedAt: instant('revoked_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.hash] }),
    index('access_token_peer').on(t.meshId, t.peerNo),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** The newest signed prekey of each peer (docs/adr/0018-ratchets.md), and how often it served alone. */
export const prekeyStatement = pgTable(
  'prekey_statement',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    statement: bytea('statement').notNull(),
    /** Only increases. */
    issuedAtMs: bigint('issued_at_ms', { mode: 'number' }).notNull(),
    /** The number of claims of this statement that found no one-time prekey. */
    lastResorts: integer('last_resorts').notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * One-time prekeys. Claimed ones keep their rows for a day: a repeated publication must not offer them again, and they
 * count towards the claimer's limits.
 */
export const oneTimePrekey = pgTable(
  'one_time_prekey',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    /** A random number of 32 bits, which the peer has chosen. */
    keyId: bigint('key_id', { mode: 'number' }).notNull(),
    publicKey: bytea('public_key').notNull(),
    /** The user that claimed the key. */
    claimer: integer('claimer'),
    claimedAt: instant('claimed_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo, t.keyId] }),
    index('one_time_prekey_unclaimed').on(t.meshId, t.peerNo).where(sql`${t.claimedAt} is null`),
    index('one_time_prekey_claimer').on(t.meshId, t.claimer, t.claimedAt).where(sql`${t.claimedAt} is not null`),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
    check('one_time_prekey_claimed', sql`(${t.claimedAt} is null) = (${t.claimer} is null)`),
  ],
)
