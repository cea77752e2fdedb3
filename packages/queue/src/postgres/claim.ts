/** Runs `CLAIM`, `COLLECT` and `CLAIM_POOLS`: binds the wants as parameters and reads the rows as deliveries. */
import { arrayLiteral, type Database, openDatabase, type Pipeline } from '@sealpost/pg'
import {
  byPlace,
  type Claimed,
  type Delivery,
  type PoolClaimed,
  type PoolWant,
  type RemoteClaimed,
  type RemoteWant,
  type Want,
} from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { CLAIM, CLAIM_POOLS, COLLECT, SESSION } from '../sql/sql.ts'
import { arrayOf, int2s, int4s, int8s, RowReader, readDelivery, uuids } from './binary.ts'

type ClaimOptions = Pick<QueueOptions, 'leaseMs' | 'failedAttemptsMax' | 'failedAttemptsSpanMs'> & {
  readonly shard: ShardId
}

export async function claim(db: Pipeline, wants: readonly Want[], options: ClaimOptions): Promise<Claimed[]> {
  const statement = CLAIM.bind({
    ...shardAndLimits(options),
    ...sessionsOf(wants),
    ...turnsOf(wants),
    prioritiesMax: int2s(wants.map(({ priorityMax }) => priorityMax)),
    collected: arrayLiteral(wants.map(({ collected }) => arrayOf(collected))),
    leaseSeconds: String(options.leaseMs / 1000),
  })
  const row = new RowReader(await db.run((pipe) => pipe.read(statement)))
  const results = wants.map((): ClaimResult => ({ status: 'locked', picked: 0, deliveries: [] }))
  while (row.next()) {
    const result = results[row.int4() - 1]!
    const status = row.text() as ClaimResult['status'] | 'picked' | null
    if (status === null) result.deliveries.push(readDelivery(row, row.int4()))
    else if (status === 'picked') result.picked = row.int4()
    else result.status = status
  }
  return results.map(({ status, picked, deliveries }, i) => {
    if (status !== 'claimed') return { status }
    const hasMore = picked >= wants[i]!.limit || deliveries.length < picked
    return { status, deliveries: deliveries.sort(byPlace), hasMore }
  })
}

interface ClaimResult {
  status: Claimed['status']
  /** The number of ready deliveries that the statement saw, up to the want's limit. */
  picked: number
  readonly deliveries: Delivery[]
}

export async function collect(
  db: Pipeline,
  wants: readonly RemoteWant[],
  options: ClaimOptions,
): Promise<RemoteClaimed[]> {
  const statement = COLLECT.bind({
    ...shardAndLimits(options),
    ...sessionsOf(wants),
    halfLeaseSeconds: String(options.leaseMs / 2000),
  })
  const row = new RowReader(await db.run((pipe) => pipe.read(statement)))
  const results = new Array<CollectResult | undefined>(wants.length)
  while (row.next()) {
    const place = row.int4() - 1
    results[place] ??= { deliveries: [], isBarred: false }
    const result = results[place]
    const isBar = row.bool()
    if (isBar === true) result.isBarred = true
    if (isBar === false && !result.isBarred) result.deliveries.push(readDelivery(row, 1))
  }
  return wants.map((want, i) => collectedOf(want, results[i]))
}

/** The deliveries of a current session, up to the first that only a claim can take. */
interface CollectResult {
  readonly deliveries: Delivery[]
  isBarred: boolean
}

function collectedOf({ limit, limitBytes }: RemoteWant, result: CollectResult | undefined): RemoteClaimed {
  if (!result) return { status: 'stale' }
  const { deliveries, isBarred } = result
  const byteCount = deliveries.reduce((sum, { envelope, body }) => sum + envelope.length + (body?.length ?? 0), 0)
  return { status: 'collected', deliveries, hasMore: isBarred || deliveries.length >= limit || byteCount >= limitBytes }
}

export async function claimPools(
  db: Pipeline,
  wants: readonly PoolWant[],
  options: ClaimOptions,
): Promise<PoolClaimed[]> {
  const slots = wants.flatMap(({ slots }, i) => slots.map((slot, k) => ({ ...slot, place: i + 1, k })))
  const statement = CLAIM_POOLS.bind({
    ...shardAndLimits(options),
    ...turnsOf(wants),
    meshes: uuids(wants.map(({ meshId }) => meshId)),
    pools: int4s(wants.map(({ pool }) => pool)),
    slotPools: int4s(slots.map(({ place }) => place)),
    members: int4s(slots.map(({ member }) => member)),
    epochs: int8s(slots.map(({ epoch }) => epoch)),
    prioritiesMax: int2s(slots.map(({ priorityMax }) => priorityMax)),
    leaseSeconds: String(options.leaseMs / 1000),
  })
  const row = new RowReader(await db.run((pipe) => pipe.read(statement)))
  const results = wants.map(() => ({ isHeld: false, picked: 0, dealt: [] as Dealt[], strangers: [] as number[] }))
  while (row.next()) {
    const result = results[row.int4() - 1]!
    const status = row.text()
    const slot = slots[row.int4() - 1]?.k
    if (status === 'picked') result.picked = row.int4()
    else if (slot === undefined) result.isHeld = status === 'claimed'
    else if (status === 'stranger') result.strangers.push(slot)
    else result.dealt.push({ slot, delivery: readDelivery(row, row.int4()) })
  }
  return results.map(({ isHeld, picked, dealt, strangers }) => {
    if (!isHeld) return { status: 'locked' }
    const hasMore = dealt.length < picked
    return { status: 'claimed', dealt: dealt.sort((a, b) => a.slot - b.slot), strangers, hasMore }
  })
}

interface Dealt {
  readonly slot: number
  readonly delivery: Delivery
}

const shardAndLimits = ({ shard, failedAttemptsMax, failedAttemptsSpanMs }: ClaimOptions) => ({
  shard,
  failedAttemptsMax: String(failedAttemptsMax),
  failedAttemptsSpanSeconds: String(failedAttemptsSpanMs / 1000),
})

const sessionsOf = (wants: readonly RemoteWant[]) => ({
  meshes: uuids(wants.map(({ session }) => session.meshId)),
  peers: int4s(wants.map(({ session }) => session.peer)),
  epochs: int8s(wants.map(({ session }) => session.epoch)),
  limits: int4s(wants.map(({ limit }) => limit)),
  byteLimits: int4s(wants.map(({ limitBytes }) => limitBytes)),
  fromIds: int8s(wants.map(({ ids }) => ids.from)),
  toIds: int8s(wants.map(({ ids }) => ids.to)),
})

const turnsOf = (wants: readonly Pick<Want, 'virtualTimes'>[]) => ({
  turnsNow: arrayOf(wants.map(({ virtualTimes }) => virtualTimes[0])),
  turnsNext: arrayOf(wants.map(({ virtualTimes }) => virtualTimes[1])),
  turnsLow: arrayOf(wants.map(({ virtualTimes }) => virtualTimes[2])),
})

const QUEUE_KEY = 'message_queue_mesh_id_recipient_priority_id_pk'

/** The server's plan for the claim. */
interface ClaimPlan {
  /** Whether the plan walks the queue's primary key and scans no table. */
  readonly isGood: boolean
  /** Tables that the plan scans. */
  readonly scanned: readonly string[]
  readonly text: string
}

/** Returns the plan that the claim has on a broker's connection, without claiming anything. @throws DatabaseError */
export async function claimPlanOf(databaseUrl: string): Promise<ClaimPlan> {
  const db = await openDatabase(databaseUrl, { connections: 1, applicationName: 'sealpost doctor', settings: SESSION })
  try {
    const text = await explain(db)
    // `mesh` has one row per mesh, so its scan is expected.
    const scanned = [...text.matchAll(/Seq Scan on (\w+)/g)]
      .map(([, table]) => table!)
      .filter((name) => name !== 'mesh')
    return { isGood: scanned.length === 0 && text.includes(`using ${QUEUE_KEY}`), scanned, text }
  } finally {
    await db.close()
  }
}

async function explain(db: Database): Promise<string> {
  const { text } = CLAIM
  const count = Math.max(...[...text.matchAll(/\$(\d+)/g)].map((match) => Number(match[1])))
  const nothing = Array.from({ length: count }, () => 'null').join()
  // `explain` must run on the connection that prepared the statement, so send the steps together.
  const steps = `prepare sealpost_claim as ${text}; explain (costs off) execute sealpost_claim(${nothing}); deallocate sealpost_claim`
  const rows = await db.run((sql) => sql.unsafe(steps).simple())
  return (rows.flat() as { 'QUERY PLAN'?: string }[]).map((row) => row['QUERY PLAN'] ?? '').join('\n')
}
