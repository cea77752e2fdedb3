/** Implements the queue on Postgres: each method binds a statement of `sql/` and reads its rows. */
import { arrayLiteral, type BoundStatement, byteaText, type Database, type Pipeline, runPrepared } from '@sealpost/pg'
import type {
  Claimed,
  DeliveryRef,
  Extension,
  KeyBindingEntry,
  Lost,
  Member,
  PoolClaimed,
  PoolEntry,
  PoolWant,
  Reject,
  Release,
  RemoteClaimed,
  RemoteWant,
  Retry,
  SenderBacklog,
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
  toHex,
} from '@sealpost/std'
import type { Queue, QueueOptions, RecipientRef, Released, Swept } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { arrayOf, heldBy, keysOf } from './binary.ts'
import { claim, claimPools, collect } from './claim.ts'
import { Commits } from './commit.ts'
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
  private bodyCursor = BODIES_START
  private queueCursor = QUEUE_START

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
    const [row] = await this.run<{ block: number }>({ text: statements.DRAW_BLOCK, parameters: [] })
    return row!.block
  }

  claim(wants: readonly Want[]): Promise<Claimed[]> {
    return claim(this.db.claiming, wants, { shard: this.shard, ...this.options })
  }

  collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]> {
    return collect(this.db.collecting, wants, { shard: this.shard, ...this.options })
  }

  claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]> {
    return claimPools(this.db.claiming, wants, { shard: this.shard, ...this.options })
  }

  open(session: SessionRef): Promise<number | null> {
    return this.sessionOpener.open(session)
  }

  async fence({ meshId: mesh, peer, epoch }: SessionRef): Promise<number | null> {
    const [fenced] = await this.run<{ epoch: number }>(statements.FENCE.bind({ shard: this.shard, mesh, peer, epoch }))
    if (fenced) return fenced.epoch
    const [place] = await this.run<{ is_away: boolean }>(statements.IS_AWAY.bind({ mesh }))
    if (!place!.is_away) return null
    throw new OperatingError('mesh_away', 'The mesh is moving to another cell, or has moved.', { retryable: true })
  }

  checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    return this.sessionOpener.checkSessions(sessions)
  }

  async retry(retries: readonly Retry[]): Promise<void> {
    const afterSeconds = arrayOf(retries.map(({ afterMs }) => afterMs / 1000))
    await this.run(statements.RETRY.bind({ ...heldBy(retries), afterSeconds }))
  }

  async reject(rejects: readonly Reject[]): Promise<void> {
    const reasons = arrayLiteral(rejects.map(({ reason }) => reason))
    await this.run(statements.REJECT.bind({ ...heldBy(rejects), reasons }))
  }

  async extend(extensions: readonly Extension[]): Promise<void> {
    const forSeconds = arrayOf(extensions.map(({ forMs }) => forMs / 1000))
    await this.run(statements.EXTEND.bind({ ...heldBy(extensions), forSeconds }))
  }

  async release(releases: readonly Release[]): Promise<void> {
    const untouched = arrayOf(releases.map(({ isUntouched }) => Number(isUntouched)))
    await this.run(statements.RELEASE.bind({ ...heldBy(releases), untouched }))
  }

  async findPools(meshId: MeshId, poolIds: readonly PoolId[]): Promise<PoolEntry[]> {
    const pools = arrayLiteral(poolIds.map(byteaText))
    const rows = await this.run<PoolRow>(statements.FIND_POOLS.bind({ mesh: meshId, pools }))
    return rows.map(({ peer_no, peer_key, epoch, members }) => ({
      meshId,
      poolId: toHex(peer_key) as PoolId,
      pool: peer_no,
      epoch,
      members: membersOf(members ?? ''),
    }))
  }

  async notifyPushed(deliveries: readonly DeliveryRef[]): Promise<void> {
    await this.run(statements.NOTIFY_PUSHED.bind(keysOf(deliveries)))
  }

  async releaseDue(): Promise<Released> {
    const max = this.options.sweepRows
    const rows = await this.run<DueRow>(statements.RELEASE_DUE.bind({ max }))
    const released = rows.flatMap(({ mesh_id, peer }) => (mesh_id === null ? [] : [{ meshId: mesh_id, peer: peer! }]))
    const recipients = [...new Map(released.map((of) => [of.meshId + of.peer, of])).values()]
    const nextSeconds = rows.find(({ mesh_id }) => mesh_id === null)?.next_seconds ?? null
    // More rows may be due, so release again immediately.
    if (released.length >= max) return { recipients, nextInMs: 0 }
    return { recipients, nextInMs: nextSeconds && Math.ceil(nextSeconds * 1000) }
  }

  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]> {
    return this.sessionOpener.findLost(meshId, peer, max)
  }

  async measure(recipients: readonly RecipientRef[], max: number): Promise<SenderBacklog[][]> {
    const rows = await this.run<MeasuredRow>(
      statements.MEASURE.bind({
        meshes: arrayOf(recipients.map(({ meshId }) => meshId)),
        recipients: arrayOf(recipients.map(({ peer }) => peer)),
        max,
      }),
    )
    const measured = recipients.map((): SenderBacklog[] => [])
    for (const { n, sender, count, bytes } of rows) measured[n - 1]!.push({ sender, count, bytes })
    return measured
  }

  async measureMesh(mesh: MeshId, max: number): Promise<SenderBacklog[]> {
    const rows = await this.run<SenderBacklog>(statements.MEASURE_MESH.bind({ mesh, max }))
    return rows.map(({ sender, count, bytes }) => ({ sender, count, bytes }))
  }

  async lostReported(mesh: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void> {
    await this.run(statements.LOST_REPORTED.bind({ mesh, peer, ids: arrayOf(ids) }))
  }

  async countFailedAttempt({ meshId: mesh, recipient, priority, id }: DeliveryRef): Promise<void> {
    await this.run(statements.COUNT_FAILED_ATTEMPT.bind({ mesh, recipient, priority, id }))
  }

  async sweep(): Promise<Swept> {
    const { sweepRows: max, failedAttemptsMax, failedAttemptsSpanMs, dedupeMs } = this.options
    const [queue] = await this.run<SweepRow>(
      statements.SWEEP_QUEUE.bind({
        ...this.queueCursor,
        max,
        failedAttemptsMax,
        failedAttemptsSpanSeconds: failedAttemptsSpanMs / 1000,
      }),
    )
    const [ledger] = await this.run<{ forgotten: number }>(
      statements.SWEEP_LEDGER.bind({ dedupeSeconds: dedupeMs / 1000, max }),
    )
    await this.sweepBodies()
    const { seen, expired, dead, mesh_id: mesh, recipient, priority, id } = queue!
    const isRound = seen < max
    this.queueCursor = isRound ? QUEUE_START : { mesh, recipient, priority, id }
    return { expired, dead, forgotten: ledger!.forgotten, isRound }
  }

  private async sweepBodies(): Promise<void> {
    const max = this.options.sweepRows
    const rows = await this.run<BodyRow>(statements.SWEEP_BODIES.bind({ ...this.bodyCursor, max }))
    const { seen, mesh_id: mesh, sender, body_id } = rows[0]!
    this.bodyCursor = seen < max ? BODIES_START : { mesh, sender, bodyId: byteaText(body_id) }
  }

  findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    return this.sessionOpener.findMembers(meshId, peers)
  }

  findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    return this.sessionOpener.findBindings(meshId, peers)
  }

  private run<Row extends object>(statement: BoundStatement<string | number>): Promise<Row[]> {
    return runPrepared<Row>(this.db.asking, statement)
  }
}

/**
 * The queue's connections. Writing, claiming and collecting have their own, so that none waits for another; other
 * statements use a pool.
 */
export interface QueueDatabases {
  readonly writing: Pipeline
  readonly claiming: Pipeline
  readonly collecting: Pipeline
  readonly asking: Database
}

interface BodyRow {
  seen: number
  mesh_id: string
  sender: number
  body_id: Uint8Array
}

interface DueRow {
  mesh_id: MeshId | null
  peer: PeerNo | null
  next_seconds: number | null
}

interface MeasuredRow extends SenderBacklog {
  n: number
}

interface PoolRow {
  peer_no: PeerNo
  peer_key: Uint8Array
  epoch: number
  /** Alternating peer numbers and keys, separated by spaces. */
  members: string | null
}

interface SweepRow {
  seen: number
  expired: number
  dead: number
  mesh_id: string
  recipient: number
  priority: number
  id: number
}

const NO_MESH = '0'.repeat(32)
const BODIES_START = { mesh: NO_MESH, sender: 0, bodyId: '\\x' }
const QUEUE_START = { mesh: NO_MESH, recipient: 0, priority: 0, id: 0 }

function membersOf(text: string): PoolEntry['members'] {
  const words = text === '' ? [] : text.split(' ')
  return Array.from({ length: words.length / 2 }, (_, i) => ({
    peer: Number(words[2 * i]) as PeerNo,
    peerKey: words[2 * i + 1] as PeerKey,
  }))
}
