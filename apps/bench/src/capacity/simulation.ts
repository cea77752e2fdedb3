/**
 * Simulates a plan: how evenly placement distributes meshes and how many move with a shard, and how a dead broker's
 * peers reconnect with the SDK's delays.
 */
import { homeOf } from '@sealpost/core'
import { backoffMs } from '@sealpost/sdk/backoff'
import { type MeshId, type Random, seededRandom } from '@sealpost/std'

export interface PlacementSetup {
  readonly shards: number
  readonly meshes: number
  /**
   * The standard deviation of the logarithm of mesh sizes: 0 makes them equal; with 1.5, a tenth has half of all peers.
   */
  readonly spread: number
  readonly seed: number
}

/** The result of the placement check, in shares of all peers. */
export interface PlacementOutcome {
  /** The fullest shard's load relative to the mean. */
  readonly fullest: number
  readonly emptiest: number
  /** The share of peers that move when a shard joins; the minimum is 1 / (shards + 1). */
  readonly movedByNewShard: number
  readonly movedByLoss: number
  /** The largest growth of a shard after another is lost, relative to its load before. */
  readonly fullestHeir: number
  /** The number of meshes that moved between two remaining shards. */
  readonly movedInVain: number
}

interface Sized {
  readonly meshId: MeshId
  readonly peers: number
}

export function checkPlacement({ shards, meshes, spread, seed }: PlacementSetup): PlacementOutcome {
  const random = seededRandom(seed)
  const sized = Array.from(
    { length: meshes },
    (): Sized => ({ meshId: meshIdOf(random), peers: sizeOf(spread, random) }),
  )
  const total = sized.reduce((sum, { peers }) => sum + peers, 0)
  const names = Array.from({ length: shards }, (_, i) => `sealpost-${i}`)
  const homes = homesOf(sized, names)
  const loads = loadsOf(sized, homes)
  const withNewShard = homesOf(sized, [...names, `sealpost-${shards}`])
  const lost = names[0]!
  const heirs = homesOf(sized, names.slice(1))
  const heirLoads = loadsOf(sized, heirs)
  const changed = (after: readonly string[]) => sized.filter((_, i) => homes[i] !== after[i])
  const peersIn = (some: readonly Sized[]) => some.reduce((sum, { peers }) => sum + peers, 0) / total
  return {
    fullest: (Math.max(...loads.values()) * shards) / total,
    emptiest: (Math.min(...names.map((name) => loads.get(name) ?? 0)) * shards) / total,
    movedByNewShard: peersIn(changed(withNewShard)),
    movedByLoss: peersIn(changed(heirs)),
    fullestHeir: Math.max(...[...heirLoads].map(([name, load]) => load / (loads.get(name) ?? load))),
    movedInVain:
      sized.filter((_, i) => homes[i] !== withNewShard[i] && withNewShard[i] !== `sealpost-${shards}`).length +
      sized.filter((_, i) => homes[i] !== heirs[i] && homes[i] !== lost).length,
  }
}

const homesOf = (sized: readonly Sized[], names: readonly string[]) => sized.map(({ meshId }) => homeOf(meshId, names)!)

function loadsOf(sized: readonly Sized[], homes: readonly string[]): Map<string, number> {
  const loads = new Map<string, number>()
  for (const [i, { peers }] of sized.entries()) loads.set(homes[i]!, (loads.get(homes[i]!) ?? 0) + peers)
  return loads
}

/** Returns a log-normal mesh size around 20 peers (Box–Muller). */
function sizeOf(spread: number, random: Random): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next())
  return Math.max(2, Math.round(20 * Math.exp(spread * normal)))
}

export function meshIdOf(random: Random): MeshId {
  const words = Array.from({ length: 4 }, () =>
    random
      .below(2 ** 32)
      .toString(16)
      .padStart(8, '0'),
  )
  return words.join('') as MeshId
}

export interface StormSetup {
  /** The number of peers on the dead broker. */
  readonly sessions: number
  readonly meshPeers: number
  readonly survivors: number
  /** A survivor's handshakes per second. */
  readonly handshakesPerSecond: number
  /** A survivor's `UNAUTHENTICATED_MAX`. */
  readonly unprovenMax: number
  readonly seed: number
}

export interface StormOutcome {
  /** The seconds until half, 99 % and all of the peers are back. */
  readonly halfBackSeconds: number
  readonly mostBackSeconds: number
  readonly allBackSeconds: number
  /** The number of dials in the busiest second. */
  readonly dialsPerSecondMax: number
  readonly refused: number
  readonly gaveUp: number
  /** The fullest survivor's sessions relative to the mean. */
  readonly fullest: number
}

interface DisconnectedPeer {
  readonly survivor: Survivor
  failures: number
  deadlineMs: number
}

interface Survivor {
  readonly unproven: DisconnectedPeer[]
  taken: number
  /** The number of handshakes in this step; a fraction is carried over. */
  due: number
}

const STEP_MS = 10
/** How long the SDK waits for a dial to lead to a session. */
const SESSION_WITHIN_MS = 20_000
const MINUTES_MAX = 60

export function weatherStorm(setup: StormSetup): StormOutcome {
  const storm = new Storm(setup)
  while (storm.back.length < setup.sessions && storm.nowMs < MINUTES_MAX * 60_000) storm.step()
  return storm.outcome()
}

class Storm {
  nowMs = 0
  /** When each peer was connected again. */
  readonly back: number[] = []
  readonly #setup: StormSetup
  readonly #random: Random
  readonly #survivors: readonly Survivor[]
  /** The peers that dial in each step. */
  readonly #dials = new Map<number, DisconnectedPeer[]>()
  readonly #dialsBySecond = new Map<number, number>()
  #refused = 0
  #gaveUp = 0

  constructor(setup: StormSetup) {
    this.#setup = setup
    this.#random = seededRandom(setup.seed)
    this.#survivors = Array.from({ length: setup.survivors }, () => ({ unproven: [], taken: 0, due: 0 }))
    for (const survivor of this.#heirs()) this.#dialLater({ survivor, failures: 0, deadlineMs: 0 })
  }

  step(): void {
    const dialling = this.#dials.get(this.nowMs / STEP_MS) ?? []
    this.#dials.delete(this.nowMs / STEP_MS)
    for (const peer of dialling) this.#dialled(peer)
    for (const survivor of this.#survivors) this.#serve(survivor)
    this.nowMs += STEP_MS
  }

  outcome(): StormOutcome {
    const { sessions, survivors } = this.#setup
    const at = (share: number) =>
      (this.back[Math.ceil(this.back.length * share) - 1] ?? Number.POSITIVE_INFINITY) / 1000
    return {
      halfBackSeconds: at(0.5),
      mostBackSeconds: at(0.99),
      allBackSeconds: this.back.length < sessions ? Number.POSITIVE_INFINITY : at(1),
      dialsPerSecondMax: Math.max(...this.#dialsBySecond.values()),
      refused: this.#refused,
      gaveUp: this.#gaveUp,
      fullest: (Math.max(...this.#survivors.map(({ taken }) => taken)) * survivors) / sessions,
    }
  }

  /** Returns each peer's new home. */
  #heirs(): Survivor[] {
    const { sessions, meshPeers, survivors } = this.#setup
    const names = Array.from({ length: survivors }, (_, i) => String(i))
    const homes = Array.from({ length: Math.ceil(sessions / meshPeers) }, () =>
      Number(homeOf(meshIdOf(this.#random), names)),
    )
    return Array.from({ length: sessions }, (_, i) => this.#survivors[homes[Math.floor(i / meshPeers)]!]!)
  }

  #dialLater(peer: DisconnectedPeer): void {
    const waitMs = backoffMs(peer.failures++, () => this.#random.next())
    const step = Math.floor((this.nowMs + waitMs) / STEP_MS) + 1
    const others = this.#dials.get(step)
    if (others) others.push(peer)
    else this.#dials.set(step, [peer])
  }

  #dialled(peer: DisconnectedPeer): void {
    const second = Math.floor(this.nowMs / 1000)
    this.#dialsBySecond.set(second, (this.#dialsBySecond.get(second) ?? 0) + 1)
    const { unproven } = peer.survivor
    if (unproven.length >= this.#setup.unprovenMax) {
      this.#refused += 1
      return this.#dialLater(peer)
    }
    peer.deadlineMs = this.nowMs + SESSION_WITHIN_MS
    unproven.push(peer)
  }

  #serve(survivor: Survivor): void {
    survivor.due += (this.#setup.handshakesPerSecond * STEP_MS) / 1000
    while (survivor.due >= 1 && survivor.unproven.length > 0) {
      survivor.due -= 1
      const peer = survivor.unproven.shift()!
      if (peer.deadlineMs < this.nowMs) {
        this.#gaveUp += 1
        this.#dialLater(peer)
        continue
      }
      survivor.taken += 1
      this.back.push(this.nowMs)
    }
    survivor.due = Math.min(survivor.due, 1)
  }
}
