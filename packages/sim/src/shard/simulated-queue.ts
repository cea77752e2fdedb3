/**
 * Puts the memory queue behind the simulated database path, where the oracle observes requests. A promise rejects if
 * the statement or its reply was lost.
 */
import type {
  Append,
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
import {
  type Batch,
  Batcher,
  isFinal,
  mergeOutcomes,
  pendingOf,
  type Queue,
  type RecipientRef,
  type Released,
  type Swept,
} from '@sealpost/queue'
import { type MemoryShard, measureIn, measureMeshIn, releaseIn, sessionStatusIn } from '@sealpost/queue/memory'
import { type DeliveryId, type MeshId, OperatingError, type PeerKey, type PeerNo, type PoolId } from '@sealpost/std'
import type { DriverWatch } from '../oracle/driver-watch.ts'
import type { ShardRun, Surroundings } from '../surroundings.ts'

const BATCH_MAX = 3

export class SimulatedQueue implements Queue {
  private readonly shard: ShardRun
  private readonly statements: MemoryShard
  private readonly world: Surroundings
  /** Requests to open sessions share statements, as in `SessionOpener`. */
  readonly #openings = new Batcher(
    (sessions: readonly SessionRef[]) => this.ask('open', () => sessions.map((each) => this.statements.open(each))),
    { max: BATCH_MAX },
  )
  readonly #members = new Batcher(
    (sought: readonly SoughtMember[]) =>
      this.ask('members', () => sought.map(({ meshId, peer }) => this.statements.findMembers(meshId, [peer])[0])),
    { max: BATCH_MAX, keyOf: ({ meshId, peer }) => meshId + peer },
  )

  constructor(shard: ShardRun, statements: MemoryShard) {
    this.shard = shard
    this.statements = statements
    this.world = shard.world
  }

  ask<T>(name: string, apply: () => T): Promise<T> {
    return new Promise((resolve, reject) =>
      this.world.path.ask(
        name,
        apply,
        (result) => !this.shard.isOver && resolve(result),
        () => !this.shard.isOver && reject(new OperatingError('db_unavailable', `${name}: no reply`, RETRYABLE)),
      ),
    )
  }

  async commit(batch: Batch): Promise<Committed> {
    const { watch } = this.shard
    watch.commitBegins(batch)
    try {
      const committed = await this.commitBatch(batch)
      watch.committed(batch, committed)
      return committed
    } catch (error) {
      watch.commitFailed(batch)
      throw error
    }
  }

  private async commitBatch(batch: Batch): Promise<Committed> {
    await this.world.overlaps.mayCommit(this.shard, batch)
    const sent = { ...batch, appends: batch.appends.map(asSent) }
    let found = await this.ask('commit', () => this.statements.commitAtOnce(sent))
    for (let rest = pendingOf(batch.appends, found); rest.length > 0; rest = pendingOf(batch.appends, found))
      found = mergeOutcomes(batch.appends, found, await this.#commitChecked(rest))
    return { outcomes: found.outcomes.filter(isFinal), enqueuedAtMs: found.enqueuedAtMs }
  }

  async claim(wants: readonly Want[]): Promise<Claimed[]> {
    const asOf = await this.world.overlaps.mayClaim(this.shard, wants)
    const claimed = await this.ask('claim', () => this.statements.claim(wants, asOf))
    for (const [i, { session }] of wants.entries()) this.shard.watch.claimed(session, claimed[i]!)
    return claimed
  }

  async collect(wants: readonly RemoteWant[]): Promise<RemoteClaimed[]> {
    const collected = await this.ask('collect', () => this.statements.collect(wants))
    for (const [i, { session }] of wants.entries()) this.shard.watch.claimed(session, collected[i]!)
    return collected
  }

  open(session: SessionRef): Promise<number | null> {
    this.shard.watch.openBegins(session)
    return this.#openings.add(session)
  }
  async fence(session: SessionRef): Promise<number | null> {
    this.shard.watch.fenceBegins(session)
    const epoch = await this.ask('fence', () => this.statements.fence(session))
    this.world.oracle.mark(epoch === null ? 'fence: served elsewhere' : 'fence: new epoch')
    return epoch
  }
  checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    const { store, shard } = this.statements
    return this.ask('checkSessions', () => sessions.map((session) => sessionStatusIn(store, shard, session)))
  }
  retry(retries: readonly Retry[]): Promise<void> {
    return this.watched('retry', retries, () => this.statements.retry(retries))
  }
  reject(rejects: readonly Reject[]): Promise<void> {
    return this.watched('reject', rejects, () => this.statements.reject(rejects))
  }
  extend(extensions: readonly Extension[]): Promise<void> {
    return this.watched('extension', extensions, () => this.statements.extend(extensions))
  }
  claimPools(wants: readonly PoolWant[]): Promise<PoolClaimed[]> {
    return this.ask('deal', () => this.statements.pools.claim(wants))
  }
  release(releases: readonly Release[]): Promise<void> {
    return this.watched('release', releases, () => releaseIn(this.statements.store, releases))
  }
  findPools(meshId: MeshId, pools: readonly PoolId[]): Promise<PoolEntry[]> {
    return this.ask('pools', () => this.statements.pools.find(meshId, pools))
  }
  notifyPushed(deliveries: readonly DeliveryRef[]): Promise<void> {
    return this.ask('notifyPushed', () => this.statements.notifyPushed(deliveries))
  }
  countFailedAttempt(delivery: DeliveryRef): Promise<void> {
    return this.ask('countFailedAttempt', () => this.statements.countFailedAttempt(delivery))
  }
  releaseDue(): Promise<Released> {
    return this.ask('release', () => this.statements.releaseDue())
  }
  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]> {
    return this.ask('lost', () => this.statements.findLost(meshId, peer, max))
  }
  lostReported(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): Promise<void> {
    return this.ask('lostReported', () => this.statements.lostReported(meshId, peer, ids))
  }
  measure(recipients: readonly RecipientRef[], max: number): Promise<SenderBacklog[][]> {
    const { store } = this.statements
    return this.ask('measure', () => recipients.map((recipient) => measureIn(store, recipient, max)))
  }
  measureMesh(meshId: MeshId, max: number): Promise<SenderBacklog[]> {
    return this.ask('measure', () => measureMeshIn(this.statements.store, meshId, max))
  }
  sweep(): Promise<Swept> {
    return this.ask('sweep', () => this.statements.sweep())
  }
  async findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    const found = await Promise.all(peers.map((peer) => this.#members.add({ meshId, peer })))
    return found.filter((member) => member !== undefined)
  }
  findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    return this.ask('bindings', () => this.statements.findBindings(meshId, peers))
  }

  private watched<T>(...[kind, items, apply]: [...Parameters<DriverWatch['asked']>, apply: () => T]): Promise<T> {
    return this.shard.watch.during(kind, items, () => this.ask(kind, apply))
  }

  async #commitChecked(appends: readonly Append[]) {
    // Returns whether statements for these senders win the race at every attempt.
    const isRaced = () => this.world.chance('raced')
    const found = await this.ask('checked commit', () => (isRaced() ? null : this.statements.commitChecked(appends)))
    if (found === null) throw new OperatingError('db_conflict', 'Other commits were faster.', RETRYABLE)
    return found
  }
}

interface SoughtMember {
  readonly meshId: MeshId
  readonly peer: PeerKey
}

const RETRYABLE = { retryable: true }

const asSent = (append: Append): Append =>
  Object.create(append, { insertLeaseFloor: { value: append.insertLeaseFloor, enumerable: true } })
