/** Opens the messages of one ratchet session. Synchronous. A function that refuses changes nothing. */
import { concatBytes } from '../byte-fields.ts'
import { areEqual, macOf, type RatchetCrypto, stepBase, stepRoot, wipe } from './ratchet-crypto.ts'
import type { RatchetHeader, RatchetMessage } from './ratchet-header.ts'
import {
  dropOffer,
  FORKS_MAX,
  type OfferedKey,
  type RatchetSession,
  type RatchetSessionRefusal,
  type SessionOpening,
} from './ratchet-session.ts'
import {
  addGone,
  CHAIN_MAX,
  closeIfEmpty,
  deletedKey,
  endChain,
  forgetKey,
  isGone,
  limitChains,
  type ReceivingChain,
  tagOf,
  takeSteps,
  trimKeys,
  walk,
} from './receiving-chains.ts'

/** The seeds of forks that have not arrived, in all offered keys of a session. */
const SEEDS_MAX = 2_048

/** Opens a message of the session. Its key is retained until `settleInChains`, because the message may come again. */
export function openInSession(
  crypto: RatchetCrypto,
  state: RatchetSession,
  message: RatchetMessage,
  nowMs: number,
): SessionOpening {
  const { header, headerBytes, mac, rest } = message
  if (!areEqual(mac, macOf(state.headerKey, concatBytes([headerBytes, rest])))) return refuse('does_not_open')
  // From here on, the peer has written the message, so what does not fit shows that the states differ.
  const isOwnStateOld = header.ack > state.lastChain
  const result = openProven(crypto, state, message, nowMs)
  if (!result.ok) return isOwnStateOld && result.code !== 'settled' ? refuse('ratchet_reset') : result
  state.initiation = null
  return { ...result, isOwnStateOld }
}

type Opened =
  | { readonly ok: true; readonly text: Uint8Array }
  | { readonly ok: false; readonly code: RatchetSessionRefusal }

function openProven(crypto: RatchetCrypto, state: RatchetSession, message: RatchetMessage, nowMs: number): Opened {
  const { header } = message
  const known = state.receiving.get(header.chain)
  if (header.number >= CHAIN_MAX) return refuse('ratchet_reset')
  if (known) {
    if (!areEqual(known.id, header.key)) return refuse('ratchet_reset')
    return openInChain(crypto, state, known, message, nowMs)
  }
  const closed = state.closed.get(header.chain)
  if (closed) {
    const isSame = closed.tag === tagOf(header.key) && header.number < closed.length
    return refuse(isSame ? deletedKey(state, header) : 'ratchet_reset')
  }
  if (header.chain <= state.highest && !state.unseen.has(header.chain)) return refuse('ratchet_key_gone')
  return openNewChain(crypto, state, message, nowMs)
}

function openInChain(
  crypto: RatchetCrypto,
  state: RatchetSession,
  chain: ReceivingChain,
  message: RatchetMessage,
  nowMs: number,
): Opened {
  const { number } = message.header
  const known = chain.keys.get(number)
  if (!known && number < chain.next) return refuse(deletedKey(state, message.header))
  if (!known && !chain.key) return refuse(isGone(state, message.header) ? 'ratchet_key_gone' : 'ratchet_reset')
  const steps = known ? null : walk(chain.key!, chain.next, number + 1)
  const key = known?.key ?? steps!.keys.get(number)!
  const text = openWith(crypto, state, message, key)
  if (!text) return refuse('ratchet_reset')
  if (known) known.isOpened = true
  else takeSteps(chain, { ...steps!, opened: number }, nowMs)
  trimKeys(state, key)
  return { ok: true, text }
}

function openNewChain(crypto: RatchetCrypto, state: RatchetSession, message: RatchetMessage, nowMs: number): Opened {
  const { header } = message
  const offer = state.offers.get(header.parent)
  if (!offer) return refuse(header.parent > state.lastChain ? 'ratchet_reset' : 'ratchet_key_gone')
  if (header.chain - state.highest > FORKS_MAX || header.fork - offer.nextFork > FORKS_MAX)
    return refuse('ratchet_reset')
  const forks = seedOf(offer, header.fork)
  const secret = forks && crypto.sharedSecret(offer.secretKey, header.key)
  if (!secret) return refuse('ratchet_reset')
  const { next: root, out: chainKey } = stepRoot(forks.seed, secret)
  const steps = walk(chainKey, 0, header.number + 1)
  const key = steps.keys.get(header.number)!
  const text = openWith(crypto, state, message, key)
  wipe(secret, chainKey)
  if (!text) return refuse('ratchet_reset')
  takeFork(offer, header.fork, forks)
  trimSeeds(state)
  const chain: ReceivingChain = { id: header.key, key: chainKey, next: 0, keys: new Map(), touchedMs: nowMs }
  state.receiving.set(header.chain, chain)
  takeSteps(chain, { ...steps, opened: header.number }, nowMs)
  chainSeen(state, header, root, nowMs)
  trimKeys(state, key)
  return { ok: true, text }
}

function openWith(crypto: RatchetCrypto, state: RatchetSession, message: RatchetMessage, key: Uint8Array) {
  return crypto.open(message.sealed, key, message.nonce, concatBytes([state.binding, message.headerBytes]))
}

function chainSeen(state: RatchetSession, header: RatchetHeader, root: Uint8Array, nowMs: number): void {
  const { chain, previous } = header
  for (let number = state.highest + 1; number < chain; number++)
    state.unseen.set(number, { length: null, sinceMs: nowMs })
  const length = state.unseen.get(chain)?.length
  state.unseen.delete(chain)
  if (chain > state.highest) {
    state.highest = chain
    state.highestParent = header.parent
    if (state.parent) wipe(state.parent.base)
    state.parent = { chain, publicKey: header.key, base: root, nextFork: 0 }
  } else wipe(root)
  const before = state.unseen.get(chain - 1)
  if (before) before.length = previous
  else close(state, chain - 1, previous, nowMs)
  if (length !== undefined && length !== null) close(state, chain, length, nowMs)
  if (state.unseen.size > FORKS_MAX) forgetUnseen(state, state.unseen.keys().next().value!)
  limitChains(state)
  retireOffers(state)
}

/** Deletes the keys that the peer can't use any more: its chains use parents in ascending order. */
function retireOffers(state: RatchetSession): void {
  if (state.unseen.size > 0) return
  for (const number of [...state.offers.keys()]) if (number < state.highestParent) dropOffer(state, number)
}

/** Derives the remaining keys of a chain that has `length` messages, and deletes its chain key. */
function close(state: RatchetSession, number: number, length: number, nowMs: number): void {
  const chain = state.receiving.get(number)
  if (!chain?.key) return
  if (length > chain.next && length <= CHAIN_MAX) takeSteps(chain, walk(chain.key, chain.next, length), nowMs)
  wipe(chain.key)
  chain.key = null
  closeIfEmpty(state, number, chain)
}

interface ForkSeed {
  readonly seed: Uint8Array
  /** The bases and seeds that lead to the fork; null if its seed was known. */
  readonly walked: { readonly base: Uint8Array; readonly seeds: Map<number, Uint8Array> } | null
}

/** Returns the seed of a fork, or null if another chain has used it. */
function seedOf(offer: OfferedKey, fork: number): ForkSeed | null {
  const known = offer.seeds.get(fork)
  if (known) return { seed: known, walked: null }
  if (fork < offer.nextFork) return null
  const seeds = new Map<number, Uint8Array>()
  let { base } = offer
  for (let number = offer.nextFork; number <= fork; number++) {
    const { next, out } = stepBase(base)
    seeds.set(number, out)
    base = next
  }
  return { seed: seeds.get(fork)!, walked: { base, seeds } }
}

function takeFork(offer: OfferedKey, fork: number, { seed, walked }: ForkSeed): void {
  if (walked) {
    for (const [number, skipped] of walked.seeds) offer.seeds.set(number, skipped)
    wipe(offer.base)
    offer.base = walked.base
    offer.nextFork = fork + 1
  }
  offer.seeds.delete(fork)
  wipe(seed)
}

/** Limits what a peer that leaves gaps on purpose can make this side store. */
function trimSeeds({ offers }: RatchetSession): void {
  let count = 0
  for (const { seeds } of offers.values()) count += seeds.size
  for (const { seeds } of offers.values()) {
    for (const [fork, seed] of seeds) {
      if (count <= SEEDS_MAX) return
      wipe(seed)
      seeds.delete(fork)
      count -= 1
    }
  }
}

/** Deletes what has waited since before `beforeMs` for messages that have not arrived or were not settled. */
export function expireInSession(state: RatchetSession, beforeMs: number): void {
  for (const [number, chain] of [...state.receiving]) {
    if (chain.touchedMs >= beforeMs) continue
    for (const message of [...chain.keys.keys()]) forgetKey(state, number, chain, message)
    if (number !== state.highest) endChain(state, number, chain)
  }
  for (const [number, { sinceMs }] of [...state.unseen]) if (sinceMs < beforeMs) forgetUnseen(state, number)
  retireOffers(state)
}

function forgetUnseen(state: RatchetSession, number: number): void {
  state.unseen.delete(number)
  addGone(state, { chain: number, from: 0, to: CHAIN_MAX - 1 })
}

function refuse(code: RatchetSessionRefusal): { readonly ok: false; readonly code: RatchetSessionRefusal } {
  return { ok: false, code }
}
