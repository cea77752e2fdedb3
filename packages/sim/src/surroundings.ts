/** Defines the data types that the parts of a world share, so that they need not import each other. */
import type { EngineLimits, GroupEntry } from '@sealpost/core'
import type { Driver } from '@sealpost/driver'
import type { Hint } from '@sealpost/protocol/hints'
import type { QueueOptions } from '@sealpost/queue'
import type { MemoryDatabase } from '@sealpost/queue/memory'
import type { MeshId, Millis, PeerKey, Random } from '@sealpost/std'
import type { VirtualClock } from './clock.ts'
import type { SimulatedLink } from './network.ts'
import type { DriverWatch } from './oracle/driver-watch.ts'
import type { Inside } from './oracle/inside.ts'
import type { Consents, HeardConsents, Revocations } from './oracle/membership.ts'
import type { Oracle } from './oracle/oracle.ts'
import type { BoxKeyTurns, Vault } from './peer/crypto.ts'
import type { Disks } from './peer/simulated-store.ts'
import type { Chances, Ends, FaultPlan } from './plan.ts'
import type { DatabasePath, Overlaps } from './shard/database.ts'

export const LEASE_MS: Millis = 8_000

export interface Surroundings {
  readonly seed: number
  readonly clock: VirtualClock
  readonly random: Random
  readonly plan: FaultPlan
  readonly ends: Ends
  readonly oracle: Oracle
  readonly inside: Inside
  readonly store: MemoryDatabase
  readonly path: DatabasePath
  readonly overlaps: Overlaps
  readonly vault: Vault
  readonly disks: Disks
  readonly turns: BoxKeyTurns
  readonly consents: Consents
  readonly revocations: Revocations
  readonly shardCount: number
  readonly shards: readonly (Door | null)[]
  readonly members: readonly PeerKey[]
  groupIn(meshId: MeshId): GroupEntry
  /** Returns true with one of the plan's probabilities, but never after the fault period. */
  chance(fault: keyof Chances): boolean
  isDoubtful(way: { meshId: MeshId; from: PeerKey; to: PeerKey }): boolean
  hint(from: object, hint: Hint): void
  /** Ends the world with an error that no caller can receive. */
  fail(error: unknown): void
}

interface Door {
  connect(link: SimulatedLink): void
}

export interface ShardRun {
  readonly world: Surroundings
  readonly isOver: boolean
  readonly heard: HeardConsents
  readonly watch: DriverWatch
  readonly driver: Driver
  /** Runs the function later, unless the process has ended. */
  after(delayMs: Millis, run: () => void): void
}

export interface ShardRunOptions {
  readonly limits: EngineLimits
  readonly queue: QueueOptions
}
