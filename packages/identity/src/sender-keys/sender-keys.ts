/**
 * Seals messages of one process to a group (docs/adr/0025-sender-keys.md). Everything is in memory: a process that opens
 * the store begins a chain with a random key, so no key repeats, also in a restored store and in two processes on one
 * store. Synchronous.
 */
import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { type SealedBody, sealBodyWith } from '../envelope/envelope-memory.ts'
import { KEY_BYTES, NONCE_BYTES, type RatchetCrypto, stepChain, wipe } from '../ratchet/ratchet-crypto.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'
import {
  encodeDistribution,
  encodeTicket,
  type SenderKeyPlace,
  type SenderKeyScope,
  type SenderKeyTicket,
} from './sender-key-ticket.ts'

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
  /**
   * Returns the body of the envelope of a recipient. `distribute` is called with a secret text if the recipient lacks the
   * chain, and returns the ratcheted message with this text, or null if there is no ratchet. Returns null if there is none, or if
   * the chain has ended before the recipient got it: send the ticket of `body` then, in a ratcheted envelope.
   */
  ticketFor(to: PeerKey, distribute: Distribute): Uint8Array | null
}

export type Distribute = (text: Uint8Array) => Uint8Array | null

interface SenderChain {
  readonly id: string
  readonly begunMs: number
  key: Uint8Array
  number: number
  /** The recipients that have got the key, from which number, and the distribution until they have confirmed it. */
  readonly holders: Map<PeerKey, { readonly number: number; readonly distribution: Uint8Array | null }>
  /** The recipients of messages whose tickets have not been requested, with the text of their distributions. */
  readonly owed: Map<PeerKey, { readonly number: number; readonly text: Uint8Array }>
}

/**
 * @example
 * const keys = new SenderKeys({ meshId, audience: group, priority: 1 })
 * const message = keys.seal(text, members, nowMs)
 * const ticket = message.ticketFor(member, (key) => ratchetOf(member).seal(key, nowMs))
 * // Store the envelope and the ratchet in one batch. Then send the envelope, and resend the same bytes.
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

  /** Seals a text for these recipients. If a recipient of this chain is not among them, another chain begins. */
  seal(text: Uint8Array, to: readonly PeerKey[], nowMs: number): SenderKeyMessage {
    const recipients = new Set(to)
    if (this.#needsChain(recipients, nowMs)) this.#beginChain(nowMs)
    const chain = this.#chain!
    this.#owe(chain, recipients)
    const { next, out: key } = stepChain(chain.key)
    const body = this.#crypto.sealBody(text, key, this.#crypto.random(NONCE_BYTES))
    wipe(key, chain.key)
    const { id: chainId, number } = chain
    chain.key = next
    chain.number += 1
    const message = { chainId, number, bodyId: fromHex(body.bodyId) }
    const ticketFor = (peer: PeerKey, distribute: Distribute) => ticketIn(chain, message, peer, distribute)
    return { place: { chainId, number }, body, ticketFor }
  }

  /** Notes that a recipient has settled a message of this chain, so that its tickets need no distribution. */
  confirm(peer: PeerKey, chainId: string): void {
    const holder = this.#chain?.id === chainId && this.#chain.holders.get(peer)
    if (holder) this.#chain!.holders.set(peer, { ...holder, distribution: null })
  }

  /** Begins another chain with the next message, because a recipient has refused a message of this one. */
  refused(chainId: string): void {
    if (this.#chain?.id === chainId) this.#endChain()
  }

  #needsChain(recipients: ReadonlySet<PeerKey>, nowMs: number): boolean {
    if (!this.#chain || this.#chain.number >= CHAIN_MAX) return true
    const { begunMs, holders } = this.#chain
    if (nowMs < begunMs || nowMs - begunMs >= SENDER_KEY_MS_MAX) return true
    for (const holder of holders.keys()) if (!recipients.has(holder)) return true
    return false
  }

  #beginChain(nowMs: number): void {
    this.#endChain()
    const [id, key] = [toHex(this.#crypto.random(KEY_BYTES)), this.#crypto.random(KEY_BYTES)]
    this.#chain = { id, begunMs: nowMs, key, number: 0, holders: new Map(), owed: new Map() }
  }

  #owe({ id: chainId, number, key, holders, owed }: SenderChain, recipients: ReadonlySet<PeerKey>): void {
    for (const peer of owed.keys()) if (!recipients.has(peer)) owed.delete(peer)
    const text = encodeDistribution(this.#scope, { chainId, number, key })
    for (const peer of recipients) if (!holders.has(peer) && !owed.has(peer)) owed.set(peer, { number, text })
  }

  #endChain(): void {
    if (!this.#chain) return
    const { key, owed } = this.#chain
    wipe(key, ...[...owed.values()].map(({ text }) => text))
    owed.clear()
    this.#chain = null
  }
}

function ticketIn(
  { holders, owed }: SenderChain,
  message: Omit<SenderKeyTicket, 'distribution'>,
  peer: PeerKey,
  distribute: Distribute,
): Uint8Array | null {
  const due = owed.get(peer)
  const distribution = due && due.number <= message.number ? distribute(due.text) : null
  if (distribution) {
    holders.set(peer, { number: due!.number, distribution })
    owed.delete(peer)
  }
  const holder = holders.get(peer)
  if (!holder || holder.number > message.number) return null
  return encodeTicket({ ...message, distribution: holder.distribution })
}
