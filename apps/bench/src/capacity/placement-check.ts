/** How evenly the real placement spreads meshes, and how many change their home when a shard comes or goes. */
import { homeOf } from '@sealpost/core'
import { type MeshId, type Random, seededRandom } from '@sealpost/std'

export interface PlacementSetup {
  readonly shards: number
  readonly meshes: number
  /** Of the natural logarithm of a mesh's peers: 0 for meshes alike, 1.5 for a tenth that holds half of all peers. */
  readonly spread: number
  readonly seed: number
}

/** Shares of all peers, but for the last. */
export interface PlacementOutcome {
  /** Against the mean. */
  readonly fullest: number
  readonly emptiest: number
  /** In a mesh whose home changes when one more shard comes; 1 / (shards + 1) is as few as can be. */
  readonly movedByNewcomer: number
  readonly movedByLoss: number
  /** Of the shard that takes most of those that lost theirs: its load against that before. */
  readonly fullestHeir: number
  /** Meshes that changed between two shards that were there before and after. */
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
  const newcomer = homesOf(sized, [...names, `sealpost-${shards}`])
  const lost = names[0]!
  const heirs = homesOf(sized, names.slice(1))
  const heirLoads = loadsOf(sized, heirs)
  const changed = (after: readonly string[]) => sized.filter((_, i) => homes[i] !== after[i])
  const peersIn = (some: readonly Sized[]) => some.reduce((sum, { peers }) => sum + peers, 0) / total
  return {
    fullest: (Math.max(...loads.values()) * shards) / total,
    emptiest: (Math.min(...names.map((name) => loads.get(name) ?? 0)) * shards) / total,
    movedByNewcomer: peersIn(changed(newcomer)),
    movedByLoss: peersIn(changed(heirs)),
    fullestHeir: Math.max(...[...heirLoads].map(([name, load]) => load / (loads.get(name) ?? load))),
    movedInVain:
      sized.filter((_, i) => homes[i] !== newcomer[i] && newcomer[i] !== `sealpost-${shards}`).length +
      sized.filter((_, i) => homes[i] !== heirs[i] && homes[i] !== lost).length,
  }
}

const homesOf = (sized: readonly Sized[], names: readonly string[]) => sized.map(({ meshId }) => homeOf(meshId, names)!)

function loadsOf(sized: readonly Sized[], homes: readonly string[]): Map<string, number> {
  const loads = new Map<string, number>()
  for (const [i, { peers }] of sized.entries()) loads.set(homes[i]!, (loads.get(homes[i]!) ?? 0) + peers)
  return loads
}

/** A log-normal size around 20 peers, by the Box–Muller transform. */
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
