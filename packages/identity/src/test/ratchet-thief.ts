/**
 * Plays a thief who has copied everything of one peer: memory, store and keys. It also has every message that was ever
 * sent. It ignores the bookkeeping of a ratchet, and tries each secret with which a message key could be derived.
 */
import { concatBytes } from '../byte-fields.ts'
import type { Correspondent } from '../envelope/envelope.ts'
import type { Identity } from '../keys/keys.ts'
import { accept, type RatchetScope } from '../ratchet/agreement.ts'
import { Prekeys } from '../ratchet/prekeys.ts'
import type { Ratchet } from '../ratchet/ratchet.ts'
import { type RatchetCrypto, stepBase, stepChain, stepRoot } from '../ratchet/ratchet-crypto.ts'
import { type RatchetMessage, readMessage } from '../ratchet/ratchet-header.ts'
import { type OfferedKey, type RatchetSession, sessionOfResponder } from '../ratchet/ratchet-session.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'

export interface Loot {
  readonly own: Identity
  readonly peer: Correspondent
  readonly scope: RatchetScope
  readonly ratchet: Ratchet
  readonly prekeys: Prekeys
  readonly crypto: RatchetCrypto
}

export class RatchetThief {
  readonly #own: Identity
  readonly #peer: Correspondent
  readonly #scope: RatchetScope
  readonly #sessions: ReadonlyMap<string, RatchetSession>
  readonly #prekeys: Prekeys
  readonly #crypto: RatchetCrypto

  /** Copies the loot, which its owner continues to use. */
  constructor({ own, peer, scope, ratchet, prekeys, crypto }: Loot) {
    this.#crypto = crypto
    this.#own = own
    this.#peer = peer
    this.#scope = scope
    this.#sessions = structuredClone(ratchet.sessions)
    // A thief does not care whether a prekey was used before.
    this.#prekeys = Object.assign(Prekeys.restore(prekeys.export()), { isTaken: () => false })
  }

  /** Returns the text of a message to or from the victim, or null if no stolen secret leads to its key. */
  read(bytes: Uint8Array): Uint8Array | null {
    const message = readMessage(bytes)!
    const known = this.#sessions.get(message.header.sessionId)
    const again = message.initiation && this.#agreeAgain(message.initiation)
    for (const state of [known, again]) {
      for (const key of state ? keysFor(this.#crypto, state, message) : []) {
        const data = concatBytes([state!.binding, message.headerBytes])
        const text = this.#crypto.open(message.sealed, key, message.nonce, data)
        if (text) return text
      }
    }
    return null
  }

  #agreeAgain(initiation: Uint8Array): RatchetSession | null {
    const parties = { own: this.#own, ownBoxes: [this.#own.box], peers: [this.#peer], scope: this.#scope }
    const result = accept(this.#crypto, parties, this.#prekeys, initiation)
    return result.ok ? sessionOfResponder(result.agreement) : null
  }
}

/** Yields each message key that the state leads to, in both directions. */
function* keysFor(crypto: RatchetCrypto, state: RatchetSession, { header }: RatchetMessage): Generator<Uint8Array> {
  const { chain, number, parent, fork, key: publicKey } = header
  const receiving = state.receiving.get(chain)
  const retained = receiving?.keys.get(number)
  if (retained) yield retained.key
  if (receiving?.key && number >= receiving.next) yield keyAt(receiving.key, number - receiving.next)
  if (state.sending && chain === state.lastChain && number >= state.lastLength)
    yield keyAt(state.sending.key, number - state.lastLength)
  const offer = state.offers.get(parent)
  if (offer) yield* keysOfStep(crypto, offer, fork, { number, secretKey: offer.secretKey, publicKey })
  const own = state.offers.get(chain)
  if (own && state.parent?.chain === parent) {
    const target = { ...state.parent, seeds: new Map<number, Uint8Array>() }
    yield* keysOfStep(crypto, target, fork, { number, secretKey: own.secretKey, publicKey: state.parent.publicKey })
  }
}

type Forks = Pick<OfferedKey, 'base' | 'nextFork' | 'seeds'>

function* keysOfStep(
  crypto: RatchetCrypto,
  { base, nextFork, seeds }: Forks,
  fork: number,
  step: { number: number; secretKey: Uint8Array; publicKey: Uint8Array },
): Generator<Uint8Array> {
  let seed = seeds.get(fork)
  let next = base
  for (let at = nextFork; at <= fork && at - nextFork <= CHAIN_MAX; at++) {
    const halves = stepBase(next)
    next = halves.next
    seed = halves.out
  }
  const secret = seed && crypto.sharedSecret(step.secretKey, step.publicKey)
  if (secret) yield keyAt(stepRoot(seed!, secret).out, step.number)
}

function keyAt(chainKey: Uint8Array, steps: number): Uint8Array {
  let { next, out } = stepChain(chainKey)
  for (let at = 0; at < Math.min(steps, CHAIN_MAX); at++) ({ next, out } = stepChain(next))
  return out
}
