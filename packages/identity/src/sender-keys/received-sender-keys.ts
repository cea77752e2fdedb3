/**
 * Opens the messages that one sender has sent to a group under its sender keys (docs/adr/0025-sender-keys.md). Mutable,
 * synchronous, and stored as bytes. A function that refuses changes nothing.
 */
import { assert, fromHex, toHex } from '@sealpost/std'
import { concatBytes, FieldReader, u16, u32 } from '../byte-fields.ts'
import type { RatchetOpening, RatchetPlace } from '../ratchet/ratchet.ts'
import { KEY_BYTES } from '../ratchet/ratchet-crypto.ts'
import { decodeEnded, decodeReceiving, encodeEnded, encodeReceiving, list, map } from '../ratchet/ratchet-record.ts'
import {
  addGone,
  deletedKey,
  endChain,
  forgetKey,
  limitChains,
  type ReceivingChain,
  type ReceivingChains,
  settleInChains,
  takeSteps,
  trimKeys,
  walk,
} from '../ratchet/receiving-chains.ts'
import {
  readDistribution,
  readTicket,
  type SenderKeyDistribution,
  type SenderKeyPlace,
  type SenderKeyScope,
  type SenderKeyTicket,
} from './sender-key-ticket.ts'

/**
 * `malformed`: not a ticket under a sender key. `settled`: the message was opened and settled before; settle it again. `sender_key_unknown`: this side does not have the chain. The sender begins another one
 * when it learns of that. `sender_key_gone`: the key of the message was deleted.
 */
export type SenderKeyRefusal = 'malformed' | 'settled' | 'sender_key_unknown' | 'sender_key_gone'

export type SenderKeyOpening =
  | {
      readonly ok: true
      /** The ticket with the key of the body, for `openBody`. */
      readonly ticket: Uint8Array
      readonly place: SenderKeyPlace
    }
  | { readonly ok: false; readonly code: SenderKeyRefusal }

/** What a store batch contains. */
export interface SenderKeyRecord {
  readonly bytes: Uint8Array
  /** Settle these in the ratchet with the sender, and store the ratchet in the same batch. */
  readonly distributions: readonly RatchetPlace[]
}

const FORMAT = 1

type OpenRatcheted = (bytes: Uint8Array) => RatchetOpening

/**
 * @example
 * const keys = new ReceivedSenderKeys({ meshId, audience: group, priority: 1 })
 * const opened = keys.open(ticket, (bytes) => ratchetOf(sender).open(bytes, parties, nowMs), nowMs)
 * // Later, in the batch of the settlement:
 * keys.settle(place)
 * const { bytes, distributions } = keys.export()
 * for (const place of distributions) ratchetOf(sender).settle(place)
 */
export class ReceivedSenderKeys {
  readonly #scope: SenderKeyScope
  readonly #state: ReceivingChains = { receiving: new Map(), closed: new Map(), gone: [], goneBelow: 0 }
  /** The local number of each chain, in the order in which this side learned of them. */
  readonly #numbers = new Map<string, number>()
  #lastNumber = 0
  #distributions: RatchetPlace[] = []

  constructor(scope: SenderKeyScope) {
    this.#scope = scope
  }

  /** The state for tests and simulators, which play the thief. @internal */
  get receiving(): ReadonlyMap<number, ReceivingChain> {
    return this.#state.receiving
  }

  /**
   * Opens a ticket: the body of an envelope that its sender is proven to have sealed. Never throws on input from the
   * network. The key remains until `settle`, so that the ticket opens again.
   */
  open(bytes: Uint8Array, openRatcheted: OpenRatcheted, nowMs: number): SenderKeyOpening {
    const ticket = readTicket(bytes)
    if (!ticket) return { ok: false, code: 'malformed' }
    const number = this.#numbers.get(ticket.chainId)
    if (number === undefined) return this.#openFirst(ticket, openRatcheted, nowMs)
    const chain = this.#state.receiving.get(number)
    return chain ? this.#openIn(number, chain, ticket, nowMs) : { ok: false, code: this.#deleted(number, ticket) }
  }

  /** Deletes the key of a message that is settled. Store `export()` in the batch of the settlement. */
  settle({ chainId, number }: SenderKeyPlace): void {
    const chain = this.#numbers.get(chainId)
    if (chain !== undefined) settleInChains(this.#state, { chain, number })
  }

  /** Deletes the keys of messages that have been missing, or unsettled, since before this time, and of old chains. */
  expire(beforeMs: number): void {
    for (const [number, chain] of [...this.#state.receiving]) {
      if (chain.touchedMs >= beforeMs) continue
      for (const message of [...chain.keys.keys()]) forgetKey(this.#state, number, chain, message)
      endChain(this.#state, number, chain)
    }
    this.#forgetNumbers()
  }

  #openFirst(ticket: SenderKeyTicket, openRatcheted: OpenRatcheted, nowMs: number): SenderKeyOpening {
    const opened = ticket.distribution && openRatcheted(ticket.distribution)
    const distribution = opened?.ok ? readDistribution(opened.text, this.#scope) : null
    if (!opened?.ok || !isOf(distribution, ticket)) return { ok: false, code: 'sender_key_unknown' }
    const chain = chainOf(distribution, nowMs)
    this.#lastNumber += 1
    this.#numbers.set(ticket.chainId, this.#lastNumber)
    this.#state.receiving.set(this.#lastNumber, chain)
    // Earlier messages are not for this side. Never claim that one was settled.
    if (chain.next > 0) addGone(this.#state, { chain: this.#lastNumber, from: 0, to: chain.next - 1 })
    this.#distributions.push(opened.place)
    limitChains(this.#state)
    this.#forgetNumbers()
    return this.#openIn(this.#lastNumber, chain, ticket, nowMs)
  }

  #openIn(chainNumber: number, chain: ReceivingChain, ticket: SenderKeyTicket, nowMs: number): SenderKeyOpening {
    const { chainId, number, bodyId } = ticket
    const known = chain.keys.get(number)
    if (!known && (number < chain.next || !chain.key)) return { ok: false, code: this.#deleted(chainNumber, ticket) }
    if (known) known.isOpened = true
    else takeSteps(chain, { ...walk(chain.key!, chain.next, number + 1), opened: number }, nowMs)
    const { key } = chain.keys.get(number)!
    trimKeys(this.#state, key)
    return { ok: true, ticket: concatBytes([key, bodyId]), place: { chainId, number } }
  }

  #deleted(chain: number, { number }: SenderKeyPlace): SenderKeyRefusal {
    return deletedKey(this.#state, { chain, number }) === 'settled' ? 'settled' : 'sender_key_gone'
  }

  #forgetNumbers(): void {
    const { receiving, closed } = this.#state
    for (const [id, number] of this.#numbers)
      if (!receiving.has(number) && !closed.has(number)) this.#numbers.delete(id)
  }

  /** Returns the state for the store, and the distributions that it makes obsolete. */
  export(): SenderKeyRecord {
    const distributions = this.#distributions
    this.#distributions = []
    const ids = new Map([...this.#numbers].map(([id, number]) => [number, fromHex(id)]))
    const head = [u16(FORMAT), u32(this.#lastNumber), ...list(ids, (id) => [id])]
    const bytes = concatBytes([...head, ...encodeReceiving(this.#state.receiving), ...encodeEnded(this.#state)])
    return { bytes, distributions }
  }

  /** Returns what a store contains. @throws AssertionFailed for bytes that `export` did not write */
  static restore(bytes: Uint8Array, scope: SenderKeyScope): ReceivedSenderKeys {
    const fields = new FieldReader(bytes)
    assert(fields.u16() === FORMAT, 'a record of sender keys has a known format')
    const keys = new ReceivedSenderKeys(scope)
    keys.#lastNumber = fields.u32()
    for (const [number, id] of map(fields, () => fields.take(KEY_BYTES))) keys.#numbers.set(toHex(id), number)
    for (const [number, chain] of decodeReceiving(fields)) keys.#state.receiving.set(number, chain)
    Object.assign(keys.#state, decodeEnded(fields))
    assert(fields.isAtEnd, 'a record of sender keys is complete')
    return keys
  }
}

function isOf(
  distribution: SenderKeyDistribution | null,
  ticket: SenderKeyPlace,
): distribution is SenderKeyDistribution {
  return distribution !== null && distribution.chainId === ticket.chainId && distribution.number <= ticket.number
}

function chainOf({ chainId, number, key }: SenderKeyDistribution, nowMs: number): ReceivingChain {
  return { id: fromHex(chainId), key, next: number, keys: new Map(), touchedMs: nowMs }
}
