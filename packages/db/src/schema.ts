/**
 * The tables. Every primary key and index begins with `mesh_id`: a mesh is the unit that moves, is dropped, and can be
 * distributed over servers. `cluster` and `shard` are about the servers themselves.
 *
 * Inside a mesh a peer is known by `peer_no`, a small integer: the hot tables repeat it for every delivery, and four
 * bytes there instead of a 32-byte key make rows and index entries smaller. It never leaves the server.
 */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  check,
  foreignKey,
  index,
  integer,
  pgSequence,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core'
import { bytea, instant } from './schema-columns.ts'

export const mesh = pgTable('mesh', {
  meshId: uuid('mesh_id').primaryKey(),
  name: text('name').notNull(),
  createdAt: instant('created_at').notNull().default(sql`clock_timestamp()`),
  /** Since then nothing can be done with it here: it is on its way from or to another cell, or lives there. */
  frozenAt: instant('frozen_at'),
  /** The cell it lives in, if not in this one. */
  movedTo: text('moved_to'),
  /** It came from another cell with all it had: its peers go on knowing the incarnation that they knew there, */
  lineage: uuid('lineage'),
  /** for as long as this cell's is the one in which it came. */
  lineageIn: uuid('lineage_in'),
})

/** A mesh that was, or is being, moved to or from another cell, as far as this side knows. `mesh-move.ts` has the phases. */
export const meshMove = pgTable('mesh_move', {
  meshId: uuid('mesh_id').primaryKey(),
  moveId: uuid('move_id').notNull(),
  /** What this side is of the move. */
  side: text('side', { enum: ['source', 'destination'] }).notNull(),
  phase: text('phase', { enum: ['frozen', 'copied', 'left', 'arrived', 'done', 'undone'] }).notNull(),
  /** The other one. */
  cell: text('cell').notNull(),
  /** What was copied, of all tables. */
  rows: bigint('rows', { mode: 'number' }),
  /** From the freeze to the moment when it could be used over there. */
  pauseMs: bigint('pause_ms', { mode: 'number' }),
})

/** Who belongs to a mesh: an ed25519 key, and the box key it vouches for by a signed key binding. */
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
    /** What people call it. A member that an operator enrolled may have none. */
    name: text('name'),
    role: text('role', { enum: ['member', 'admin'] })
      .notNull()
      .default('member'),
    /** The invite that let it in, so that an enrolment said twice is one. */
    inviteId: uuid('invite_id'),
    /** Whom it takes mail from; `consent` has the names. */
    consentPolicy: text('consent_policy', { enum: ['open', 'contacts'] })
      .notNull()
      .default('open'),
    /** A recipient that is no peer: `pool` has the rest. Its key is the pool's id, its box key and binding are zeros. */
    isPool: boolean('is_pool').notNull().default(false),
    /** Grows with each change, so that an older reading is told from a newer one. */
    consentVersion: integer('consent_version').notNull().default(0),
    /** Of a device: the person that vouches for it, and until when. `device` has the statement. */
    person: integer('person'),
    vouchedUntil: instant('vouched_until'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    // Partial, so that no search by number can be planned over them: on an empty table the planner can't tell them apart.
    uniqueIndex('member_peer_key').on(t.meshId, t.peerKey).where(sql`${t.peerKey} is not null`),
    // Two names that differ in their capitals only would be taken for one another.
    uniqueIndex('member_name').on(t.meshId, sql`lower(${t.name})`).where(sql`${t.name} is not null`),
    check(
      'member_lengths',
      sql`length(${t.peerKey}) = 32 and length(${t.boxKey}) = 32 and length(${t.bindingSignature}) = 64`,
    ),
  ],
)

/** A peer that a person vouches for as a device of its own. A removed one stays, or its invite could be used again. */
export const device = pgTable(
  'device',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    person: integer('person').notNull(),
    /** Let in one device. */
    inviteKey: bytea('invite_key').notNull(),
    statement: bytea('statement').notNull(),
    /** Signed by the person; none for a device that is one. */
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

/** Identity keys that others have followed, and the statement that both signed. None of them can be enrolled again. */
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

/** Whom a peer has allowed or blocked, by their numbers, so that it outlasts a change of their keys. */
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

/** Key bindings from before a rotation: what was sealed under them is opened with them. */
export const formerBinding = pgTable(
  'former_binding',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    boxEpoch: integer('box_epoch').notNull(),
    boxKey: bytea('box_key').notNull(),
    bindingNotAfterMs: bigint('binding_not_after_ms', { mode: 'number' }).notNull(),
    bindingSignature: bytea('binding_signature').notNull(),
    /** The identity key that signed it; none: that of now. */
    peerKey: bytea('peer_key'),
    retiredAt: instant('retired_at').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo, t.boxEpoch] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** A group's newest statement, which its owner signed. Everything in it but the bytes is there to be searched by. */
export const peerGroup = pgTable(
  'peer_group',
  {
    meshId: uuid('mesh_id').notNull(),
    groupId: uuid('group_id').notNull(),
    owner: integer('owner').notNull(),
    /** Only grows. The highest there is: it is over. */
    epoch: integer('epoch').notNull(),
    statement: bytea('statement').notNull(),
    /** When it was ended; null while it goes on. */
    overAt: instant('over_at'),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.groupId] }),
    foreignKey({ columns: [t.meshId, t.owner], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/** A pool: a recipient whose deliveries go to one of its members each. What its owner's newest statement says. */
export const pool = pgTable(
  'pool',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    owner: integer('owner').notNull(),
    /** Only grows. */
    epoch: integer('epoch').notNull(),
    /** Their numbers; one array, so that members change all at once. */
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
 * What is known of an invite, from its first use or its revocation on: invites are made without asking anybody, and only
 * the hash of one is kept. One that was revoked before anybody used it has nothing but its id.
 */
export const invite = pgTable(
  'invite',
  {
    meshId: uuid('mesh_id')
      .notNull()
      .references(() => mesh.meshId),
    inviteId: uuid('invite_id').notNull(),
    /** BLAKE2b-256 of the invite: no other one may go by its id. */
    hash: bytea('hash'),
    /** The admin who signed it; null for the operator's, see `mesh-founding.ts`, and while only its revocation is known. */
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

/**
 * Which shard serves a peer, one row per member from enrolment on. The epoch only grows; a claim locks this row, never
 * single deliveries, and a lease given under an older epoch is void.
 */
export const session = pgTable(
  'session',
  {
    meshId: uuid('mesh_id').notNull(),
    peerNo: integer('peer_no').notNull(),
    shard: uuid('shard'),
    epoch: bigint('epoch', { mode: 'number' }).notNull().default(0),
    openedAt: instant('opened_at'),
    /** The epoch with which it opened. What a pool leased to it stays leased when the session is fenced. */
    openedEpoch: bigint('opened_epoch', { mode: 'number' }).notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.peerNo] }),
    foreignKey({ columns: [t.meshId, t.peerNo], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * One row per delivery, until it is settled, expires or dies. The primary key is the order in which a recipient's
 * deliveries are claimed. No lease column stands in any index, so that a claim is a heap-only update.
 */
export const messageQueue = pgTable(
  'message_queue',
  {
    meshId: uuid('mesh_id').notNull(),
    recipient: integer('recipient').notNull(),
    priority: smallint('priority').notNull(),
    /** Ascends with a sender's sends; a shard numbers within a block of `delivery_block`. */
    id: bigint('id', { mode: 'number' }).notNull(),
    sender: integer('sender').notNull(),
    attempts: integer('attempts').notNull().default(0),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull().default(sql`now()`),
    expiresAt: instant('expires_at').notNull(),
    /** Of the recipient's session that holds it; none while it waits for another attempt. */
    leaseEpoch: bigint('lease_epoch', { mode: 'number' }),
    leaseUntil: instant('lease_until'),
    /** Of a pool's delivery: the member that has it; `lease_epoch` is the one with which its session opened. */
    leaseHolder: integer('lease_holder'),
    firstStrikeAt: instant('first_strike_at'),
    strikes: smallint('strikes').notNull().default(0),
    /** What its sender asked for beside, or that it is a receipt; none for most. The protocol's `terms.ts` reads it. */
    terms: bytea('terms'),
    /** Of a broadcast: its body in `shared_body`, and how long that is. */
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope').notNull(),
  },
  // No checks: they are prepared anew for every statement, 6 % of a small commit.
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.priority, t.id] }),
    index('message_queue_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/** The sealed body of a broadcast, once for all its recipients. It goes when no delivery and no dead letter names it. */
export const sharedBody = pgTable(
  'shared_body',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** Chosen by the sender, whose own mail alone it can spoil. */
    bodyId: bytea('body_id').notNull(),
    storedAt: instant('stored_at').notNull().default(sql`now()`),
    /** In a pool: for whom the envelope has a box. */
    readers: integer('readers').array(),
    bytes: bytea('bytes').notNull(),
  },
  (t) => [primaryKey({ columns: [t.meshId, t.sender, t.bodyId] })],
)

/** Accepted, and not to be delivered before its time: kept out of the way of every claim until then. */
export const delayedDelivery = pgTable(
  'delayed_delivery',
  {
    meshId: uuid('mesh_id').notNull(),
    dueAt: instant('due_at').notNull(),
    id: bigint('id', { mode: 'number' }).notNull(),
    recipient: integer('recipient').notNull(),
    priority: smallint('priority').notNull(),
    sender: integer('sender').notNull(),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull(),
    expiresAt: instant('expires_at').notNull(),
    terms: bytea('terms'),
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.dueAt, t.id] }),
    index('delayed_delivery_recipient').on(t.meshId, t.recipient),
    index('delayed_delivery_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/**
 * Blocks of 2^16 delivery ids. A shard draws one whenever a session opens or a resend comes, so that what a sender says
 * through this shard has higher ids than all it said through another. CACHE 1: a cached value would be an old one.
 */
export const deliveryBlock = pgSequence('delivery_block', { cache: 1 })

/** Ids of receipts, counted from 2^52. */
export const receiptId = pgSequence('receipt_id', { cache: 1 })

/**
 * How far each sender's envelope ids have come. Ids ascend with a sender's sends (UUID v7), so one past the mark is new
 * without a look into the ledger; the version lets a statement that did look notice another one's commit.
 */
export const senderMark = pgTable(
  'sender_mark',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    version: bigint('version', { mode: 'number' }).notNull().default(0),
    lastEnvelopeId: uuid('last_envelope_id').notNull().default('00000000-0000-0000-0000-000000000000'),
  },
  (t) => [
    // Not unique: a member has one since it is made with it. A unique index is asked at each change of a row whose page is full, and
    // while a snapshot is held that is a walk over all the row's former versions.
    index('sender_mark_sender').on(t.meshId, t.sender),
    foreignKey({ columns: [t.meshId, t.sender], foreignColumns: [member.meshId, member.peerNo] }),
  ],
)

/**
 * What was accepted from whom, so that a resend is one message also after its delivery was settled (P5). One row holds
 * what one commit took from a sender within one second of its ids: a row for each envelope cost more than the queue
 * itself. A row goes once its time has passed and none of its deliveries is queued.
 */
export const dedupeLedger = pgTable(
  'dedupe_ledger',
  {
    meshId: uuid('mesh_id').notNull(),
    sender: integer('sender').notNull(),
    /** The second that the ids carry: their milliseconds since 1970, divided by 1,024. */
    second: bigint('second', { mode: 'number' }).notNull(),
    /** The first of `ids`; it tells the rows of one second apart. */
    firstId: bigint('first_id', { mode: 'number' }).notNull(),
    keepUntil: instant('keep_until').notNull(),
    envelopeIds: uuid('envelope_ids').array().notNull(),
    fingerprints: bigint('fingerprints', { mode: 'bigint' }).array().notNull(),
    ids: bigint('ids', { mode: 'number' }).array().notNull(),
    recipients: integer('recipients').array().notNull(),
    priorities: smallint('priorities').array().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.sender, t.second, t.firstId] }),
    index('dedupe_ledger_due').on(t.meshId, t.keepUntil),
  ],
)

/** Deliveries that left the queue without being settled, each with its reason (P2). An expired one keeps no envelope. */
export const deadLetter = pgTable(
  'dead_letter',
  {
    meshId: uuid('mesh_id').notNull(),
    recipient: integer('recipient').notNull(),
    id: bigint('id', { mode: 'number' }).notNull(),
    priority: smallint('priority').notNull(),
    sender: integer('sender').notNull(),
    attempts: integer('attempts').notNull(),
    strikes: smallint('strikes').notNull(),
    envelopeId: uuid('envelope_id').notNull(),
    enqueuedAt: instant('enqueued_at').notNull(),
    diedAt: instant('died_at').notNull().default(sql`clock_timestamp()`),
    reason: text('reason', { enum: ['expired', 'strikes', 'rejected'] }).notNull(),
    /** What its recipient said when it rejected it. */
    detail: text('detail'),
    /** Its recipient was told that it is gone. One that rejected it knows. */
    toldAt: instant('told_at'),
    terms: bytea('terms'),
    bodyId: bytea('body_id'),
    bodyBytes: integer('body_bytes'),
    envelope: bytea('envelope'),
    /** For the quotas of a broker, whose role may not read the envelope. */
    bytes: integer('bytes').generatedAlwaysAs(sql`coalesce(octet_length(envelope), 0) + coalesce(body_bytes, 0)`),
  },
  (t) => [
    primaryKey({ columns: [t.meshId, t.recipient, t.id] }),
    index('dead_letter_died').on(t.meshId, t.diedAt),
    index('dead_letter_untold').on(t.meshId, t.recipient, t.id).where(sql`${t.toldAt} is null`),
    index('dead_letter_body').on(t.meshId, t.sender, t.bodyId).where(sql`${t.bodyId} is not null`),
  ],
)

/**
 * What lets a peer in by HTTP without a handshake for each request. Only the hash is kept: who reads this table can't use
 * what it finds there.
 */
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

/** The shards of this database, one row for each name. One whose lease has lapsed died without a word. */
export const shard = pgTable(
  'shard',
  {
    name: text('name').primaryKey(),
    /** Of the process that goes by this name now. */
    shardId: uuid('shard_id').notNull(),
    /** Grows with each process of this name. */
    epoch: bigint('epoch', { mode: 'number' }).notNull().default(1),
    /** Where peers dial it; null: no mesh has its home there. */
    url: text('url'),
    brokerKey: bytea('broker_key').notNull(),
    /** Of a key of its own, by that of the cluster. */
    certificate: bytea('certificate'),
    leaseUntil: instant('lease_until').notNull(),
  },
  (t) => [check('shard_key_length', sql`length(${t.brokerKey}) = 32`)],
)

/** Homes that an operator chose. A pin to a shard that is not there holds nobody up. */
export const meshPin = pgTable('mesh_pin', {
  meshId: uuid('mesh_id')
    .primaryKey()
    .references(() => mesh.meshId),
  shardName: text('shard_name').notNull(),
})

/** One row for the whole database. A new incarnation tells peers that an older state may have been restored. */
export const cluster = pgTable(
  'cluster',
  {
    one: smallint('one').primaryKey().default(1),
    incarnation: uuid('incarnation').notNull().default(sql`gen_random_uuid()`),
    /** The server and its timeline, when they were last looked at. Others mean that a backup was restored. */
    origin: text('origin'),
    /** The server and timeline that brokers are judging: does it hold all that they acknowledged? */
    candidate: text('candidate'),
    candidateSince: instant('candidate_since'),
    /** Shards that found everything they acknowledged on the candidate. */
    attested: uuid('attested').array(),
  },
  (t) => [check('cluster_single_row', sql`${t.one} = 1`)],
)
