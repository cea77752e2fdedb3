/**
 * Simulates a plan in two ways. The placement check shows how evenly the real placement distributes meshes, and how
 * many change their home when a shard joins or leaves. The storm simulates how the peers of a dead broker reconnect to
 * the other brokers, with the delays of the SDK. In the storm, a broker is characterized only by its handshakes per
 * second and the number of waiting connections that it allows.
 */
import { homeOf } from '@sealpost/core'
import { backoffMs } from '@sealpost/sdk/backoff'
import { type MeshId, type Random, seededRandom } from '@sealpost/std'

export interface PlacementSetup {
  readonly shards: number
  readonly meshes: number
  /**
   * The standard deviation of the logarithm of the mesh size. With 0, all meshes have the same size; with 1.5, a tenth
   * of them has half of all peers.
   */
  readonly spread: number
  readonly seed: number
}

/** The result of the placement check. Shares are shares of all peers. */
export interface PlacementOutcome {
  /** The load of the fullest shard, relative to the mean. */
  readonly fullest: number
  readonly emptiest: number
  /** The share of peers whose mesh moves to another home when a shard joins; the minimum is 1 / (shards + 1). */
  readonly movedByNewShard: number
  readonly movedByLoss: number
  /** The largest growth of a shard after another one is lost, relative to the load of the shard before the loss. */
  readonly fullestHeir: number
  /** The number of meshes that moved between two shards although both shards existed before and after. */
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

/** Returns a log-normal mesh size around 20 peers, by the Box–Muller transform. */
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
  /** The number of peers on the broker that dies. */
  readonly sessions: number
  readonly meshPeers: number
  readonly survivors: number
  /** The handshakes per second of one survivor. */
  readonly handshakesPerSecond: number
  /** The number of connections without a proven key that a survivor admits at a time: `UNAUTHENTICATED_MAX`. */
  readonly unprovenMax: number
  readonly seed: number
}

export interface StormOutcome {
  /** The seconds until half, 99 % and all of the peers are connected again. */
  readonly halfBackSeconds: number
  readonly mostBackSeconds: number
  readonly allBackSeconds: number
  /** The number of dials in the busiest second, summed over all survivors. */
  readonly dialsPerSecondMax: number
  readonly refused: number
  readonly gaveUp: number
  /** The number of sessions on the fullest survivor, relative to the mean. */
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
  /**
   * The number of handshakes that the survivor can perform in this step. A fraction is carried over to the next step.
   */
  due: number
}

const STEP_MS = 10
/** The SDK abandons a dial that has not led to a session within this time. */
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

  /** Returns the new home of each peer's mesh, one of the survivors. */
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
