/** Pools on Postgres: the nouns as parameters of `sql-pools.ts`, and its rows as nouns. */
import { arrayLiteral, byteaText, type Database, type Pipeline } from '@sealpost/pg'
import {
  type Delivery,
  type PoolClaimed,
  type PoolEntry,
  type PoolWant,
  PRIORITY_COSTS,
  type Release,
} from '@sealpost/protocol'
import { type MeshId, type PeerKey, type PeerNo, type PoolId, type ShardId, toHex } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { CLAIM_POOLS, FIND_POOLS, GIVE_BACK } from '../sql/pools.ts'
import { int2s, int4s, int8s, RowReader, readDelivery, uuids } from './binary.ts'
import { arrayOf, heldBy, type Row, run } from './run.ts'

export async function claimPools(
  db: Pipeline,
  wants: readonly PoolWant[],
  at: { shard: ShardId } & Pick<QueueOptions, 'leaseMs' | 'strikesMax' | 'strikeSpanMs'>,
): Promise<PoolClaimed[]> {
  const slots = wants.flatMap(({ slots }, i) => slots.map((slot, k) => ({ ...slot, place: i + 1, k })))
  const parameters = [
    at.shard,
    uuids(wants.map(({ meshId }) => meshId)),
    int4s(wants.map(({ pool }) => pool)),
    ...PRIORITY_COSTS.map((_, priority) => arrayOf(wants.map(({ virtualTimes }) => virtualTimes[priority]!))),
    int4s(slots.map(({ place }) => place)),
    int4s(slots.map(({ member }) => member)),
    int8s(slots.map(({ epoch }) => epoch)),
    int2s(slots.map(({ priorityMax }) => priorityMax)),
    String(at.leaseMs / 1000),
    String(at.strikesMax),
    String(at.strikeSpanMs / 1000),
  ]
  const row = new RowReader(await db.run((pipe) => pipe.read({ text: CLAIM_POOLS, parameters })))
  const answers = wants.map(() => ({ isHeld: false, picked: 0, dealt: [] as Dealt[], strangers: [] as number[] }))
  while (row.next()) {
    const answer = answers[row.int4() - 1]!
    const status = row.text()
    const slot = slots[row.int4() - 1]?.k
    if (status === 'picked') answer.picked = row.int4()
    else if (slot === undefined) answer.isHeld = status === 'claimed'
    else if (status === 'stranger') answer.strangers.push(slot)
    else answer.dealt.push({ slot, delivery: readDelivery(row, row.int4()) })
  }
  return answers.map(({ isHeld, picked, dealt, strangers }) => {
    if (!isHeld) return { status: 'locked' }
    const hasMore = dealt.length < picked
    return { status: 'claimed', dealt: dealt.sort((a, b) => a.slot - b.slot), strangers, hasMore }
  })
}

interface Dealt {
  readonly slot: number
  readonly delivery: Delivery
}

export async function giveBack(db: Database, gifts: readonly Release[]): Promise<void> {
  await run(db, GIVE_BACK, [...heldBy(gifts), arrayOf(gifts.map(() => 0))])
}

interface PoolRow extends Row {
  peer_no: PeerNo
  peer_key: Uint8Array
  epoch: number
  /** Their numbers and keys in turn, with spaces. */
  members: string | null
}

export async function findPools(db: Database, meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]> {
  const rows = await run<PoolRow>(db, FIND_POOLS, [meshId, arrayLiteral(pools.map(byteaText))])
  return rows.map(({ peer_no, peer_key, epoch, members }) => ({
    meshId,
    poolId: toHex(peer_key) as PoolId,
    pool: peer_no,
    epoch,
    members: membersOf(members ?? ''),
  }))
}

function membersOf(text: string): PoolEntry['members'] {
  const words = text === '' ? [] : text.split(' ')
  return Array.from({ length: words.length / 2 }, (_, i) => ({
    peer: Number(words[2 * i]) as PeerNo,
    peerKey: words[2 * i + 1] as PeerKey,
  }))
}
