/** Defines schemas for the operator API. The broker produces these values; the CLI and the console read them. */
import { z } from 'zod'
import { type RedriveRefusal, redriveRefusals } from './texts.ts'

const ms = z.number().describe('milliseconds')
const instantMs = z.number().describe('milliseconds since 1970')
const perSecond = z.number().min(0)
/** A percentile over the last interval; null without measurements. */
const percentile = ms.nullable()

/**
 * `waiting`: mail waits for peers that are offline or don't want it now. `behind`: a connected peer can't keep up.
 * `unknown`: the queue could not be read recently.
 */
export const Flow = z.enum(['flowing', 'waiting', 'behind', 'unknown'])
export type Flow = z.output<typeof Flow>

export const WaitReason = z.enum([
  'on_its_way',
  'away',
  'do_not_disturb',
  'not_reading',
  'not_settling',
  'catching_up',
  'pool_unserved',
])
export type WaitReason = z.output<typeof WaitReason>

export const WaitingPeer = z.object({
  peerKey: z.string(),
  name: z.string().nullable(),
  depth: z.int(),
  oldestAgeMs: ms,
  reason: WaitReason,
  unsettled: z.int().describe('deliveries that were pushed to it and not settled'),
})
export type WaitingPeer = z.output<typeof WaitingPeer>

/** A sample of the broker, since the previous one. */
export const Sample = z.object({
  atMs: ms,
  acceptedPerSecond: perSecond,
  pushedPerSecond: perSecond,
  settledPerSecond: perSecond,
  refusedPerSecond: perSecond,
  lostPerSecond: perSecond.describe('deliveries that left the queue unsettled'),
  ackP50Ms: percentile,
  ackP95Ms: percentile,
  ackP99Ms: percentile,
  pushP50Ms: percentile,
  pushP95Ms: percentile,
  pushP99Ms: percentile,
  commitP99Ms: percentile,
  sessions: z.int(),
  depth: z.int(),
  oldestAgeMs: ms,
  memoryBytes: z.int(),
})
export type Sample = z.output<typeof Sample>

export const MeshState = z.object({
  meshId: z.string(),
  name: z.string(),
  flow: Flow,
  why: z.string().describe('one or two sentences'),
  depth: z.int(),
  oldestAgeMs: ms,
  recipients: z.int().describe('recipients with waiting messages'),
  sessions: z.int().describe('live sessions on this shard'),
  deadLetters: z.int().describe('counted up to 1,000'),
  worst: z.array(WaitingPeer),
})
export type MeshState = z.output<typeof MeshState>

export const Problem = z.object({ code: z.string(), sentence: z.string() })
export type Problem = z.output<typeof Problem>

export const Queue = z.object({
  depth: z.int(),
  oldestAgeMs: ms,
  recipients: z.int(),
  seenAgoMs: ms.nullable().describe('the age of this count; null: the first one has not finished'),
})

const DatabaseBrief = z.object({
  snapshotSeconds: z.number(),
  deadRows: z.number(),
  statementsWaiting: z.int(),
  walBytesPerSecond: z.number().nullable(),
  deadLetters: z.number().nullable().describe('estimated by the database server'),
})

export const Overview = z.object({
  atMs: ms,
  shard: z.string(),
  version: z.string(),
  gitSha: z.string().describe('the commit of the build; `unknown` outside of a repository'),
  postgres: z.string(),
  durability: z.string(),
  limits: z.string(),
  flow: Flow,
  causes: z.array(Problem).describe('problems of the broker or its database'),
  now: Sample,
  queue: Queue,
  connections: z.int(),
  database: DatabaseBrief,
  meshes: z.array(MeshState).describe('the 20 worst meshes with waiting messages or dead letters, worst first'),
})
export type Overview = z.output<typeof Overview>

export const SampleHistory = z.object({ everyMs: ms, samples: z.array(Sample) })
export type SampleHistory = z.output<typeof SampleHistory>

export const DatabaseReport = z.object({
  version: z.string(),
  bytes: z.number(),
  walBytesPerSecond: z.number().nullable(),
  connections: z.int(),
  ownConnections: z.int(),
  connectionsMax: z.int(),
  statementsWaiting: z.int(),
  snapshots: z.array(z.object({ pid: z.int(), application: z.string(), state: z.string(), seconds: z.number() })),
  tables: z.array(
    z.object({
      name: z.string(),
      partitions: z.int().describe('0: the table is not partitioned'),
      rows: z.number(),
      deadRows: z.number(),
      bytes: z.number(),
      vacuumedAtMs: ms.nullable(),
    }),
  ),
  warnings: z.array(Problem),
})
export type DatabaseReport = z.output<typeof DatabaseReport>

export const MeshPage = z.object({
  meshes: z.array(MeshState.extend({ createdAtMs: instantMs })),
  next: z.string().nullable().describe('the value of `after` for the next page'),
})
export type MeshPage = z.output<typeof MeshPage>

export const MeshReport = MeshState.extend({
  createdAtMs: instantMs,
  members: z.int(),
  membersAreMore: z.boolean().describe('true if there are more than 10,000, which are not counted'),
})
export type MeshReport = z.output<typeof MeshReport>

export const PeerReport = z.object({
  peerKey: z.string(),
  name: z.string().nullable(),
  role: z.enum(['member', 'admin']),
  kind: z.enum(['peer', 'device', 'pool']),
  person: z.string().nullable().describe('the user, if this is a device'),
  status: z.enum(['idle', 'working', 'dnd', 'away', 'revoked', 'pool']),
  depth: z.int(),
  oldestAgeMs: z.number().nullable(),
  unsettled: z.int(),
  reason: WaitReason.nullable(),
  consent: z.object({ policy: z.enum(['open', 'contacts']), allowed: z.int(), blocked: z.int() }),
  createdAtMs: instantMs,
  revokedAtMs: instantMs.nullable(),
  isCertified: z
    .boolean()
    .nullable()
    .default(null)
    .describe('whether signed statements name the member, which members verify; null if the mesh has no root'),
  lastSeen: z
    .object({ shard: z.string(), sinceMs: instantMs })
    .nullable()
    .describe('the shard and the start of the last session'),
})
export type PeerReport = z.output<typeof PeerReport>

export const PeerPage = z.object({ peers: z.array(PeerReport), next: z.string().nullable() })
export type PeerPage = z.output<typeof PeerPage>

const GroupReport = z.object({
  kind: z.enum(['group', 'pool']),
  id: z.string(),
  owner: z.string(),
  ownerName: z.string().nullable(),
  epoch: z.int(),
  members: z.int().nullable().describe('the members of a pool; null for a group, whose signed statement lists them'),
  isOver: z.boolean(),
})
export const GroupList = z.object({ groups: z.array(GroupReport) })
export type GroupList = z.output<typeof GroupList>

export const Invite = z.object({
  inviteId: z.string(),
  issuer: z.string().nullable(),
  issuerName: z.string().nullable(),
  uses: z.int(),
  usesMax: z.int().nullable(),
  notAfterMs: instantMs.nullable(),
  revokedAtMs: instantMs.nullable(),
})
export const Invites = z.object({ invites: z.array(Invite) })
export type Invites = z.output<typeof Invites>

const QUOTA_NAMES = [
  'members',
  'mesh_deliveries',
  'mesh_bytes',
  'mesh_sender_deliveries',
  'mesh_sender_bytes',
  'mailbox_deliveries',
  'mailbox_bytes',
  'mailbox_sender_deliveries',
  'mailbox_sender_bytes',
  'dead_letters',
  'dead_letter_bytes',
  'groups',
  'pools',
] as const

export const Quota = z.object({
  name: z.enum(QUOTA_NAMES),
  used: z.number().describe('for a quota per member, the usage of the member that uses most'),
  max: z.number().nullable().describe('the limit of the responding broker; null: no limit'),
  setting: z.string().describe('the setting of the limit'),
  peerKey: z
    .string()
    .nullable()
    .describe('that member (a recipient, sender or owner); null for a quota of the mesh, or without members'),
})
export type Quota = z.output<typeof Quota>

export const QuotaList = z.object({ quotas: z.array(Quota) })
export type QuotaList = z.output<typeof QuotaList>

const Snapshot = z.object({ ageMs: z.number(), entries: z.int(), bytes: z.number() })

export const SpaceReport = z.object({
  kind: z.enum(['mesh', 'group']),
  spaceId: z.string().describe("the mesh's id, or the group's"),
  owner: z.string(),
  ownerName: z.string().nullable(),
  historyFor: z.enum(['none', 'joined', 'all']),
  entries: z.int().describe('current entries, including deleted ones'),
  entryBytes: z.number(),
  historyBytes: z.number(),
  historyBytesMax: z.number().describe('days that exceed this are dropped, oldest first'),
  keepSeconds: z.int(),
  keptSinceMs: instantMs.nullable().describe('null: the space keeps no history'),
  days: z.int().describe('daily partitions that may contain its events'),
  changedAtMs: instantMs.nullable(),
  snapshot: Snapshot.nullable().describe('the newest complete snapshot'),
})
export type SpaceReport = z.output<typeof SpaceReport>

const AttachmentReport = z.object({
  files: z.int().describe('including expired files that are not deleted yet'),
  bytes: z.number(),
  unfinished: z.int().describe('the incomplete uploads among them'),
})

/** A mesh's storage, except messages. */
export const StorageReport = z.object({ spaces: z.array(SpaceReport), attachments: AttachmentReport })
export type StorageReport = z.output<typeof StorageReport>

export const Revoked = z.object({ peers: z.array(z.string()).describe('the peer and its devices') })
export type Revoked = z.output<typeof Revoked>

export const Me = z.object({
  name: z.string(),
  scope: z.enum(['read', 'operate']),
  meshId: z.string().nullable().describe('the only mesh that the token may read; null: all'),
})
export type Me = z.output<typeof Me>

export const Shard = z.object({
  name: z.string(),
  shardId: z.string(),
  url: z.string().nullable().describe('where peers connect; null: no mesh has its home there'),
  brokerKey: z.string(),
  epoch: z.int(),
  isAlive: z.boolean(),
  leaseMs: z.number().describe('milliseconds until the shard counts as gone'),
  isSelf: z.boolean(),
})
export const Shards = z.object({
  shards: z.array(Shard),
  pins: z.array(z.object({ meshId: z.string(), shard: z.string() })).describe('homes that an operator chose'),
})
export type Shards = z.output<typeof Shards>

const envelopeFields = {
  envelopeId: z.string(),
  sender: z.string(),
  senderName: z.string().nullable(),
  recipient: z.string(),
  recipientName: z.string().nullable(),
  priority: z.enum(['now', 'next', 'low']),
}

export const DeadLetterReport = z.object({
  id: z.int(),
  meshId: z.string(),
  meshName: z.string(),
  ...envelopeFields,
  reason: z.string(),
  detail: z.string().nullable().describe('the reason that the recipient gave when it rejected the message'),
  attempts: z.int(),
  strikes: z.int(),
  enqueuedAtMs: instantMs,
  diedAtMs: instantMs,
  bytes: z
    .int()
    .nullable()
    .describe("of the sealed envelope; null: the envelope was not kept, so the dead letter can't be redriven"),
})
export type DeadLetterReport = z.output<typeof DeadLetterReport>

export const DeadLetters = z.object({ deadLetters: z.array(DeadLetterReport) })
export type DeadLetters = z.output<typeof DeadLetters>

export const PreparedSendReport = z.object({
  id: z.int(),
  meshId: z.string(),
  ...envelopeFields,
  status: z.enum(['queued', 'stored', 'refused', 'in_doubt']),
  code: z.string().nullable().describe('why it is refused, in doubt or, after an attempt, still queued'),
  attempts: z.int(),
  queuedAtMs: instantMs,
  expiresAtMs: instantMs,
  decidedAtMs: instantMs.nullable(),
})
export type PreparedSendReport = z.output<typeof PreparedSendReport>

export const PreparedSends = z.object({ preparedSends: z.array(PreparedSendReport) })
export type PreparedSends = z.output<typeof PreparedSends>

const DEAD_LETTER_IDS_MAX = 1000

/** Selects dead letters by ids, or by all other fields. */
const selection = {
  ids: z.array(z.int().min(0)).min(1).max(DEAD_LETTER_IDS_MAX).optional(),
  all: z.literal(true).optional(),
  meshId: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional(),
  recipient: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  reason: z.enum(['expired', 'strikes', 'rejected']).optional(),
  olderThanSeconds: z
    .int()
    .min(0)
    .max(2 ** 31 - 1)
    .optional(),
}
const IDS_OR_ALL = 'either `ids` or `all`'
const hasIdsOrAll = ({ ids, all }: { ids?: number[] | undefined; all?: true | undefined }) =>
  (ids === undefined) !== (all === undefined)

export const Purge = z.strictObject(selection).refine(hasIdsOrAll, IDS_OR_ALL)
export type Purge = z.output<typeof Purge>
export const Redrive = z
  .strictObject({
    ...selection,
    ttlSeconds: z
      .int()
      .min(1)
      .max(2 ** 31 - 1)
      .default(14 * 86_400),
  })
  .refine(hasIdsOrAll, IDS_OR_ALL)
export type Redrive = z.output<typeof Redrive>

const reasons = Object.keys(redriveRefusals) as RedriveRefusal[]
const meanings = reasons.map((reason) => `\`${reason}\`: ${redriveRefusals[reason]}`).join('; ')

export const RedriveReport = z.object({
  redriven: z.int(),
  left: z.int().describe('matching dead letters that remain'),
  refused: z
    .array(z.object({ id: z.int(), reason: z.enum(reasons).describe(meanings) }))
    .describe('the dead letters that were not redriven; with `all`, the first 1,000'),
})
export type RedriveReport = z.output<typeof RedriveReport>
export const Purged = z.object({ purged: z.int() })
export type Purged = z.output<typeof Purged>

const AuditRecord = z.object({
  id: z.int(),
  atMs: instantMs,
  actor: z.string().describe('`token:NAME`, or `database:ACCOUNT`'),
  action: z.string(),
  meshId: z.string().nullable(),
  subject: z.string().nullable(),
  count: z.int(),
})
export type AuditRecord = z.output<typeof AuditRecord>
export const Audit = z.object({ entries: z.array(AuditRecord) })
export type Audit = z.output<typeof Audit>
