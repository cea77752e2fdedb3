/** Implements the asynchronous queue port on a shard of the memory queue. */
import type {
  Claimed,
  Committed,
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
import type { DeliveryId, MeshId, PeerKey, PeerNo, PoolId, ShardId } from '@sealpost/std'
import type { Batch, Queue, QueueOptions, RecipientRef, Released, Swept } from '../queue.ts'
import { isReceipt, releaseIn } from './claim.ts'
import { MemoryShard } from './memory.ts'
import { type MemoryDatabase, type StoredDeadLetter, type StoredDelivery, sessionStatusIn } from './store.ts'

export * from './memory.ts'
export * from './store.ts'

export function queueFor(store: MemoryDatabase, shard: ShardId, options: QueueOptions): Queue {
  return new MemoryQueue(new MemoryShard(store, shard, options))
}

export class MemoryQueue implements Queue {
  readonly shard: MemoryShard

  constructor(shard: MemoryShard) {
    this.shard = shard
  }

  async commit(batch: Batch): Promise<Committed> {
    return this.shard.commit(batch)
  }
  async claim(wants: readonly Want[]): Promise<Claimed[]> {
    return this.shard.claim(wants)
  }
  async collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]> {
    return this.shard.collect(wants)
  }
  async open(session: SessionRef): Promise<number | null> {
    return this.shard.open(session)
  }
  async fence(session: SessionRef): Promise<number | null> {
    return this.shard.fence(session)
  }
  async checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    return sessions.map((session) => sessionStatusIn(this.shard.store, this.shard.shard, session))
  }
  async retry(retries: readonly Retry[]): Promise<void> {
    this.shard.retry(retries)
  }
  async reject(rejects: readonly Reject[]): Promise<void> {
    this.shard.reject(rejects)
  }
  async extend(extensions: readonly Extension[]): Promise<void> {
    this.shard.extend(extensions)
  }
  async claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]> {
    return this.shard.pools.claim(wants)
  }
  async release(releases: readonly Release[]): Promise<void> {
    releaseIn(this.shard.store, releases)
  }
  async findPools(meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]> {
    return this.shard.pools.find(meshId, pools)
  }
  async notifyPushed(deliveries: readonly DeliveryRef[]): Promise<void> {
    this.shard.notifyPushed(deliveries)
  }
  async releaseDue(): Promise<Released> {
    return this.shard.releaseDue()
  }
  async findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]> {
    return this.shard.findLost(meshId, peer, max)
  }
  async measure(recipients: readonly RecipientRef[], max: number): Promise<SenderBacklog[][]> {
    return recipients.map((recipient) => measureIn(this.shard.store, recipient, max))
  }
  async measureMesh(meshId: MeshId, max: number): Promise<SenderBacklog[]> {
    return measureMeshIn(this.shard.store, meshId, max)
  }
  async lostReported(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void> {
    this.shard.lostReported(meshId, peer, ids)
  }
  async countFailedAttempt(delivery: DeliveryRef): Promise<void> {
    this.shard.countFailedAttempt(delivery)
  }
  async sweep(): Promise<Swept> {
    return this.shard.sweep()
  }
  async findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    return this.shard.findMembers(meshId, peers)
  }
  async findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    return this.shard.findBindings(meshId, peers)
  }
}

export function measureIn(store: MemoryDatabase, { meshId, peer }: RecipientRef, max: number): SenderBacklog[] {
  const waiting = (store.find(meshId, peer)?.deliveries ?? []).filter((row) => !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId && row.recipient === peer)
  return bySender(store, [...waiting.slice(0, max), ...delayed.slice(0, max)])
}

export function measureMeshIn(store: MemoryDatabase, meshId: MeshId, max: number): SenderBacklog[] {
  const waiting = [...store.deliveries()].filter((row) => row.meshId === meshId && !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId)
  const dead = store.deadLetters.filter((row) => row.meshId === meshId)
  return bySender(store, [...waiting.slice(0, max), ...delayed.slice(0, max), ...dead.slice(0, max)])
}

function bySender(store: MemoryDatabase, rows: readonly (StoredDelivery | StoredDeadLetter)[]): SenderBacklog[] {
  const found = new Map<PeerNo, { sender: PeerNo; count: number; bytes: number }>()
  for (const row of rows) {
    const of = found.get(row.sender) ?? { sender: row.sender, count: 0, bytes: 0 }
    of.count += 1
    of.bytes += bytesOf(store, row)
    found.set(row.sender, of)
  }
  return [...found.values()]
}

type Sized = Pick<StoredDeadLetter, 'meshId' | 'sender' | 'bodyId' | 'envelope'>

function bytesOf(store: MemoryDatabase, { meshId, sender, bodyId, envelope }: Sized): number {
  const body = bodyId === null ? undefined : store.bodies.get(`${meshId} ${sender} ${bodyId}`)
  return (envelope?.length ?? 0) + (body?.bytes.length ?? 0)
}
