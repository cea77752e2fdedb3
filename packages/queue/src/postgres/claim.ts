/** Claims on Postgres: the wants as parameters of `CLAIM`, and its rows as deliveries. */
import { arrayLiteral, type Pipeline } from '@sealpost/pg'
import { byPlace, type Claimed, type Delivery, PRIORITY_COSTS, type Want } from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { CLAIM } from '../sql/sql.ts'
import { int2s, int4s, int8s, uuids } from './binary.ts'
import { RowReader, readDelivery } from './row-reader.ts'
import { arrayOf } from './run.ts'

type ClaimOptions = Pick<QueueOptions, 'leaseMs' | 'strikesMax' | 'strikeSpanMs'> & { readonly shard: ShardId }

/** In the order of the wants. */
export async function claim(db: Pipeline, wants: readonly Want[], options: ClaimOptions): Promise<Claimed[]> {
  const parameters = parametersOf(wants, options)
  const row = new RowReader(await db.run((pipe) => pipe.read({ text: CLAIM, parameters })))
  const answers = wants.map((): Answer => ({ status: 'locked', picked: 0, deliveries: [] }))
  while (row.next()) {
    const answer = answers[row.int4() - 1]!
    const status = row.text() as Answer['status'] | 'picked' | null
    if (status === null) answer.deliveries.push(readDelivery(row, row.int4()))
    else if (status === 'picked') answer.picked = row.int4()
    else answer.status = status
  }
  return answers.map((answer, i) => claimedOf(answer, wants[i]!))
}

interface Answer {
  status: Claimed['status']
  /** Deliveries that the statement saw as ready, up to the want's limit. */
  picked: number
  readonly deliveries: Delivery[]
}

function claimedOf({ status, picked, deliveries }: Answer, { limit }: Want): Claimed {
  if (status !== 'claimed') return { status }
  const hasMore = picked >= limit || deliveries.length < picked
  return { status, deliveries: deliveries.sort(byPlace), hasMore }
}

function parametersOf(wants: readonly Want[], { shard, leaseMs, strikesMax, strikeSpanMs }: ClaimOptions) {
  return [
    shard,
    uuids(wants.map(({ session }) => session.meshId)),
    int4s(wants.map(({ session }) => session.peer)),
    int8s(wants.map(({ session }) => session.epoch)),
    int4s(wants.map(({ limit }) => limit)),
    int4s(wants.map(({ limitBytes }) => limitBytes)),
    String(leaseMs / 1000),
    String(strikesMax),
    String(strikeSpanMs / 1000),
    int8s(wants.map(({ ids }) => ids.from)),
    int8s(wants.map(({ ids }) => ids.to)),
    int2s(wants.map(({ priorityMax }) => priorityMax)),
    ...PRIORITY_COSTS.map((_, priority) => arrayOf(wants.map(({ virtualTimes }) => virtualTimes[priority]!))),
    arrayLiteral(wants.map(({ collected }) => arrayOf(collected))),
  ]
}
