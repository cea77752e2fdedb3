/**
 * Defines a run's plan: who sends what to whom, when, and through which broker. Each program computes it from the same
 * numbers.
 */
import { seededRandom } from '@sealpost/std'

export interface Plan {
  readonly peers: number
  /** The number of messages of all peers. */
  readonly total: number
  /** Messages per second of all peers; null for as fast as the window allows. */
  readonly rate: number | null
  readonly payloadBytes: number
  readonly seed: number
  /** Whether the first half of the peers writes to the second; otherwise, all write to all. */
  readonly isOneWay: boolean
  readonly spread: Spread
}

export interface Spread {
  /** The number of meshes, of equal size. Peers write only within theirs. */
  readonly meshes: number
  /** The number of Postgres servers, each with some meshes. */
  readonly cells: number
  readonly shards: number
  /** The share of a mesh's peers on another shard than the others, from 0 to 1. */
  readonly cross: number
}

export const ALONE: Spread = { meshes: 1, cells: 1, shards: 1, cross: 0 }

/** Returns a plan, by default of messages of 200 bytes in one mesh on one broker. */
export const planOf = (differing: Pick<Plan, 'peers'> & Partial<Plan>): Plan => ({
  ...{ total: 0, rate: null, payloadBytes: 200, seed: 1, isOneWay: false, spread: ALONE },
  ...differing,
})

/**
 * The maximum number of pending calls per peer in a burst, which limits the memory of long runs. The window allows
 * fewer; the wait in the SDK is the difference between the report's two latencies.
 */
export const CALLS_OPEN_MAX = 1000

/** The SDK's default window. */
export const SDK_WINDOW = 64

/** Returns the number of senders, the first peers. */
export const sendersOf = ({ peers, isOneWay }: Plan): number => (isOneWay ? peers / 2 : peers)

/** Returns a message's sender, whose messages have ascending numbers. */
export const senderOf = (plan: Plan, number: number): number => number % sendersOf(plan)

/** Returns another peer of the sender's mesh, by the seed. */
export function recipientOf(plan: Plan, number: number): number {
  const chance = mixed(number, plan.seed)
  if (plan.isOneWay) return sendersOf(plan) + (chance % sendersOf(plan))
  const sender = senderOf(plan, number)
  const mesh = meshOf(plan, sender)
  const first = firstOf(plan, mesh)
  const size = firstOf(plan, mesh + 1) - first
  return first + ((sender - first + 1 + (chance % (size - 1))) % size)
}

/**
 * Returns when a message is due, in whole ms after the start, because finer spacing would add the timer's delay to each
 * latency.
 */
export const dueMs = (rate: number, number: number): number => Math.floor((number * 1000) / rate)

/** Applies MurmurHash3's finalizer (public domain), which maps consecutive numbers to unrelated values. */
function mixed(number: number, seed: number): number {
  let h = (number ^ Math.imul(seed + 1, 0x9e3779b9)) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

type Spreading = Pick<Plan, 'peers' | 'spread'>

/** Returns the mesh's first peer; the others follow. */
export const firstOf = ({ peers, spread }: Spreading, mesh: number): number =>
  Math.floor((mesh * peers) / spread.meshes)

export const meshOf = ({ peers, spread }: Spreading, peer: number): number =>
  Math.floor(((peer + 1) * spread.meshes - 1) / peers)

/** Returns a mesh's cell; meshes alternate between cells. */
export const cellOf = ({ cells }: Spread, mesh: number): number => mesh % cells

/** Returns a peer's broker, numbered across all cells; meshes alternate between shards. */
export function shardOf(plan: Spreading, peer: number): number {
  const { cells, shards, cross } = plan.spread
  const mesh = meshOf(plan, peer)
  const usual = Math.floor(mesh / cells) % shards
  const place = peer - firstOf(plan, mesh)
  const crossedBefore = Math.floor(place * cross) // distributes these peers evenly over other shards
  const isCrossing = shards > 1 && Math.floor((place + 1) * cross) > crossedBefore
  const shard = isCrossing ? (usual + 1 + (crossedBefore % (shards - 1))) % shards : usual
  return cellOf(plan.spread, mesh) * shards + shard
}

/** A generator's peers, from `first` (inclusive) to `end` (exclusive). */
export interface Share {
  readonly first: number
  readonly end: number
}

export function sharesOf({ first, end }: Share, generators: number): Share[] {
  const cut = (i: number) => first + Math.floor((i * (end - first)) / generators)
  return Array.from({ length: generators }, (_, i) => ({ first: cut(i), end: cut(i + 1) }))
}

export const holds = (share: Share, peer: number): boolean => peer >= share.first && peer < share.end

export const expectedOf = (plan: Plan, share: Share): number =>
  countMessages(plan, (number) => holds(share, recipientOf(plan, number)))

export const ownOf = (plan: Plan, share: Share): number =>
  countMessages(plan, (number) => holds(share, senderOf(plan, number)))

/** Returns the share of messages between shards, from 0 to 1. */
export function crossShareOf(plan: Plan): number {
  if (plan.spread.shards === 1) return 0
  const shards = Array.from({ length: plan.peers }, (_, peer) => shardOf(plan, peer))
  const isCrossing = (number: number) => shards[senderOf(plan, number)] !== shards[recipientOf(plan, number)]
  return countMessages(plan, isCrossing) / plan.total
}

function countMessages({ total }: Plan, isCounted: (number: number) => boolean): number {
  let count = 0
  for (let number = 0; number < total; number++) if (isCounted(number)) count += 1
  return count
}

/** Returns the peers that each peer writes to. */
export function correspondents(plan: Plan): Set<number>[] {
  const lists = Array.from({ length: plan.peers }, () => new Set<number>())
  for (let number = 0; number < plan.total; number++) lists[senderOf(plan, number)]!.add(recipientOf(plan, number))
  return lists
}

/** The key exchange's first message number, to which the sender's is added. */
export const EXCHANGE = 0x8000_0000

const NUMBER_BYTES = 4
const PLACES = 65_536

/**
 * Creates bodies that a recipient can check without a copy: a four-byte number, and a slice of a random sequence at an
 * offset that depends on it.
 */
export class Bodies {
  readonly #text: Buffer
  readonly #seed: number
  readonly #length: number

  constructor({ payloadBytes, seed }: Plan) {
    const random = seededRandom(seed)
    this.#text = Buffer.from(Uint8Array.from({ length: PLACES + payloadBytes }, () => random.below(256)))
    this.#seed = seed
    this.#length = payloadBytes
  }

  make(number: number): Uint8Array {
    const body = new Uint8Array(this.#length)
    const start = this.#place(number)
    this.#text.copy(body, NUMBER_BYTES, start, start + this.#length - NUMBER_BYTES)
    body[0] = number >>> 24
    body[1] = number >>> 16
    body[2] = number >>> 8
    body[3] = number
    return body
  }

  /** Returns a body's number; NaN if it is too short. */
  numberOf(body: Uint8Array): number {
    if (body.length < NUMBER_BYTES) return Number.NaN
    return ((body[0]! << 24) | (body[1]! << 16) | (body[2]! << 8) | body[3]!) >>> 0
  }

  /** Returns whether every byte is intact. */
  isIntact(body: Uint8Array, number: number): boolean {
    if (body.length !== this.#length) return false
    const start = this.#place(number)
    return this.#text.compare(body, NUMBER_BYTES, this.#length, start, start + this.#length - NUMBER_BYTES) === 0
  }

  #place(number: number): number {
    return mixed(number, this.#seed ^ 0x5ea1) % PLACES
  }
}

/** A set of message numbers with one bit each: 300 kB for 2.4 million, instead of 100 MB for a `Set`. */
export class Bits {
  readonly #words: Uint32Array

  constructor(size: number) {
    this.#words = new Uint32Array(Math.ceil(size / 32))
  }

  has(number: number): boolean {
    return (this.#words[number >>> 5]! & (1 << (number & 31))) !== 0
  }

  add(number: number): void {
    this.#words[number >>> 5]! |= 1 << (number & 31)
  }

  delete(number: number): void {
    this.#words[number >>> 5]! &= ~(1 << (number & 31))
  }
}
