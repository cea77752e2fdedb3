/** Meshes, and what belongs to one. */
import { z } from 'zod'
import { MeshState, WaitReason } from './overview.ts'

const instantMs = z.number().describe('milliseconds since 1970')

export const MeshPage = z.object({
  meshes: z.array(MeshState.extend({ createdAtMs: instantMs })),
  next: z.string().nullable().describe('what to ask for the next page with, as `after`'),
})
export type MeshPage = z.output<typeof MeshPage>

export const MeshReport = MeshState.extend({
  createdAtMs: instantMs,
  members: z.int(),
  membersAreMore: z.boolean().describe('they are counted up to 10,000'),
})
export type MeshReport = z.output<typeof MeshReport>

export const PeerReport = z.object({
  peerKey: z.string(),
  name: z.string().nullable(),
  role: z.enum(['member', 'admin']),
  kind: z.enum(['peer', 'device', 'pool']),
  person: z.string().nullable().describe('whose device it is'),
  status: z.enum(['idle', 'working', 'dnd', 'away', 'revoked', 'pool']),
  depth: z.int(),
  oldestAgeMs: z.number().nullable(),
  unsettled: z.int(),
  reason: WaitReason.nullable(),
  consent: z.object({ policy: z.enum(['open', 'contacts']), allowed: z.int(), blocked: z.int() }),
  createdAtMs: instantMs,
  revokedAtMs: instantMs.nullable(),
  lastSeen: z.object({ shard: z.string(), sinceMs: instantMs }).nullable().describe('the last session, and its shard'),
})
export type PeerReport = z.output<typeof PeerReport>

export const PeerPage = z.object({ peers: z.array(PeerReport), next: z.string().nullable() })
export type PeerPage = z.output<typeof PeerPage>

export const GroupReport = z.object({
  kind: z.enum(['group', 'pool']),
  id: z.string(),
  owner: z.string(),
  ownerName: z.string().nullable(),
  epoch: z.int(),
  members: z.int().nullable().describe('of a pool; those of a group are in its signed statement'),
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

export const QUOTA_NAMES = [
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
  used: z.number().describe('of the member that uses most, where it is a quota of members'),
  max: z.number().nullable().describe('of the broker that answers; null: no limit'),
  setting: z.string().describe('that sets the limit'),
  peerKey: z.string().nullable().describe('that member: a recipient, sender or owner; null: of the mesh, or nobody'),
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
  entries: z.int().describe('last values, deleted ones among them'),
  entryBytes: z.number(),
  historyBytes: z.number(),
  historyBytesMax: z.number().describe('what is over goes, a day at a time'),
  keepSeconds: z.int(),
  keptSinceMs: instantMs.nullable().describe('null: it keeps no history'),
  days: z.int().describe('partitions in which it may have events'),
  changedAtMs: instantMs.nullable(),
  snapshot: Snapshot.nullable().describe('the newest that is whole'),
})
export type SpaceReport = z.output<typeof SpaceReport>

export const AttachmentReport = z.object({
  files: z.int().describe('those that are over among them, until they are taken away'),
  bytes: z.number(),
  unfinished: z.int().describe('of these, not complete yet'),
})

/** What is kept of a mesh beside its mail. */
export const StorageReport = z.object({ spaces: z.array(SpaceReport), attachments: AttachmentReport })
export type StorageReport = z.output<typeof StorageReport>

export const Revoked = z.object({ peers: z.array(z.string()).describe('it, and its devices') })
export type Revoked = z.output<typeof Revoked>

/** Who asks, and which brokers there are. */
export const Me = z.object({
  name: z.string(),
  scope: z.enum(['read', 'operate']),
  meshId: z.string().nullable().describe('the only mesh it may see; null: all'),
})
export type Me = z.output<typeof Me>

export const Shard = z.object({
  name: z.string(),
  shardId: z.string(),
  url: z.string().nullable().describe('where peers dial it; null: no mesh has its home there'),
  brokerKey: z.string(),
  epoch: z.int(),
  isAlive: z.boolean(),
  leaseMs: z.number().describe('milliseconds until it counts as gone'),
  isSelf: z.boolean(),
})
export const Shards = z.object({
  shards: z.array(Shard),
  pins: z.array(z.object({ meshId: z.string(), shard: z.string() })).describe('homes that an operator chose'),
})
export type Shards = z.output<typeof Shards>
