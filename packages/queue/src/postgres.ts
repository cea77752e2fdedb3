/** The queue on Postgres: turns nouns into the parameters of `sql.ts`, and its rows back into nouns. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/db'
import type {
  Append,
  Claimed,
  Committed,
  Delivery,
  DeliveryRef,
  KeyBindingEntry,
  Member,
  Retry,
  SessionRef,
  Want,
} from '@sealpost/protocol'
import {
  assert,
  type DeliveryId,
  type EnvelopeId,
  type MeshId,
  OperatingError,
  type PeerKey,
  type PeerNo,
  type ShardId,
  toHex,
} from '@sealpost/std'
import { CommitParameters } from './commit-parameters.ts'
import { type Decided, type Decision, isDecided, mergeDecided, undecidedOf } from './decisions.ts'
import type { Batch, Queue, QueueOptions, Swept } from './queue.ts'
import { arrayOf, type Parameter, type Row, run } from './run.ts'
import * as statements from './sql.ts'

export { SESSION } from './sql.ts'

export class PostgresQueue implements Queue {
  private readonly db: QueueDatabases
  private readonly shard: ShardId
  private readonly options: QueueOptions
  private place: readonly [string, number, number, number] = QUEUE_START

  constructor(db: QueueDatabases, shard: ShardId, options: QueueOptions) {
    this.db = db
    this.shard = shard
    this.options = options
  }

  async commit({ appends, settles }: Batch): Promise<Committed> {
    const { leaseMs, dedupeMs } = this.options
    const parameters = new CommitParameters(appends, dedupeMs)
    const decided = await this.store(statements.COMMIT, appends, [
      ...parameters.shared(),
      ...parameters.senderRanges(),
      this.shard,
      ...parameters.births(),
      leaseMs / 1000,
      arrayOf(settles.map((s) => s.meshId)),
      arrayOf(settles.map((s) => s.recipient)),
      arrayOf(settles.map((s) => s.priority)),
      arrayOf(settles.map((s) => s.id)),
    ])
    const { decisions, enqueuedAtMs } = await this.decideRest(appends, decided)
    return { outcomes: decisions.filter(isDecided), enqueuedAtMs }
  }

  /** @throws OperatingError `commit_raced` when other statements of the same senders were faster every time */
  private async decideRest(appends: readonly Append[], decided: Decided): Promise<Decided> {
    let latest = decided
    for (let tries = 0; tries < CAREFUL_TRIES; tries++) {
      const rest = undecidedOf(appends, latest)
      if (rest.length === 0) return latest
      const parameters = new CommitParameters(rest, this.options.dedupeMs)
      const careful = await this.store(statements.COMMIT_CAREFULLY, rest, [
        ...parameters.shared(),
        ...parameters.senderLasts(),
      ])
      latest = mergeDecided(appends, latest, careful)
    }
    if (latest.decisions.every(isDecided)) return latest
    throw new OperatingError('commit_raced', 'Other shards stored envelopes of the same senders.', { retryable: true })
  }

  private async store(statement: string, appends: readonly Append[], parameters: Parameter[]): Promise<Decided> {
    const [row] = await run<{ statuses: string | null; ids: string | null; at_ms: string | null }>(
      this.db.writing,
      statement,
      parameters,
    )
    assert(row && (row.statuses?.length ?? 0) === appends.length, 'one status for each append')
    const ids = row.ids?.split(',') ?? []
    return {
      decisions: ids.map((id, i) => decisionOf(row.statuses![i]!, Number(id) as DeliveryId)),
      enqueuedAtMs: Math.floor(Number(row.at_ms)),
    }
  }

  async claim(wants: readonly Want[]): Promise<Claimed[]> {
    const rows = await run<ClaimRow>(this.db.claiming, statements.CLAIM, [
      this.shard,
      arrayOf(wants.map((want) => want.session.meshId)),
      arrayOf(wants.map((want) => want.session.peer)),
      arrayOf(wants.map((want) => want.session.epoch)),
      arrayOf(wants.map((want) => want.limit)),
      arrayOf(wants.map((want) => want.limitBytes)),
      this.options.leaseMs / 1000,
      this.options.strikesMax,
      this.options.strikeSpanMs / 1000,
    ])
    const answers: Claimed[] = wants.map(() => LOCKED)
    for (const row of rows) {
      const place = row.n - 1
      if (!row.is_held) answers[place] = row.is_current ? LOCKED : STALE
      else if (answers[place] === LOCKED) answers[place] = { status: 'claimed', deliveries: [] }
      const answer = answers[place]!
      if (row.id !== null && answer.status === 'claimed') (answer.deliveries as Delivery[]).push(deliveryOf(row))
    }
    return answers
  }

  async open({ meshId, peer, epoch }: SessionRef): Promise<number | null> {
    const rows = await run<{ epoch: number }>(this.db.asking, statements.OPEN, [this.shard, meshId, peer, epoch])
    return rows[0]?.epoch ?? null
  }

  async fence({ meshId, peer, epoch }: SessionRef): Promise<number | null> {
    const rows = await run<{ epoch: number }>(this.db.asking, statements.FENCE, [this.shard, meshId, peer, epoch])
    return rows[0]?.epoch ?? null
  }

  async retry(retries: readonly Retry[]): Promise<void> {
    await run(this.db.asking, statements.RETRY, [
      arrayOf(retries.map(({ delivery }) => delivery.meshId)),
      arrayOf(retries.map(({ delivery }) => delivery.recipient)),
      arrayOf(retries.map(({ delivery }) => delivery.priority)),
      arrayOf(retries.map(({ delivery }) => delivery.id)),
      arrayOf(retries.map(({ epoch }) => epoch)),
      arrayOf(retries.map(({ afterMs }) => afterMs / 1000)),
    ])
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
    const { seen, expired, dead, mesh_id, recipient, priority, id } = walk!
    const isRound = seen < sweepRows
    this.place = isRound ? QUEUE_START : [mesh_id, recipient, priority, id]
    return { expired, dead, forgotten: ledger!.forgotten, isRound }
  }

  async findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    const rows = await this.memberRows(meshId, peers)
    return rows.map((row) => ({
      meshId,
      peer: row.peer_no,
      peerKey: keyText(row.peer_key),
      isRevoked: row.is_revoked,
      sessionEpoch: row.session_epoch,
    }))
  }

  async findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    const rows = await this.memberRows(meshId, peers)
    return rows
      .filter((row) => !row.is_revoked)
      .map((row) => ({
        peer: keyText(row.peer_key),
        boxKey: row.box_key,
        boxEpoch: row.box_epoch,
        notAfterMs: row.binding_not_after_ms,
        signature: row.binding_signature,
      }))
  }

  private memberRows(meshId: MeshId, peers: readonly PeerKey[]): Promise<MemberRow[]> {
    return run<MemberRow>(this.db.asking, statements.FIND_MEMBERS, [meshId, arrayLiteral(peers.map(byteaText))])
  }
}

/** A connection each for writing and claiming, so that neither waits for the other, and a few for the rest. */
export interface QueueDatabases {
  readonly writing: Database
  readonly claiming: Database
  readonly asking: Database
}

interface ClaimRow extends Row {
  n: number
  is_held: boolean
  is_current: boolean
  id: DeliveryId | null
  priority: number
  attempts: number
  envelope: Uint8Array
  envelope_id: EnvelopeId
  enqueued_at_ms: number
  sender: Uint8Array
}

interface MemberRow extends Row {
  peer_no: PeerNo
  peer_key: Uint8Array
  is_revoked: boolean
  session_epoch: number
  box_key: Uint8Array
  box_epoch: number
  binding_not_after_ms: number
  binding_signature: Uint8Array
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

const QUEUE_START = ['0'.repeat(32), 0, 0, 0] as const
/** A careful statement races only with another of the same sender, which a peer has one session to send through. */
const CAREFUL_TRIES = 3
const LOCKED: Claimed = { status: 'locked' }
const STALE: Claimed = { status: 'stale' }
const keyText = (key: Uint8Array) => toHex(key) as PeerKey
const keyOf = ({ meshId, recipient, priority, id }: DeliveryRef) => [meshId, recipient, priority, id]

function decisionOf(status: string, id: DeliveryId): Decision {
  switch (status) {
    case '+':
      return { status: 'stored', id, isLeased: false }
    case '*':
      return { status: 'stored', id, isLeased: true }
    case '=':
      return { status: 'duplicate' }
    case '!':
      return { status: 'id_reused' }
    case '?':
      return { status: 'unknown_recipient' }
    default:
      return { status: 'undecided' }
  }
}

function deliveryOf(row: ClaimRow): Delivery {
  return {
    id: row.id!,
    envelopeId: row.envelope_id,
    sender: keyText(row.sender),
    priority: row.priority,
    attempt: row.attempts,
    enqueuedAtMs: row.enqueued_at_ms,
    envelope: row.envelope,
  }
}
