/**
 * Defines the plan of a run: who sends what to whom, when, and through which broker. Each program of a run computes it
 * from the same few numbers. The number of a message determines its sender, recipient, body and due time.
 */
import { seededRandom } from '@sealpost/std'

export interface Plan {
  readonly peers: number
  /** The number of messages that all peers send together. */
  readonly total: number
  /** Messages per second, for all peers together; null means as fast as each peer's window allows. */
  readonly rate: number | null
  readonly payloadBytes: number
  readonly seed: number
  /** Whether the first half of the peers writes to the second half. Otherwise, all peers write to all. */
  readonly isOneWay: boolean
  readonly spread: Spread
}

export interface Spread {
  /** The number of meshes. Peers write only to others in their mesh. All meshes have the same number of peers. */
  readonly meshes: number
  /** The number of Postgres servers. Each mesh is on one of them. */
  readonly cells: number
  readonly shards: number
  /** The share of a mesh's peers that connect to a different shard than the others, from 0 to 1. */
  readonly cross: number
}

export const ALONE: Spread = { meshes: 1, cells: 1, shards: 1, cross: 0 }

/** Returns a plan. By default, peers send messages of 200 bytes in one mesh on one broker. */
export const planOf = (differing: Pick<Plan, 'peers'> & Partial<Plan>): Plan => ({
  ...{ total: 0, rate: null, payloadBytes: 200, seed: 1, isOneWay: false, spread: ALONE },
  ...differing,
})

/**
 * The maximum number of pending calls per peer in a burst. The window allows far fewer; the other calls wait in the
 * SDK, as in a burst of an application. That wait is the difference between the two latency measures in the report. The
 * maximum limits the memory of long runs.
 */
export const CALLS_OPEN_MAX = 1000

/** The number of unacknowledged sends that the SDK allows a peer by default. */
export const SDK_WINDOW = 64

/** Returns the number of senders. They are the first peers. */
export const sendersOf = ({ peers, isOneWay }: Plan): number => (isOneWay ? peers / 2 : peers)

/** Returns the sender of a message. Messages from one sender have ascending numbers. */
export const senderOf = (plan: Plan, number: number): number => number % sendersOf(plan)

/** Returns another peer of the sender's mesh, chosen by the seed. */
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
 * Returns when a message is due, in ms after the start. Messages are due at whole milliseconds, because timers have no
 * finer resolution; above 1,000 per second, several are due at the same time. With even spacing, the delay of the timer
 * would be part of each latency.
 */
export const dueMs = (rate: number, number: number): number => Math.floor((number * 1000) / rate)

/** Applies the finalizer of MurmurHash3 (public domain), which maps consecutive numbers to unrelated values. */
function mixed(number: number, seed: number): number {
  let h = (number ^ Math.imul(seed + 1, 0x9e3779b9)) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

type Spreading = Pick<Plan, 'peers' | 'spread'>

/** Returns the number of the mesh's first peer. Peers of a mesh have consecutive numbers. */
export const firstOf = ({ peers, spread }: Spreading, mesh: number): number =>
  Math.floor((mesh * peers) / spread.meshes)

export const meshOf = ({ peers, spread }: Spreading, peer: number): number =>
  Math.floor(((peer + 1) * spread.meshes - 1) / peers)

/** Returns the cell of a mesh. Meshes alternate between the cells. */
export const cellOf = ({ cells }: Spread, mesh: number): number => mesh % cells

/** Returns the broker of a peer, as a number across all cells. Meshes alternate between the shards of their cell. */
export function shardOf(plan: Spreading, peer: number): number {
  const { cells, shards, cross } = plan.spread
  const mesh = meshOf(plan, peer)
  const usual = Math.floor(mesh / cells) % shards
  const place = peer - firstOf(plan, mesh)
  const crossedBefore = Math.floor(place * cross) // distributes these peers evenly over the other shards
  const isCrossing = shards > 1 && Math.floor((place + 1) * cross) > crossedBefore
  const shard = isCrossing ? (usual + 1 + (crossedBefore % (shards - 1))) % shards : usual
  return cellOf(plan.spread, mesh) * shards + shard
}

/** The peers of one generator: from `first` up to, but not including, `end`. */
export interface Share {
  readonly first: number
  readonly end: number
}

export function sharesOf({ first, end }: Share, generators: number): Share[] {
  const cut = (i: number) => first + Math.floor((i * (end - first)) / generators)
  return Array.from({ length: generators }, (_, i) => ({ first: cut(i), end: cut(i + 1) }))
}

export const holds = (share: Share, peer: number): boolean => peer >= share.first && peer < share.end

/** Returns the number of messages that the peers of the share receive. */
export const expectedOf = (plan: Plan, share: Share): number =>
  countMessages(plan, (number) => holds(share, recipientOf(plan, number)))

/** Returns the number of messages that the peers of the share send. */
export const ownOf = (plan: Plan, share: Share): number =>
  countMessages(plan, (number) => holds(share, senderOf(plan, number)))

/** Returns the share of messages whose sender and recipient are on different shards, from 0 to 1. */
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

/**
 * The first message number of the key exchange before the run. Each of its messages has the number `EXCHANGE` plus the
 * sender's number.
 */
export const EXCHANGE = 0x8000_0000

const NUMBER_BYTES = 4
const PLACES = 65_536

/**
 * Creates bodies that a recipient can check byte by byte without a copy. A body consists of a four-byte number and a
 * slice of a long random sequence; the offset of the slice depends on the number.
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

  /** Returns the number in a body, or NaN if the body is too short. */
  numberOf(body: Uint8Array): number {
    if (body.length < NUMBER_BYTES) return Number.NaN
    return ((body[0]! << 24) | (body[1]! << 16) | (body[2]! << 8) | body[3]!) >>> 0
  }

  /** Returns whether every byte is as `make` wrote it. */
  isIntact(body: Uint8Array, number: number): boolean {
    if (body.length !== this.#length) return false
    const start = this.#place(number)
    return this.#text.compare(body, NUMBER_BYTES, this.#length, start, start + this.#length - NUMBER_BYTES) === 0
  }

  #place(number: number): number {
    return mixed(number, this.#seed ^ 0x5ea1) % PLACES
  }
}

/**
 * A set of message numbers that takes one bit per number. For 2.4 million messages, it takes 300 kB; a `Set` would take
 * 100 MB.
 */
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
