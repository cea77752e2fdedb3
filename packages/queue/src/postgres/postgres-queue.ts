/** The queue on Postgres: turns nouns into the parameters of `sql.ts`, and its rows back into nouns. */
import { arrayLiteral, byteaText, type Database, type Pipeline } from '@sealpost/pg'
import type {
  Claimed,
  DeliveryRef,
  Extension,
  KeyBindingEntry,
  Lost,
  Measured,
  Member,
  PoolClaimed,
  PoolEntry,
  PoolWant,
  Reject,
  Release,
  RemoteClaimed,
  RemoteWant,
  Retry,
  SessionRef,
  SessionStatus,
  Want,
} from '@sealpost/protocol'
import {
  type DeliveryId,
  type MeshId,
  OperatingError,
  type PeerKey,
  type PeerNo,
  type PoolId,
  type ShardId,
} from '@sealpost/std'
import type { Queue, QueueOptions, Recipient, Released, Swept } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { claim, collect } from './claim.ts'
import { Commits } from './commit.ts'
import { claimPools, findPools, giveBack } from './pools.ts'
import { arrayOf, heldBy, keysOf, type Row, run } from './run.ts'
import { SessionOpener } from './session-opener.ts'
import { type LastAcknowledged, ShardMemory } from './shard-memory.ts'

export { SESSION } from '../sql/sql.ts'
export { type CommitParts, Commits } from './commit.ts'
export type { LastAcknowledged } from './shard-memory.ts'

export class PostgresQueue implements Queue {
  readonly lastAcknowledged: LastAcknowledged
  readonly commit: Queue['commit']
  private readonly db: QueueDatabases
  private readonly shard: ShardId
  private readonly options: QueueOptions
  private readonly memory = new ShardMemory()
  private readonly sessionOpener: SessionOpener
  private bodyPlace: readonly [string, number, string] = BODIES_START
  private place: readonly [string, number, number, number] = QUEUE_START

  constructor(db: QueueDatabases, shard: ShardId, options: QueueOptions) {
    this.db = db
    this.shard = shard
    this.options = options
    const { memory } = this
    this.lastAcknowledged = memory.lastAcknowledged
    this.sessionOpener = new SessionOpener(db.asking, shard, memory)
    const drawBlock = () => this.drawBlock()
    const commits = new Commits({ writing: db.writing, shard, options, memory, drawBlock })
    this.commit = commits.commit.bind(commits)
  }

  private async drawBlock(): Promise<number> {
    const [row] = await run<{ block: number }>(this.db.asking, statements.DRAW_BLOCK, [])
    return row!.block
  }

  claim(wants: readonly Want[]): Promise<Claimed[]> {
    return claim(this.db.claiming, wants, { shard: this.shard, ...this.options })
  }

  collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]> {
    return collect(this.db.collecting, wants, { shard: this.shard, ...this.options })
  }

  open(session: SessionRef): Promise<number | null> {
    return this.sessionOpener.open(session)
  }

  async fence({ meshId, peer, epoch }: SessionRef): Promise<number | null> {
    const rows = await run<{ epoch: number }>(this.db.asking, statements.FENCE, [this.shard, meshId, peer, epoch])
    if (rows[0]) return rows[0].epoch
    const [place] = await run<{ is_away: boolean }>(this.db.asking, statements.IS_AWAY, [meshId])
    if (!place!.is_away) return null
    throw new OperatingError('mesh_away', 'The mesh is on its way to another cell, or lives there.', {
      retryable: true,
    })
  }

  standings(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    return this.sessionOpener.standings(sessions)
  }

  async retry(retries: readonly Retry[]): Promise<void> {
    await run(this.db.asking, statements.RETRY, [
      ...heldBy(retries),
      arrayOf(retries.map(({ afterMs }) => afterMs / 1000)),
    ])
  }

  async reject(rejects: readonly Reject[]): Promise<void> {
    await run(this.db.asking, statements.REJECT, [
      ...heldBy(rejects),
      arrayLiteral(rejects.map(({ reason }) => reason)),
    ])
  }

  async extend(extensions: readonly Extension[]): Promise<void> {
    await run(this.db.asking, statements.EXTEND, [
      ...heldBy(extensions),
      arrayOf(extensions.map(({ forMs }) => forMs / 1000)),
    ])
  }

  claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]> {
    return claimPools(this.db.claiming, wants, { shard: this.shard, ...this.options })
  }

  giveBack(gifts: readonly Release[]): Promise<void> {
    return giveBack(this.db.asking, gifts)
  }

  findPools(meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]> {
    return findPools(this.db.asking, meshId, pools)
  }

  async tellPushed(deliveries: readonly DeliveryRef[]): Promise<void> {
    await run(this.db.asking, statements.TELL_PUSHED, keysOf(deliveries))
  }

  async releaseDue(): Promise<Released> {
    const rows = await run<DueRow>(this.db.asking, statements.RELEASE_DUE, [this.options.sweepRows])
    const released = rows.flatMap(({ mesh_id, peer }) => (mesh_id === null ? [] : [{ meshId: mesh_id, peer: peer! }]))
    const recipients = [...new Map(released.map((of) => [of.meshId + of.peer, of])).values()]
    const nextSeconds = rows.find(({ mesh_id }) => mesh_id === null)?.next_seconds ?? null
    // As many as were allowed: there may be more.
    if (released.length >= this.options.sweepRows) return { recipients, nextInMs: 0 }
    return { recipients, nextInMs: nextSeconds && Math.ceil(nextSeconds * 1000) }
  }

  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]> {
    return this.sessionOpener.findLost(meshId, peer, max)
  }

  async measure(recipients: readonly Recipient[], max: number): Promise<Measured[][]> {
    const rows = await run<MeasuredRow>(this.db.asking, statements.MEASURE, [
      arrayOf(recipients.map(({ meshId }) => meshId)),
      arrayOf(recipients.map(({ peer }) => peer)),
      max,
    ])
    const answers = recipients.map((): Measured[] => [])
    for (const { n, sender, count, bytes } of rows) answers[n - 1]!.push({ sender, count, bytes })
    return answers
  }

  async measureMesh(meshId: MeshId, max: number): Promise<Measured[]> {
    const rows = await run<Row & Measured>(this.db.asking, statements.MEASURE_MESH, [meshId, max])
    return rows.map(({ sender, count, bytes }) => ({ sender, count, bytes }))
  }

  async toldLost(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void> {
    await run(this.db.asking, statements.TOLD_LOST, [meshId, peer, arrayOf(ids)])
  }

  async strike(delivery: DeliveryRef): Promise<void> {
    await run(this.db.asking, statements.STRIKE, keyOf(delivery))
  }

  async sweep(): Promise<Swept> {
    const { sweepRows, strikesMax, strikeSpanMs, dedupeMs } = this.options
    const [walk] = await run<SweepRow>(this.db.asking, statements.SWEEP_QUEUE, [
      ...this.place,
      sweepRows,
      strikesMax,
      strikeSpanMs / 1000,
    ])
    const [ledger] = await run<{ forgotten: number }>(this.db.asking, statements.SWEEP_LEDGER, [
      dedupeMs / 1000,
      sweepRows,
    ])
    await this.sweepBodies()
    const { seen, expired, dead, mesh_id, recipient, priority, id } = walk!
    const isRound = seen < sweepRows
    this.place = isRound ? QUEUE_START : [mesh_id, recipient, priority, id]
    return { expired, dead, forgotten: ledger!.forgotten, isRound }
  }

  private async sweepBodies(): Promise<void> {
    const { sweepRows } = this.options
    const rows = await run<BodyRow>(this.db.asking, statements.SWEEP_BODIES, [...this.bodyPlace, sweepRows])
    const { seen, mesh_id, sender, body_id } = rows[0]!
    this.bodyPlace = seen < sweepRows ? BODIES_START : [mesh_id, sender, byteaText(body_id)]
  }

  findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    return this.sessionOpener.findMembers(meshId, peers)
  }

  findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    return this.sessionOpener.findBindings(meshId, peers)
  }
}

/** A connection each for writing and claiming, so that neither waits for the other, and a few for the rest. */
export interface QueueDatabases {
  readonly writing: Pipeline
  readonly claiming: Pipeline
  readonly collecting: Pipeline
  readonly asking: Database
}

interface BodyRow extends Row {
  seen: number
  mesh_id: string
  sender: number
  body_id: Uint8Array
}

interface DueRow extends Row {
  mesh_id: MeshId | null
  peer: PeerNo | null
  next_seconds: number | null
}

interface MeasuredRow extends Row, Measured {
  n: number
}

interface SweepRow extends Row {
  seen: number
  expired: number
  dead: number
  mesh_id: string
  recipient: number
  priority: number
  id: number
}

const BODIES_START = ['0'.repeat(32), 0, '\\x'] as const
const QUEUE_START = ['0'.repeat(32), 0, 0, 0] as const

const keyOf = ({ meshId, recipient, priority, id }: DeliveryRef) => [meshId, recipient, priority, id]
