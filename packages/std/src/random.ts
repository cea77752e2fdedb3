/** A seeded generator for runs that must be reproducible (mulberry32, in the public domain). Not for secrets. */
export interface Random {
  /** A number in [0, 1). */
  next(): number
  /** An integer in [0, below). */
  below(limit: number): number
  chance(probability: number): boolean
}

export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
  return { next, below: (limit) => Math.floor(next() * limit), chance: (probability) => next() < probability }
}
