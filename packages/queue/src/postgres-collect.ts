/** Collecting what other shards leased at birth, on Postgres. */
import type { Database } from '@sealpost/db'
import type { Collected, CollectWant } from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { QueueOptions } from './queue.ts'
import { deliveriesOf } from './records.ts'
import { arrayOf, type Row, run } from './run.ts'
import { COLLECT } from './sql-collect.ts'

interface CollectRow extends Row {
  readonly n: number
  readonly is_current: boolean
  readonly is_barred: boolean
  readonly deliveries: Uint8Array | null
}

type CollectOptions = Pick<QueueOptions, 'leaseMs' | 'strikesMax' | 'strikeSpanMs'> & { readonly shard: ShardId }

/** In the order of the wants. */
export async function collect(
  db: Database,
  wants: readonly CollectWant[],
  { shard, leaseMs, strikesMax, strikeSpanMs }: CollectOptions,
): Promise<Collected[]> {
  const rows = await run<CollectRow>(db, COLLECT, [
    shard,
    arrayOf(wants.map(({ session }) => session.meshId)),
    arrayOf(wants.map(({ session }) => session.peer)),
    arrayOf(wants.map(({ session }) => session.epoch)),
    arrayOf(wants.map(({ limit }) => limit)),
    arrayOf(wants.map(({ limitBytes }) => limitBytes)),
    arrayOf(wants.map(({ ids }) => ids.from)),
    arrayOf(wants.map(({ ids }) => ids.to)),
    leaseMs / 2000,
    strikesMax,
    strikeSpanMs / 1000,
  ])
  const answers: Collected[] = []
  for (const row of rows) answers[row.n - 1] = collectedOf(wants[row.n - 1]!, row)
  return answers
}

function collectedOf(
  { limit, limitBytes }: CollectWant,
  { is_current, is_barred, deliveries: bytes }: CollectRow,
): Collected {
  if (!is_current) return { status: 'stale' }
  const deliveries = bytes === null ? [] : deliveriesOf(bytes)
  const byteCount = deliveries.reduce((sum, { envelope, body }) => sum + envelope.length + (body?.length ?? 0), 0)
  const hasMore = is_barred || deliveries.length >= limit || byteCount >= limitBytes
  return { status: 'collected', deliveries, hasMore }
}
