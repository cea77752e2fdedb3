/**
 * Keeps the keys of messages that have not arrived or are not settled, in the chains of one sender, and records which keys
 * were deleted early. Plain data and synchronous.
 */
import { readU32 } from '../byte-fields.ts'
import { hash256 } from '../sodium.ts'
import { stepChain, wipe } from './ratchet-crypto.ts'

/** A chain ends after this many messages, which limits what one message can skip. */
export const CHAIN_MAX = 1_024
/** The number of skipped and retained keys. The oldest skipped ones are deleted first, and then the oldest retained ones. */
const KEYS_MAX = 2_048
/** The chains whose further keys can be derived. */
const RECEIVING_MAX = 64
const CLOSED_MAX = 256
const GONE_MAX = 512

export interface ReceivingChain {
  /** The sender's key of a ratchet chain, or the random id of a sender key: 32 bytes. */
  readonly id: Uint8Array
  /** Null once no further keys are derived. */
  key: Uint8Array | null
  next: number
  /** The keys of messages that have not arrived (`isOpened` false), or are not settled. */
  readonly keys: Map<number, { readonly key: Uint8Array; isOpened: boolean }>
  touchedMs: number
}

export interface ReceivingChains {
  readonly receiving: Map<number, ReceivingChain>
  /** Chains without keys, with their lengths and the first 4 bytes of the hash of their ids. */
  readonly closed: Map<number, { readonly tag: number; readonly length: number }>
  /** Messages whose keys were deleted before they arrived or were settled. */
  gone: readonly GoneRange[]
  /** Ranges up to this chain were dropped from `gone`. */
  goneBelow: number
}

export interface GoneRange {
  readonly chain: number
  readonly from: number
  readonly to: number
}

/** Names a message. */
export interface Position {
  readonly chain: number
  readonly number: number
}

interface Steps {
  /** The number of the message that was opened with one of the keys. */
  readonly opened?: number
  readonly keys: Map<number, Uint8Array>
  readonly next: Uint8Array
  readonly nextNumber: number
}

/** Derives the message keys from number `from` to before `to`. Does not change the chain key. */
export function walk(chainKey: Uint8Array, from: number, to: number): Steps {
  const keys = new Map<number, Uint8Array>()
  let key = chainKey
  for (let number = from; number < to; number++) {
    const { next, out } = stepChain(key)
    if (key !== chainKey) key.fill(0)
    keys.set(number, out)
    key = next
  }
  return { keys, next: key, nextNumber: to }
}

/** Adds the keys to the chain. Call `trimKeys` afterwards. */
export function takeSteps(chain: ReceivingChain, steps: Steps, nowMs: number): void {
  for (const [number, key] of steps.keys) chain.keys.set(number, { key, isOpened: number === steps.opened })
  if (chain.key && chain.key !== steps.next) wipe(chain.key)
  chain.key = steps.next
  chain.next = steps.nextNumber
  chain.touchedMs = nowMs
}

/** Deletes the key of a message that was settled. Returns false if there is none. */
export function settleInChains(state: ReceivingChains, { chain: number, number: message }: Position): boolean {
  const chain = state.receiving.get(number)
  const known = chain?.keys.get(message)
  if (!chain || !known) return false
  wipe(known.key)
  chain.keys.delete(message)
  closeIfEmpty(state, number, chain)
  return true
}

/** Deletes the keys beyond the limit, except `kept`, which opens the current message. */
export function trimKeys(state: ReceivingChains, kept: Uint8Array): void {
  let excess = -KEYS_MAX
  for (const { keys } of state.receiving.values()) excess += keys.size
  if (excess <= 0) return
  const chains = [...state.receiving].sort(([a], [b]) => a - b)
  for (const isOpened of [false, true])
    for (const [number, chain] of chains)
      for (const [message, known] of [...chain.keys]) {
        if (known.isOpened !== isOpened || known.key === kept) continue
        forgetKey(state, number, chain, message)
        excess -= 1
        if (excess <= 0) return
      }
}

export function forgetKey(state: ReceivingChains, number: number, chain: ReceivingChain, message: number): void {
  wipe(chain.keys.get(message)!.key)
  chain.keys.delete(message)
  addGone(state, { chain: number, from: message, to: message })
  closeIfEmpty(state, number, chain)
}

export function closeIfEmpty(state: ReceivingChains, number: number, chain: ReceivingChain): void {
  if (chain.key || chain.keys.size > 0) return
  state.receiving.delete(number)
  state.closed.set(number, { tag: tagOf(chain.id), length: chain.next })
  if (state.closed.size > CLOSED_MAX) state.closed.delete(Math.min(...state.closed.keys()))
}

/** Ends the oldest chains beyond the limit. */
export function limitChains(state: ReceivingChains): void {
  const live = [...state.receiving].filter(([, { key }]) => key).sort(([a], [b]) => a - b)
  for (const [number, chain] of live.slice(0, -RECEIVING_MAX)) endChain(state, number, chain)
}

/** Gives up the messages of a chain that have not arrived and have no keys yet. */
export function endChain(state: ReceivingChains, number: number, chain: ReceivingChain): void {
  if (!chain.key) return
  wipe(chain.key)
  chain.key = null
  addGone(state, { chain: number, from: chain.next, to: CHAIN_MAX - 1 })
  closeIfEmpty(state, number, chain)
}

export function addGone(state: ReceivingChains, range: GoneRange): void {
  const last = state.gone.at(-1)
  const follows = last?.chain === range.chain && last.to + 1 === range.from
  const ranges = follows ? [...state.gone.slice(0, -1), { ...last, to: range.to }] : [...state.gone, range]
  state.goneBelow = Math.max(state.goneBelow, ...ranges.slice(0, -GONE_MAX).map(({ chain }) => chain))
  state.gone = ranges.slice(-GONE_MAX)
}

/** Returns why a key that was derived is not there. */
export function deletedKey(state: ReceivingChains, position: Position): 'settled' | 'ratchet_key_gone' {
  return isGone(state, position) ? 'ratchet_key_gone' : 'settled'
}

export function isGone({ gone, goneBelow }: ReceivingChains, { chain: number, number: message }: Position): boolean {
  if (number <= goneBelow) return true
  return gone.some(({ chain, from, to }) => chain === number && from <= message && message <= to)
}

export function tagOf(id: Uint8Array): number {
  return readU32(hash256(id), 0)
}
