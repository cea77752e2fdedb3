/** Defines the state of one ratchet session, which is plain data, and creates it from an agreement. */
import type { AcceptedAgreement, Agreement, InitiatedAgreement } from './agreement.ts'
import type { SpentPrekey } from './prekeys.ts'
import { wipe } from './ratchet-crypto.ts'
import type { ReceivingChains } from './receiving-chains.ts'

/** One message can skip this many chains, and this many forks of one parent. */
export const FORKS_MAX = 1_024

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

export interface SendingChain {
  readonly publicKey: Uint8Array
  readonly parent: number
  readonly fork: number
  readonly previous: number
  readonly begunMs: number
  key: Uint8Array
}

export interface RatchetSession extends ReceivingChains {
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
  /** Chains below `highest` of which nothing has arrived, with their lengths if known. */
  readonly unseen: Map<number, { length: number | null; readonly sinceMs: number }>
  /** Whether the peer's reset was reported. */
  isResetHeard: boolean
  /** `doubtful`: the peer may have lost it. `lost`: this side has reset since. Neither seals, and both still open. */
  standing: 'usable' | 'doubtful' | 'lost'
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

export function dropOffer(state: RatchetSession, number: number): void {
  const offer = state.offers.get(number)!
  wipe(offer.secretKey, offer.base, ...offer.seeds.values())
  state.offers.delete(number)
}
