/** Who asks, and which brokers there are. */
import { z } from 'zod'

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
