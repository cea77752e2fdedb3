/**
 * Seals messages of one process to a group (docs/adr/0025-sender-keys.md). Everything is in memory: a process that opens
 * the store begins a chain with a random key, so no key repeats, also in a restored store and in two processes on one
 * store. Synchronous. A function that throws changes nothing.
 */
import { assert, fromHex, type PeerKey, toHex } from '@sealpost/std'
import { type SealedBody, sealBodyWith } from '../envelope/envelope-memory.ts'
import { KEY_BYTES, NONCE_BYTES, type RatchetCrypto, stepChain, wipe } from '../ratchet/ratchet-crypto.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'
import { encodeDistribution, encodeTicket, type SenderKeyPlace, type SenderKeyScope } from './sender-key-ticket.ts'

/** A chain ends after this time. A thief of its key opens later messages until then. */
export const SENDER_KEY_MS_MAX = 600_000

export interface SenderCrypto extends Pick<RatchetCrypto, 'random'> {
  readonly sealBody: typeof sealBodyWith
}

export const sodiumSenderCrypto: SenderCrypto = {
  random: (length) => crypto.getRandomValues(new Uint8Array(length)),
  sealBody: sealBodyWith,
}

export interface SenderKeyMessage {
  readonly place: SenderKeyPlace
  /** The sealed body, with a ticket of its own key, which opens this message only. */
  readonly body: SealedBody
  /** The body of the envelope of each recipient. */
  readonly tickets: ReadonlyMap<PeerKey, Uint8Array>
  /** Recipients without a ratchet. They get the key of the message, and a thief of their box keys opens it. */
  readonly unratcheted: readonly PeerKey[]
}

/** Returns the ratcheted message with this text for a recipient, or null if there is no ratchet with that recipient. */
export type Distribute = (to: PeerKey, text: Uint8Array) => Uint8Array | null

interface SenderChain {
  readonly id: string
  readonly begunMs: number
  readonly key: Uint8Array
  readonly number: number
  /** The recipients that have got the key, each with its distribution until it has confirmed it. */
  readonly holders: Map<PeerKey, Uint8Array | null>
}

/**
 * @example
 * const keys = new SenderKeys({ meshId, audience: group, priority: 1 })
 * const message = keys.seal(text, { to: members, distribute: (to, key) => ratchetOf(to).seal(key, nowMs) }, nowMs)
 * // Store the envelopes and the changed ratchets in one batch. Then send the envelopes, and resend the same bytes.
 */
export class SenderKeys {
  readonly #scope: SenderKeyScope
  readonly #crypto: SenderCrypto
  #chain: SenderChain | null = null

  constructor(scope: SenderKeyScope, crypto: SenderCrypto = sodiumSenderCrypto) {
    this.#scope = scope
    this.#crypto = crypto
  }

  /** The state for tests and simulators, which play the thief. @internal */
  get chain(): SenderChain | null {
    return this.#chain
  }

  /** Seals a text. `distribute` is called for each recipient that does not have the chain yet. */
  seal(
    text: Uint8Array,
    { to, distribute }: { to: readonly PeerKey[]; distribute: Distribute },
    nowMs: number,
  ): SenderKeyMessage {
    const chain = this.#needsChain(to, nowMs) ? this.#newChain(nowMs) : this.#chain!
    const holders = new Map(chain.holders)
    const distribution = encodeDistribution(this.#scope, { chainId: chain.id, number: chain.number, key: chain.key })
    for (const peer of to) {
      const sealed = holders.has(peer) ? null : distribute(peer, distribution)
      if (sealed) holders.set(peer, sealed)
    }
    const { next, out: key } = stepChain(chain.key)
    const body = this.#crypto.sealBody(text, key, this.#crypto.random(NONCE_BYTES))
    if (this.#chain !== chain) this.#endChain()
    wipe(key, chain.key, distribution)
    this.#chain = { ...chain, key: next, number: chain.number + 1, holders }
    return messageOf({ chainId: chain.id, number: chain.number }, { body, to, holders })
  }

  /** Notes that a recipient has settled a message of this chain, so that its tickets need no distribution. */
  confirm(peer: PeerKey, chainId: string): void {
    if (this.#chain?.id === chainId && this.#chain.holders.has(peer)) this.#chain.holders.set(peer, null)
  }

  /** Begins another chain with the next message, because a recipient has refused a message of this one. */
  refused(chainId: string): void {
    if (this.#chain?.id === chainId) this.#endChain()
  }

  #needsChain(to: readonly PeerKey[], nowMs: number): boolean {
    if (!this.#chain || this.#chain.number >= CHAIN_MAX) return true
    const { begunMs, holders } = this.#chain
    if (nowMs < begunMs || nowMs - begunMs >= SENDER_KEY_MS_MAX) return true
    const recipients = new Set(to)
    for (const holder of holders.keys()) if (!recipients.has(holder)) return true
    return false
  }

  #newChain(nowMs: number): SenderChain {
    const [id, key] = [toHex(this.#crypto.random(KEY_BYTES)), this.#crypto.random(KEY_BYTES)]
    return { id, begunMs: nowMs, key, number: 0, holders: new Map() }
  }

  #endChain(): void {
    if (this.#chain) wipe(this.#chain.key)
    this.#chain = null
  }
}

function messageOf(
  place: SenderKeyPlace,
  { body, to, holders }: { body: SealedBody; to: readonly PeerKey[]; holders: SenderChain['holders'] },
): SenderKeyMessage {
  const bodyId = fromHex(body.bodyId)
  const plain = encodeTicket({ ...place, bodyId, distribution: null })
  const ticketOf = (peer: PeerKey) => {
    const distribution = holders.get(peer)
    if (distribution === undefined) return body.ticket
    return distribution ? encodeTicket({ ...place, bodyId, distribution }) : plain
  }
  const tickets = new Map(to.map((peer) => [peer, ticketOf(peer)]))
  assert(tickets.size === to.length, 'a recipient occurs once')
  return { place, body, tickets, unratcheted: to.filter((peer) => !holders.has(peer)) }
}
