/**
 * Seals the messages of one ratchet session: a Double Ratchet (https://signal.org/docs/specifications/doubleratchet/)
 * whose sender may begin chains without a reply. Synchronous.
 */
import { concatBytes } from '../byte-fields.ts'
import { macOf, newKeyPair, type RatchetCrypto, stepBase, stepChain, stepRoot, wipe } from './ratchet-crypto.ts'
import { encodeHeader } from './ratchet-header.ts'
import { dropOffer, type RatchetSession } from './ratchet-session.ts'
import { CHAIN_MAX } from './receiving-chains.ts'

const OFFERS_MAX = 256
/** The minimum time between two steps of a sender that talks with its peer. */
const STEP_MS = 1_000

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
