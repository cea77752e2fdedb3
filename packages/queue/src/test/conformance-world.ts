import {
  ANY_ID,
  type Append,
  type AppendOutcome,
  type Claimed,
  type Committed,
  type Delivery,
  type DeliveryRef,
  NO_VIRTUAL_TIMES,
  PRIORITY_MAX,
  type SessionRef,
  type Settle,
} from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey, PeerNo, PoolId, ShardId, SpaceId } from '@sealpost/std'
import type { Queue, QueueOptions } from '../queue.ts'

/** An empty database whose clock only `advance` moves. */
export interface QueueWorld {
  queueFor(shard: ShardId, options: QueueOptions): Queue
  addMesh(meshId: MeshId): Promise<void>
  addMember(meshId: MeshId, peerKey: PeerKey): Promise<PeerNo>
  setPool(
    meshId: MeshId,
    poolId: PoolId,
    pool: { owner: PeerNo; epoch: number; members: readonly PeerKey[] },
  ): Promise<void>
  /** Creates or changes a space; a group's space has `members`. */
  setSpace(meshId: MeshId, spaceId: SpaceId, space: SpaceOfWorld): Promise<void>
  /** Returns the space's recorded messages in order, as strings. */
  keptMessages(meshId: MeshId, spaceId: SpaceId): Promise<{ seq: number; record: string; body: string }[]>
  revoke(meshId: MeshId, peerKey: PeerKey): Promise<void>
  /** Advances the database clock; a negative time sets it back. */
  advance(byMs: Millis): Promise<void>
  /** Runs `body` while the session row is locked. */
  whileLocked(meshId: MeshId, peer: PeerNo, body: () => Promise<void>): Promise<void>
  deadLetters(): Promise<DeadLetterFacts[]>
  bodyCount(): Promise<number>
  end(): Promise<void>
}

export interface SpaceOfWorld {
  readonly owner: PeerNo
  readonly keepsMessages: boolean
  readonly members?: readonly PeerKey[]
}

export interface DeadLetterFacts {
  readonly id: DeliveryId
  readonly recipient: PeerNo
  readonly envelopeId: EnvelopeId
  readonly reason: string
  readonly detail: string | null
  readonly isReported: boolean
  readonly attempts: number
  readonly failedAttempts: number
  readonly hasEnvelope: boolean
}

export const suiteOptions: QueueOptions = {
  leaseMs: 30_000,
  dedupeMs: 600_000,
  failedAttemptsMax: 3,
  failedAttemptsSpanMs: 120_000,
  sweepRows: 5,
}

export const AMPLE_BYTES = 1024 * 1024
export const HERE = '0a'.repeat(16) as ShardId
export const THERE = '0b'.repeat(16) as ShardId
export const MESH = '1a'.repeat(16) as MeshId
export const OTHER_MESH = '1b'.repeat(16) as MeshId
export const peerKeyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
export const envelopeIdOf = (n: number) => n.toString(16).padStart(32, '0') as EnvelopeId

/** Pads the text to an envelope's minimum length. */
export function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text.padEnd(40, '.'))
}

export const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes).replace(/\.+$/, '')

/** The fixture: two shards, a mesh of three members and another of one, without sessions. */
export class Stage {
  readonly world: QueueWorld
  readonly here: Queue
  readonly there: Queue
  readonly ann: PeerNo
  readonly bob: PeerNo
  readonly cat: PeerNo
  readonly stranger: PeerNo
  private lastEnvelope = 0

  private constructor(world: QueueWorld, members: readonly PeerNo[]) {
    this.world = world
    this.here = world.queueFor(HERE, suiteOptions)
    this.there = world.queueFor(THERE, suiteOptions)
    const [ann, bob, cat, stranger] = members as [PeerNo, PeerNo, PeerNo, PeerNo]
    this.ann = ann
    this.bob = bob
    this.cat = cat
    this.stranger = stranger
  }

  static async open(world: QueueWorld): Promise<Stage> {
    await world.addMesh(MESH)
    await world.addMesh(OTHER_MESH)
    const members: PeerNo[] = []
    for (const n of [1, 2, 3]) members.push(await world.addMember(MESH, peerKeyOf(n)))
    members.push(await world.addMember(OTHER_MESH, peerKeyOf(4)))
    return new Stage(world, members)
  }

  /** Returns an append from Ann to Bob, with `changes`. */
  append(text: string, changes: Partial<Append> = {}): Append {
    this.lastEnvelope += 1
    return {
      meshId: MESH,
      sender: this.ann,
      recipient: this.bob,
      envelopeId: envelopeIdOf(this.lastEnvelope),
      priority: 1,
      ttlSeconds: 3600,
      envelope: bytesOf(text),
      insertLeaseEpoch: 0,
      insertLeaseFloor: 0,
      remoteLeaseEpoch: 0,
      terms: null,
      notBeforeMs: 0,
      body: null,
      ...changes,
    }
  }

  async store(...appends: Append[]): Promise<readonly AppendOutcome[]> {
    return (await this.commit(appends)).outcomes
  }

  commit(appends: readonly Append[], settles: readonly Settle[] = []): Promise<Committed> {
    return this.here.commit({ appends, settles })
  }

  storeAll(...texts: string[]): Promise<readonly AppendOutcome[]> {
    return this.store(...texts.map((text) => this.append(text)))
  }

  /** Opens sessions for Ann and Bob. Without a session, no envelope is certainly new. */
  async openBob(queue: Queue = this.here): Promise<SessionRef> {
    await this.openFor(peerKeyOf(1), { queue })
    return this.openFor(peerKeyOf(2), { queue })
  }

  /** Opens a session with the current epoch, as a broker does. */
  async openFor(peerKey: PeerKey, place: { queue?: Queue; meshId?: MeshId } = {}): Promise<SessionRef> {
    const read = await this.readSession(peerKey, place.meshId)
    const epoch = await (place.queue ?? this.here).open(read)
    if (epoch === null) throw new Error('no session was opened')
    return { ...read, epoch }
  }

  async readSession(peerKey: PeerKey, meshId: MeshId = MESH): Promise<SessionRef> {
    const [member] = await this.here.findMembers(meshId, [peerKey])
    return { meshId, peer: member!.peer, epoch: member!.sessionEpoch }
  }

  async claim(session: SessionRef, limit = 100, queue: Queue = this.here): Promise<Claimed> {
    const [claimed] = await queue.claim([
      {
        session,
        limit,
        limitBytes: AMPLE_BYTES,
        ids: ANY_ID,
        priorityMax: PRIORITY_MAX,
        virtualTimes: NO_VIRTUAL_TIMES,
        collected: [],
      },
    ])
    return claimed!
  }

  /** Claims deliveries. Throws if the status is not `claimed`. */
  async take(session: SessionRef, limit = 100, queue: Queue = this.here): Promise<readonly Delivery[]> {
    const claimed = await this.claim(session, limit, queue)
    if (claimed.status !== 'claimed') throw new Error(`the claim has the status ${claimed.status}`)
    return claimed.deliveries
  }

  async takeTexts(session: SessionRef, limit = 100, queue: Queue = this.here): Promise<string[]> {
    return (await this.take(session, limit, queue)).map((delivery) => textOf(delivery.envelope))
  }

  refOf(outcome: AppendOutcome, changes: Partial<DeliveryRef> = {}): DeliveryRef {
    if (outcome.status !== 'stored') throw new Error(`the append has the status ${outcome.status}`)
    return { meshId: MESH, recipient: this.bob, priority: 1, id: outcome.id, ...changes }
  }
}

export const statusesOf = (outcomes: readonly AppendOutcome[]): string[] =>
  outcomes.map((outcome) => (outcome.status === 'stored' && outcome.isLeased ? 'leased' : outcome.status))
