/** How the broker and its database are, and which meshes are behind. */
import { z } from 'zod'

const ms = z.number().describe('milliseconds')
const perSecond = z.number().min(0)
/** Of the last interval; null: nothing was timed in it. */
const percentile = ms.nullable()

/**
 * `flowing`: nothing waits for longer than it should. `waiting`: mail waits for peers that are away, or want no mail now.
 * `behind`: somebody who is there does not keep up. `unknown`: the queue could not be looked at lately.
 */
export const Flow = z.enum(['flowing', 'waiting', 'behind', 'unknown'])
export type Flow = z.output<typeof Flow>

/** Why mail waits for a recipient. */
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
  unsettled: z.int().describe('pushed to it, and not settled'),
})
export type WaitingPeer = z.output<typeof WaitingPeer>

/** One look of the broker at itself. Rates and percentiles are those since the look before. */
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
  why: z.string().describe('a sentence or two'),
  depth: z.int(),
  oldestAgeMs: ms,
  recipients: z.int().describe('for whom something waits'),
  sessions: z.int().describe('live on this shard'),
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
  seenAgoMs: ms.nullable().describe('since the walk through the queue that counted it; null: none has ended yet'),
})

export const DatabaseBrief = z.object({
  snapshotSeconds: z.number(),
  deadRows: z.number(),
  statementsWaiting: z.int(),
  walBytesPerSecond: z.number().nullable(),
  deadLetters: z.number().nullable().describe('as the server estimates them'),
})

export const Overview = z.object({
  atMs: ms,
  shard: z.string(),
  version: z.string(),
  gitSha: z.string().describe('the commit that the broker was built from; `unknown` outside of a repository'),
  postgres: z.string(),
  durability: z.string(),
  limits: z.string(),
  flow: Flow,
  causes: z.array(Problem).describe('what is wrong with the broker or its database'),
  now: Sample,
  queue: Queue,
  connections: z.int(),
  database: DatabaseBrief,
  meshes: z.array(MeshState).describe('with waiting mail or dead letters, the worst first, at most 20'),
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
      partitions: z.int().describe('0: it has none'),
      rows: z.number(),
      deadRows: z.number(),
      bytes: z.number(),
      vacuumedAtMs: ms.nullable(),
    }),
  ),
  warnings: z.array(Problem),
})
export type DatabaseReport = z.output<typeof DatabaseReport>
