/**
 * Simulates a seeded world: two meshes of peers and two shards on one database, with a period of faults followed by one
 * without. `run` returns the events, or the first broken promise.
 */
import { defaultLimits, type EngineLimits, type GroupEntry } from '@sealpost/core'
import { ALONE_AFTER_ATTEMPTS } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import { defaultQueueOptions, type QueueOptions } from '@sealpost/queue'
import { isFree, MemoryDatabase, type StoredDelivery } from '@sealpost/queue/memory'
import {
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  type Random,
  type ShardId,
  seededRandom,
} from '@sealpost/std'
import { VirtualClock } from './clock.ts'
import { HintPath } from './network.ts'
import { Inside } from './oracle/inside.ts'
import { Consents, Revocations } from './oracle/membership.ts'
import { Oracle, Violation } from './oracle/oracle.ts'
import { BoxKeyTurns, boxKeyOf, groupOf, POOL, type Vault } from './peer/crypto.ts'
import { SimPeer } from './peer/sim-peer.ts'
import { Disks } from './peer/simulated-store.ts'
import { type Chances, drawPlan, Ends, type FaultPlan } from './plan.ts'
import { DatabasePath, Overlaps } from './shard/database.ts'
import { ShardLife } from './shard/shard-life.ts'
import type { SimulatedConnection } from './shard/simulated-connection.ts'
import { LEASE_MS, type Surroundings } from './surroundings.ts'

export interface RunOutcome {
  readonly seed: number
  readonly violation: string | null
  readonly marks: ReadonlyMap<string, number>
  readonly plan: FaultPlan
  readonly sends: number
  readonly drainedInMs: Millis
}

const START_MS = 1_700_000_000_000
const FAULTS_MS = 6_000
/**
 * How long the world runs without faults: lease, poll, pause between dials, heartbeat and margin, then the two minutes
 * for which an SDK holds messages back.
 */
const DRAIN_MS = 60_000 + 120_000
/** The number of messages per peer, half of them in bursts. */
const SENDS = 14
const PEERS = 3
const CHECK_MS = 3_000
const POLL_MS = 2_000
/** The bound of P3 in addition to the lease: a poll and five seconds. */
const WAITS_MS_MAX = POLL_MS + 5_000
/** The time for three statements of a fast database, after which a returned delivery must have been claimed. */
const FAST_DATABASE_MS = 40
const RETURNED_MS_MAX = 500
/** How long a lost statement delays a delivery: its timeout and a fence. */
const LOST_MS_MAX = 2_000
const LOOK_MS = 100
const MESHES = ['a1', 'a2'].map((digits) => digits.repeat(16) as MeshId)

const limitsOfSim: EngineLimits = {
  ...defaultLimits,
  heartbeatMs: 2_000,
  pollMs: POLL_MS,
  leaseMs: LEASE_MS,
  inFlightMax: 6,
  rate: null,
  byteRate: null,
  mailbox: null, // off, so that the worlds of failed seeds don't change
}
const queueOptionsOfSim: QueueOptions = { ...defaultQueueOptions, leaseMs: LEASE_MS }

interface Taker {
  readonly life: ShardLife
  readonly connection: SimulatedConnection
}

class World implements Surroundings {
  readonly seed: number
  readonly clock = new VirtualClock(START_MS)
  readonly oracle = new Oracle()
  readonly vault: Vault = { envelopes: [], bodies: [] }
  readonly inside = new Inside(this.oracle)
  readonly shardCount = 2
  readonly shards: (ShardLife | null)[] = []
  readonly random: Random
  readonly plan: FaultPlan
  readonly store: MemoryDatabase
  readonly path: DatabasePath
  readonly ends: Ends
  readonly turns: BoxKeyTurns
  readonly disks: Disks
  readonly consents: Consents
  readonly overlaps: Overlaps
  readonly revocations: Revocations
  private readonly hints: HintPath
  private readonly peers: SimPeer[] = []
  private databaseSkewMs = 0
  private lives = 0
  private fault: { readonly error: unknown } | null = null

  constructor(seed: number) {
    this.seed = seed
    this.random = seededRandom(seed)
    this.plan = drawPlan(this.random)
    this.ends = new Ends(seed)
    this.disks = new Disks(this.clock, seed)
    this.turns = new BoxKeyTurns(seed)
    this.consents = new Consents(seed)
    const leaver = { meshId: MESHES[0]!, peer: PEERS as PeerNo, peerKey: keyOf(PEERS) }
    this.revocations = new Revocations(seed, leaver)
    this.store = new MemoryDatabase(() => this.clock.nowMs + this.databaseSkewMs)
    this.path = new DatabasePath(this)
    this.overlaps = new Overlaps(this, seed)
    this.hints = new HintPath(this)
    for (const meshId of MESHES) this.enrol(meshId)
    for (let n = 0; n < this.shardCount; n++) this.shards.push(this.startShard())
  }

  chance(fault: keyof Chances): boolean {
    return this.path.chance(this.plan[fault])
  }

  isDoubtful({ meshId, from, to }: { meshId: MeshId; from: PeerKey; to: PeerKey }): boolean {
    const [owner, suspect] = this.peers as [SimPeer, SimPeer]
    const isTheirs = meshId === owner.meshId && to === owner.peerKey && from === suspect.peerKey
    return isTheirs && this.consents.changes.length > 0
  }

  hint(from: ShardLife, hint: Hint): void {
    this.hints.send(hint, () => {
      for (const shard of this.shards) if (shard !== from) shard?.heardHint(from, hint)
    })
  }

  run(): Millis {
    this.schedule()
    while (this.clock.nowMs < START_MS + FAULTS_MS) this.step()
    this.path.areFaultsOn = false
    this.shards.forEach((shard, n) => {
      this.shards[n] = shard ?? this.startShard()
    })
    this.watchWaiting()
    const endMs = this.clock.nowMs + DRAIN_MS
    const isOver = () => this.oracle.isDone && this.queued() === 0 && !this.isLeaverServed()
    while (this.clock.nowMs < endMs && !isOver()) this.step()
    if (this.isLeaverServed()) this.oracle.served()
    const drainedInMs = this.clock.nowMs - START_MS - FAULTS_MS
    this.oracle.finish(drainedInMs, this.queued())
    return drainedInMs
  }

  /** Checks that after the faults, no delivery waits long while its recipient has credit. */
  private watchWaiting(): void {
    const { clock, store, plan, oracle, path, overlaps } = this
    const isPunctual = plan.databaseMs <= FAST_DATABASE_MS && plan.clockJumps === 0
    const mostMsOf = ({ id, lease }: StoredDelivery, { life, connection }: Taker) => {
      const isWoken = lease?.epoch === null && life.watch.hasReturned(id, connection.welcomedAtMs)
      const dueAtMs = lease?.untilMs ?? 0
      const isUndisturbed = isPunctual && dueAtMs > path.lostAtMs + LOST_MS_MAX
      // A held-back commit uses credit for its leases on insert, so it may delay a delivery.
      return isWoken && isUndisturbed && !overlaps.mayLackSince(dueAtMs) ? RETURNED_MS_MAX : WAITS_MS_MAX
    }
    const since = new Map<StoredDelivery, Millis>()
    const look = () => {
      for (const row of store.deliveries()) {
        const taker = this.takerOf(row)
        if (!taker) {
          since.delete(row)
          continue
        }
        const sinceMs = Math.max(since.get(row) ?? clock.nowMs, taker.connection.pushedAtMs)
        since.set(row, sinceMs)
        oracle.waits(row, { forMs: clock.nowMs - sinceMs, mostMs: mostMsOf(row, taker) })
      }
      clock.after(LOOK_MS, look)
    }
    look()
  }

  /** Returns the recipient's shard and connection, if its session may take this delivery. */
  private takerOf(row: StoredDelivery): Taker | null {
    const { session, isPool, isRevoked } = this.store.find(row.meshId, row.recipient)!
    if (isPool || isRevoked || !isFree(row, session.epoch, this.store.nowMs)) return null
    if (row.expiresAtMs <= this.store.nowMs || row.failedAttempts >= this.ends.failedAttempts.failedAttemptsMax)
      return null
    if (row.attempts >= ALONE_AFTER_ATTEMPTS) return null
    const life = this.shards.find((shard) => shard?.shard === session.shard)
    const connection = life?.connectionFor(row.meshId, row.recipient)
    const mayTake = connection?.epoch === session.openedEpoch && connection.mayTake(row.priority)
    return life && connection && mayTake ? { life, connection } : null
  }

  fail(error: unknown): void {
    this.fault ??= { error }
  }

  private step(): void {
    this.clock.step()
    if (this.fault) throw this.fault.error
  }

  get members(): readonly PeerKey[] {
    return Array.from({ length: PEERS }, (_, i) => keyOf(i + 1))
  }

  groupIn(meshId: MeshId): GroupEntry {
    return groupOf(meshId, this.members)
  }

  private isLeaverServed(): boolean {
    const { isDone, leaver } = this.revocations
    return isDone && this.shards.some((shard) => shard?.engine.presence.isServed(leaver.meshId, leaver.peerKey))
  }

  /** Counts the queued deliveries that no revocation affects. */
  private queued(): number {
    const isOut = ({ meshId, sender, recipient }: StoredDelivery) =>
      this.revocations.isOut(meshId, sender) || this.revocations.isOut(meshId, recipient)
    return [...this.store.deliveries()].filter((row) => !isOut(row)).length
  }

  private enrol(meshId: MeshId): void {
    this.store.addMesh(meshId)
    for (let n = 1; n <= PEERS; n++) {
      // Both meshes have the same keys and numbers, so that code that ignores the mesh finds the wrong peer.
      const peerKey = keyOf(n)
      const binding = {
        peer: peerKey,
        boxKey: boxKeyOf(peerKey, 1),
        boxEpoch: 1,
        notAfterMs: START_MS * 2,
        signature: new Uint8Array(64),
      }
      this.store.addMember(meshId, binding, n as PeerNo)
      this.peers.push(new SimPeer(this, meshId, peerKey))
    }
    const members = Array.from({ length: PEERS }, (_, i) => (i + 1) as PeerNo)
    this.store.setPool(meshId, POOL, { epoch: 1, members })
  }

  private startShard(): ShardLife {
    this.lives += 1
    const shard = this.lives.toString(16).padStart(32, '0') as ShardId
    const { waitingMax, perSecond, isInsertLeaseOn } = this.plan
    const rate = perSecond === null ? null : { perSecond, burst: 4 }
    const limits = { ...limitsOfSim, waitingMax, rate, isInsertLeaseOn, checkMs: CHECK_MS }
    return new ShardLife(this, shard, { limits, queue: { ...queueOptionsOfSim, ...this.ends.failedAttempts } })
  }

  private schedule(): void {
    const { random, plan } = this
    for (const peer of this.peers) {
      this.clock.after(random.next() * 300, () => peer.start())
      for (let left = SENDS; left > 0; ) left -= this.scheduleSends(peer, left)
      for (let i = 0; i < plan.poolSends; i++) this.sometime(() => peer.postToPool())
    }
    this.overlaps.schedule(this.peers)
    for (let i = 0; i < plan.cuts; i++) this.sometime(() => this.cut())
    for (let i = 0; i < plan.crashes; i++) this.sometime(() => this.crash())
    for (let i = 0; i < plan.restarts; i++) this.sometime(() => this.restart())
    for (let i = 0; i < plan.outages; i++) this.sometime(() => this.path.breakFor(random.next() * 2_000))
    for (let i = 0; i < plan.clockJumps; i++) this.sometime(() => this.jump())
    for (const share of this.turns.shares)
      this.clock.after(share * FAULTS_MS, () => this.peers[Math.floor(share * 1e6) % this.peers.length]!.turnBoxKey())
    for (const share of this.ends.closes)
      this.clock.after(share * FAULTS_MS, () => this.peers[Math.floor(share * 1e6) % this.peers.length]!.rejoin())
    const [owner, suspect] = this.peers as [SimPeer, SimPeer]
    for (const { share, verdict } of this.consents.changes)
      this.clock.after(share * FAULTS_MS, () => owner.changeConsent(suspect.peerKey, verdict))
    const { share, leaver } = this.revocations
    if (share !== null) this.clock.after(share * FAULTS_MS, () => owner.revoke(leaver.peerKey))
  }

  private sometime(happen: () => void): void {
    this.clock.after(this.random.next() * FAULTS_MS * 0.95, happen)
  }

  /** Schedules one message, or a burst to one recipient. Returns their number. */
  private scheduleSends(peer: SimPeer, most: number): number {
    const { random } = this
    const others = this.peers.filter((other) => other.meshId === peer.meshId && other !== peer)
    const { peerKey } = others[random.below(others.length)]!
    const priority = (['now', 'next', 'next', 'next', 'low'] as const)[random.below(5)]!
    const count = random.chance(0.3) ? Math.min(most, 2 + random.below(6)) : 1
    const spacingMs = random.chance(0.5) ? 0 : random.next() * 120
    this.sometime(() => {
      for (let i = 0; i < count; i++) this.clock.after(i * spacingMs, () => peer.post(peerKey, priority))
    })
    return count
  }

  private cut(): void {
    const { random } = this
    const peer = this.peers[random.below(this.peers.length)]!
    this.oracle.mark('cut')
    const serverAfterMs = random.chance(0.3) ? 30_000 : random.next() * 2_000
    peer.cut({ clientAfterMs: random.next() * 1_000, serverAfterMs })
  }

  private crash(): void {
    const n = this.random.below(this.shardCount)
    const shard = this.shards[n]
    if (!shard) return
    this.oracle.mark('crash')
    shard.crash()
    this.replace(n)
  }

  private restart(): void {
    const n = this.random.below(this.shardCount)
    const shard = this.shards[n]
    if (!shard) return
    this.oracle.mark('restart')
    shard.shutdown(() => {
      if (this.shards[n] === shard) this.replace(n)
    })
  }

  private replace(n: number): void {
    this.shards[n] = null
    this.clock.after(this.random.next() * 1_500, () => {
      this.shards[n] ??= this.startShard()
    })
  }

  private jump(): void {
    this.oracle.mark('clock jump')
    const byMs = (this.random.next() * 2 - 1) * 10_000
    if (byMs < 0) this.oracle.hasClockGoneBack = true
    this.databaseSkewMs += byMs
  }
}

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey

export function runSeed(seed: number): RunOutcome {
  const world = new World(seed)
  const outcome = (violation: string | null, drainedInMs: Millis): RunOutcome => ({
    seed,
    violation,
    marks: world.oracle.marks,
    plan: world.plan,
    sends: world.oracle.sends.length,
    drainedInMs,
  })
  try {
    return outcome(null, world.run())
  } catch (error) {
    if (!(error instanceof Violation) && (error as Error).name !== 'AssertionFailed') throw error
    return outcome((error as Error).message, Infinity)
  }
}
