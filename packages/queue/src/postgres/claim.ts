/** Claims on Postgres: the wants as parameters of `CLAIM`, and its rows as deliveries. */
import { arrayLiteral, type Database, openDatabase, type Pipeline } from '@sealpost/pg'
import {
  byPlace,
  type Claimed,
  type Delivery,
  PRIORITY_COSTS,
  type RemoteClaimed,
  type RemoteWant,
  type Want,
} from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { CLAIM, COLLECT, SESSION } from '../sql/sql.ts'
import { int2s, int4s, int8s, RowReader, readDelivery, uuids } from './binary.ts'
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

/** The server's plan for the claim, to diagnose slow claims. */
const QUEUE_KEY = 'message_queue_mesh_id_recipient_priority_id_pk'

interface ClaimPlan {
  /** It walks the queue's primary key, and reads no table from end to end. */
  readonly isGood: boolean
  /** Tables that it reads from end to end. */
  readonly scanned: readonly string[]
  readonly text: string
}

/** As a broker's connections make it; nothing is claimed. @throws DatabaseError */
export async function claimPlanOf(databaseUrl: string): Promise<ClaimPlan> {
  const db = await openDatabase(databaseUrl, { connections: 1, applicationName: 'sealpost doctor', settings: SESSION })
  try {
    const text = await explain(db)
    // The list of meshes is read as a whole: it is one row for each.
    const scanned = [...text.matchAll(/Seq Scan on (\w+)/g)]
      .map(([, table]) => table!)
      .filter((name) => name !== 'mesh')
    return { isGood: scanned.length === 0 && text.includes(`using ${QUEUE_KEY}`), scanned, text }
  } finally {
    await db.close()
  }
}

async function explain(db: Database): Promise<string> {
  const count = Math.max(...[...CLAIM.matchAll(/\$(\d+)/g)].map((match) => Number(match[1])))
  const nothing = Array.from({ length: count }, () => 'null').join()
  // Sent as one, so that `explain` runs on the connection that prepared the statement.
  const steps = `prepare sealpost_claim as ${CLAIM}; explain (costs off) execute sealpost_claim(${nothing}); deallocate sealpost_claim`
  const rows = await db.run((sql) => sql.unsafe(steps).simple())
  return (rows.flat() as { 'QUERY PLAN'?: string }[]).map((row) => row['QUERY PLAN'] ?? '').join('\n')
}

/** Collecting what other shards leased at birth, on Postgres. */
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
