/** Collecting what other shards leased at birth, on Postgres. */
import type { Pipeline } from '@sealpost/pg'
import type { Delivery, RemoteClaimed, RemoteWant } from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { COLLECT } from '../sql/collect.ts'
import { int4s, int8s, uuids } from './binary.ts'
import { RowReader, readDelivery } from './row-reader.ts'

type CollectOptions = Pick<QueueOptions, 'leaseMs' | 'strikesMax' | 'strikeSpanMs'> & { readonly shard: ShardId }

/** What a current session may have, up to the first delivery that only a claim may take. */
interface Found {
  readonly deliveries: Delivery[]
  isBarred: boolean
}

/** In the order of the wants. */
export async function collect(
  db: Pipeline,
  wants: readonly RemoteWant[],
  { shard, leaseMs, strikesMax, strikeSpanMs }: CollectOptions,
): Promise<RemoteClaimed[]> {
  const parameters = [
    shard,
    uuids(wants.map(({ session }) => session.meshId)),
    int4s(wants.map(({ session }) => session.peer)),
    int8s(wants.map(({ session }) => session.epoch)),
    int4s(wants.map(({ limit }) => limit)),
    int4s(wants.map(({ limitBytes }) => limitBytes)),
    int8s(wants.map(({ ids }) => ids.from)),
    int8s(wants.map(({ ids }) => ids.to)),
    String(leaseMs / 2000),
    String(strikesMax),
    String(strikeSpanMs / 1000),
  ]
  const found = foundIn(await db.run((pipe) => pipe.read({ text: COLLECT, parameters })), wants.length)
  return wants.map((want, i) => collectedOf(want, found[i]))
}

/** By the places of the wants; nothing for a session that is not current. */
function foundIn(rows: Buffer, wantCount: number): (Found | undefined)[] {
  const all = new Array<Found | undefined>(wantCount)
  const row = new RowReader(rows)
  while (row.next()) {
    const place = row.int4() - 1
    all[place] ??= { deliveries: [], isBarred: false }
    const found = all[place]
    const isBar = row.bool()
    if (isBar === true) found.isBarred = true
    if (isBar === false && !found.isBarred) found.deliveries.push(readDelivery(row, 1))
  }
  return all
}

function collectedOf({ limit, limitBytes }: RemoteWant, found: Found | undefined): RemoteClaimed {
  if (!found) return { status: 'stale' }
  const { deliveries, isBarred } = found
  const byteCount = deliveries.reduce((sum, { envelope, body }) => sum + envelope.length + (body?.length ?? 0), 0)
  return { status: 'collected', deliveries, hasMore: isBarred || deliveries.length >= limit || byteCount >= limitBytes }
}
