/**
 * Who sends what to whom, and when. Every part of a run computes it from the same few numbers, so nothing of it is
 * passed around: messages are numbered, and a number is its sender, its recipient, its body and its due time.
 */
import { firstOf, meshOf, type Spread, shardOf } from './spread.ts'

export interface Plan {
  readonly peers: number
  /** Messages of all peers together. */
  readonly total: number
  /** Messages in a second, all peers together; null: each peer as fast as its window admits. */
  readonly rate: number | null
  readonly payloadBytes: number
  readonly seed: number
  /** The first half of the peers writes to the second half; otherwise everyone to everyone. */
  readonly isOneWay: boolean
  readonly spread: Spread
}

/** They are the first peers. */
export const sendersOf = ({ peers, isOneWay }: Plan): number => (isOneWay ? peers / 2 : peers)

/** Messages of one sender have ascending numbers. */
export const senderOf = (plan: Plan, number: number): number => number % sendersOf(plan)

/** Another peer of the sender's mesh, chosen by the seed. */
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
 * Milliseconds after the start. Messages come due on whole milliseconds, several at once above 1,000 a second, which is
 * what a timer can keep: with even spacing a part of each latency would be the timer's.
 */
export const dueMs = (rate: number, number: number): number => Math.floor((number * 1000) / rate)

/** The finalizer of MurmurHash3 (public domain): neighbouring numbers get unrelated values. */
export function mixed(number: number, seed: number): number {
  let h = (number ^ Math.imul(seed + 1, 0x9e3779b9)) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** Peers of one generator: from `first` up to, and without, `end`. */
export interface Share {
  readonly first: number
  readonly end: number
}

export function sharesOf({ first, end }: Share, generators: number): Share[] {
  const cut = (i: number) => first + Math.floor((i * (end - first)) / generators)
  return Array.from({ length: generators }, (_, i) => ({ first: cut(i), end: cut(i + 1) }))
}

export const holds = (share: Share, peer: number): boolean => peer >= share.first && peer < share.end

/** Messages that the share's own peers will receive. */
export function expectedOf(plan: Plan, share: Share): number {
  let count = 0
  for (let number = 0; number < plan.total; number++) if (holds(share, recipientOf(plan, number))) count += 1
  return count
}

/** Messages that the share's own peers will send. */
export function ownOf(plan: Plan, share: Share): number {
  let count = 0
  for (let number = 0; number < plan.total; number++) if (holds(share, senderOf(plan, number))) count += 1
  return count
}

/** For each peer, the peers it will write to. */
export function correspondents(plan: Plan): Set<number>[] {
  const lists = Array.from({ length: plan.peers }, () => new Set<number>())
  for (let number = 0; number < plan.total; number++) lists[senderOf(plan, number)]!.add(recipientOf(plan, number))
  return lists
}

/** The share of messages whose sender and recipient are on two shards: 0 to 1. */
export function crossShareOf(plan: Plan): number {
  if (plan.spread.shards === 1) return 0
  const shards = Array.from({ length: plan.peers }, (_, peer) => shardOf(plan, peer))
  let crossing = 0
  for (let number = 0; number < plan.total; number++)
    if (shards[senderOf(plan, number)] !== shards[recipientOf(plan, number)]) crossing += 1
  return crossing / plan.total
}
