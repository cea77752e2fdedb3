/**
 * Seals and opens the messages of one ratchet session: a Double Ratchet
 * (https://signal.org/docs/specifications/doubleratchet/) whose sender may begin chains without a reply. The state is
 * plain data, and every function is synchronous. A function that refuses changes nothing.
 */
import { concatBytes, readU32 } from '../byte-fields.ts'
import { hash256 } from '../sodium.ts'
import type { AcceptedAgreement, Agreement, InitiatedAgreement } from './agreement.ts'
import type { SpentPrekey } from './prekeys.ts'
import { areEqual, macOf, newKeyPair, type RatchetCrypto, stepBase, stepChain, stepRoot } from './ratchet-crypto.ts'
import { encodeHeader, type RatchetHeader, type RatchetMessage } from './ratchet-header.ts'

/** A chain ends after this many messages, which limits what one message can skip. */
export const CHAIN_MAX = 1_024
/** One message can skip this many chains, and this many forks of one parent. */
export const FORKS_MAX = 1_024
/** The skipped and retained keys of a session. The oldest skipped ones are deleted first. */
export const KEYS_MAX = 2_048
/** The seeds of forks that have not arrived, in all offered keys of a session. */
const SEEDS_MAX = 2_048
const OFFERS_MAX = 256
const RECEIVING_MAX = 64
const CLOSED_MAX = 256
const GONE_MAX = 512
/** The minimum time between two steps of a sender that talks with its peer. */
export const STEP_MS = 1_000

/** A key of this side, which the peer may use as a parent. */
export interface OfferedKey {
  readonly secretKey: Uint8Array
  base: Uint8Array
  nextFork: number
  /** The seeds of forks whose messages have not arrived. */
  readonly seeds: Map<number, Uint8Array>
}

/** The newest key of the peer. */
export interface ParentKey {
  readonly chain: number
  readonly publicKey: Uint8Array
  base: Uint8Array
  nextFork: number
}

export interface ReceivingChain {
  readonly publicKey: Uint8Array
  /** Null once the length of the chain is known and all its keys were derived. */
  key: Uint8Array | null
  next: number
  /** The keys of messages that have not arrived (`isOpened` false), or are not settled. */
  readonly keys: Map<number, { readonly key: Uint8Array; isOpened: boolean }>
  touchedMs: number
}

interface SendingChain {
  readonly publicKey: Uint8Array
  readonly parent: number
  readonly fork: number
  readonly previous: number
  readonly begunMs: number
  key: Uint8Array
}

export interface RatchetSession {
  readonly sessionId: string
  readonly atMs: number
  readonly isInitiator: boolean
  readonly binding: Uint8Array
  readonly headerKey: Uint8Array
  /** Sent with every message until the peer has replied. */
  initiation: Uint8Array | null
  /** Null once the session is stored. */
  spent: SpentPrekey | null
  /** The number of the newest chain of this side, and its length. */
  lastChain: number
  lastLength: number
  /** Never stored, so that a store that is opened begins a chain. */
  sending: SendingChain | null
  parent: ParentKey | null
  readonly offers: Map<number, OfferedKey>
  /** The newest chain of the peer, and its parent. */
  highest: number
  highestParent: number
  readonly receiving: Map<number, ReceivingChain>
  /** Chains below `highest` of which nothing has arrived, with their lengths if known. */
  readonly unseen: Map<number, { length: number | null; readonly sinceMs: number }>
  /** Chains without keys, with their lengths and the first 4 bytes of the hash of their public keys. */
  readonly closed: Map<number, { readonly tag: number; readonly length: number }>
  /** Messages whose keys were deleted before they arrived or were settled. */
  gone: readonly GoneRange[]
  /** Ranges up to this chain were dropped from `gone`. */
  goneBelow: number
  /** Whether the peer's reset was reported. */
  isResetHeard: boolean
  /** `doubtful`: the peer may have lost it. `lost`: this side has reset since. Neither seals, and both still open. */
  standing: 'usable' | 'doubtful' | 'lost'
}

export interface GoneRange {
  readonly chain: number
  readonly from: number
  readonly to: number
}

/**
 * `does_not_open`: the message was changed, or its sender does not have the session. `settled`: the message was opened
 * and settled before; settle it again. `ratchet_key_gone`: its key was deleted. `ratchet_reset`: one side was restored
 * from an older store, or two processes used one store.
 */
export type RatchetSessionRefusal = 'does_not_open' | 'settled' | 'ratchet_key_gone' | 'ratchet_reset'

export type SessionOpening =
  | { readonly ok: true; readonly text: Uint8Array; readonly isOwnStateOld: boolean }
  | { readonly ok: false; readonly code: RatchetSessionRefusal }

export function sessionOfInitiator({ parentKey, ...agreement }: InitiatedAgreement): RatchetSession {
  const state = sessionOf(agreement, true)
  state.parent = { chain: 0, publicKey: parentKey, base: agreement.root, nextFork: 0 }
  return state
}

export function sessionOfResponder({ parent, ...agreement }: AcceptedAgreement): RatchetSession {
  const state = sessionOf(agreement, false)
  const secretKey = parent.secretKey.slice()
  state.offers.set(0, { secretKey, base: agreement.root, nextFork: 0, seeds: new Map() })
  return state
}

function sessionOf(agreement: Agreement, isInitiator: boolean): RatchetSession {
  const { sessionId, atMs, binding, headerKey } = agreement
  return {
    ...{ sessionId, atMs, isInitiator, binding, headerKey },
    initiation: isInitiator ? agreement.initiation : null,
    spent: isInitiator ? null : agreement.spent,
    ...{ lastChain: 0, lastLength: 0, sending: null, parent: null, offers: new Map() },
    ...{ highest: 0, highestParent: 0, receiving: new Map(), unseen: new Map(), closed: new Map() },
    ...{ gone: [], goneBelow: 0, isResetHeard: false, standing: 'usable' },
  }
}

/** Seals a text. Never returns the same bytes twice, so store the bytes with the state and resend those. */
export function sealInSession(
  crypto: RatchetCrypto,
  state: RatchetSession,
  text: Uint8Array,
  { nowMs, isReset }: { nowMs: number; isReset: boolean },
): Uint8Array | null {
  if (needsChain(state, nowMs) && !beginChain(crypto, state, nowMs)) return null
  const sending = state.sending!
  const { publicKey: key, parent, fork, previous } = sending
  const position = { chain: state.lastChain, number: state.lastLength, previous, ack: state.highest, isReset }
  const header = encodeHeader({ sessionId: state.sessionId, key, parent, fork, ...position }, state.initiation !== null)
  const { next, out: messageKey } = stepChain(sending.key)
  sending.key.fill(0)
  sending.key = next
  state.lastLength += 1
  const nonce = crypto.random(24)
  const sealed = crypto.seal(text, messageKey, nonce, concatBytes([state.binding, header]))
  messageKey.fill(0)
  const rest = concatBytes([state.initiation ?? new Uint8Array(0), nonce, sealed])
  return concatBytes([header, macOf(state.headerKey, concatBytes([header, rest])), rest])
}

function needsChain({ sending, parent, lastLength }: RatchetSession, nowMs: number): boolean {
  if (!sending || lastLength >= CHAIN_MAX) return true
  const isPaused = nowMs >= sending.begunMs && nowMs - sending.begunMs < STEP_MS
  return parent!.chain !== sending.parent && !isPaused
}

function beginChain(crypto: RatchetCrypto, state: RatchetSession, nowMs: number): boolean {
  const parent = state.parent!
  const keys = newKeyPair(crypto)
  const secret = crypto.sharedSecret(keys.secretKey, parent.publicKey)
  if (!secret) return false
  const { next: base, out: seed } = stepBase(parent.base)
  const { next: root, out: key } = stepRoot(seed, secret)
  wipe(parent.base, seed, secret)
  state.sending?.key.fill(0)
  const place = { parent: parent.chain, fork: parent.nextFork, previous: state.lastLength }
  state.sending = { publicKey: keys.publicKey, ...place, begunMs: nowMs, key }
  parent.base = base
  parent.nextFork += 1
  state.lastChain += 1
  state.lastLength = 0
  state.offers.set(state.lastChain, { secretKey: keys.secretKey, base: root, nextFork: 0, seeds: new Map() })
  if (state.offers.size > OFFERS_MAX) dropOffer(state, state.offers.keys().next().value!)
  return true
}

/** Opens a message of the session. Its key is retained until `settleInSession`, because the message may come again. */
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
    if (!areEqual(known.publicKey, header.key)) return refuse('ratchet_reset')
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
  const text = openWith(crypto, state, message, known?.key ?? steps!.keys.get(number)!)
  if (!text) return refuse('ratchet_reset')
  if (steps) takeSteps(state, chain, { ...steps, opened: number }, nowMs)
  else known!.isOpened = true
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
  const text = openWith(crypto, state, message, steps.keys.get(header.number)!)
  wipe(secret, chainKey)
  if (!text) return refuse('ratchet_reset')
  takeFork(offer, header.fork, forks)
  trimSeeds(state)
  const chain: ReceivingChain = { publicKey: header.key, key: chainKey, next: 0, keys: new Map(), touchedMs: nowMs }
  state.receiving.set(header.chain, chain)
  takeSteps(state, chain, { ...steps, opened: header.number }, nowMs)
  chainSeen(state, header, root, nowMs)
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
  if (liveCount(state) > RECEIVING_MAX) endOldest(state)
  retireOffers(state)
  trimKeys(state)
}

/** Deletes the keys that the peer can't use any more: its chains use parents in ascending order. */
function retireOffers(state: RatchetSession): void {
  if (state.unseen.size > 0) return
  for (const number of [...state.offers.keys()]) if (number < state.highestParent) dropOffer(state, number)
}

function dropOffer(state: RatchetSession, number: number): void {
  const offer = state.offers.get(number)!
  wipe(offer.secretKey, offer.base, ...offer.seeds.values())
  state.offers.delete(number)
}

/** Derives the remaining keys of a chain that has `length` messages, and deletes its chain key. */
function close(state: RatchetSession, number: number, length: number, nowMs: number): void {
  const chain = state.receiving.get(number)
  if (!chain?.key) return
  if (length > chain.next && length <= CHAIN_MAX) takeSteps(state, chain, walk(chain.key, chain.next, length), nowMs)
  wipe(chain.key)
  chain.key = null
  closeIfEmpty(state, number, chain)
}

function closeIfEmpty(state: RatchetSession, number: number, chain: ReceivingChain): void {
  if (chain.key || chain.keys.size > 0) return
  state.receiving.delete(number)
  state.closed.set(number, { tag: tagOf(chain.publicKey), length: chain.next })
  if (state.closed.size > CLOSED_MAX) state.closed.delete(Math.min(...state.closed.keys()))
}

interface Steps {
  /** The number of the message that was opened with one of the keys. */
  readonly opened?: number
  readonly keys: Map<number, Uint8Array>
  readonly next: Uint8Array
  readonly nextNumber: number
}

/** Derives the message keys from number `from` to before `to`. Does not change the chain key. */
function walk(chainKey: Uint8Array, from: number, to: number): Steps {
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

function takeSteps(state: RatchetSession, chain: ReceivingChain, steps: Steps, nowMs: number): void {
  for (const [number, key] of steps.keys) chain.keys.set(number, { key, isOpened: number === steps.opened })
  if (chain.key && chain.key !== steps.next) wipe(chain.key)
  chain.key = steps.next
  chain.next = steps.nextNumber
  chain.touchedMs = nowMs
  if (steps.keys.size > 1) trimKeys(state)
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

/** Deletes the key of a message that was settled. Returns false if there is none. */
export function settleInSession(state: RatchetSession, { chain: number, number: message }: Position): boolean {
  const chain = state.receiving.get(number)
  const known = chain?.keys.get(message)
  if (!chain || !known) return false
  wipe(known.key)
  chain.keys.delete(message)
  closeIfEmpty(state, number, chain)
  return true
}

export type Position = Pick<RatchetHeader, 'chain' | 'number'>

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

function trimKeys(state: RatchetSession): void {
  let count = 0
  for (const { keys } of state.receiving.values()) count += keys.size
  if (count <= KEYS_MAX) return
  for (const [number, chain] of [...state.receiving].sort(([a], [b]) => a - b)) {
    for (const [message, { isOpened }] of [...chain.keys]) {
      if (isOpened) continue
      forgetKey(state, number, chain, message)
      count -= 1
      if (count <= KEYS_MAX) return
    }
  }
}

function forgetKey(state: RatchetSession, number: number, chain: ReceivingChain, message: number): void {
  wipe(chain.keys.get(message)!.key)
  chain.keys.delete(message)
  addGone(state, { chain: number, from: message, to: message })
  closeIfEmpty(state, number, chain)
}

function forgetUnseen(state: RatchetSession, number: number): void {
  state.unseen.delete(number)
  addGone(state, { chain: number, from: 0, to: CHAIN_MAX - 1 })
}

function liveCount({ receiving }: RatchetSession): number {
  let count = 0
  for (const { key } of receiving.values()) if (key) count += 1
  return count
}

function endOldest(state: RatchetSession): void {
  const live = [...state.receiving].filter(([, { key }]) => key).map(([number]) => number)
  endChain(state, Math.min(...live), state.receiving.get(Math.min(...live))!)
}

/** Gives up the messages of a chain that have not arrived and have no keys yet. */
function endChain(state: RatchetSession, number: number, chain: ReceivingChain): void {
  if (!chain.key) return
  wipe(chain.key)
  chain.key = null
  addGone(state, { chain: number, from: chain.next, to: CHAIN_MAX - 1 })
  closeIfEmpty(state, number, chain)
}

function addGone(state: RatchetSession, range: GoneRange): void {
  const last = state.gone.at(-1)
  const follows = last?.chain === range.chain && last.to + 1 === range.from
  const ranges = follows ? [...state.gone.slice(0, -1), { ...last, to: range.to }] : [...state.gone, range]
  state.goneBelow = Math.max(state.goneBelow, ...ranges.slice(0, -GONE_MAX).map(({ chain }) => chain))
  state.gone = ranges.slice(-GONE_MAX)
}

/** Returns why a key that was derived is not there. */
function deletedKey(state: RatchetSession, position: Position): RatchetSessionRefusal {
  return isGone(state, position) ? 'ratchet_key_gone' : 'settled'
}

function isGone({ gone, goneBelow }: RatchetSession, { chain: number, number: message }: Position): boolean {
  if (number <= goneBelow) return true
  return gone.some(({ chain, from, to }) => chain === number && from <= message && message <= to)
}

function tagOf(publicKey: Uint8Array): number {
  return readU32(hash256(publicKey), 0)
}

function refuse(code: RatchetSessionRefusal): { readonly ok: false; readonly code: RatchetSessionRefusal } {
  return { ok: false, code }
}

function wipe(...secrets: readonly Uint8Array[]): void {
  for (const secret of secrets) secret.fill(0)
}
