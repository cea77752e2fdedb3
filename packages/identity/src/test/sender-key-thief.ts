/**
 * Plays a thief who has copied everything of one member of a group: memory, store and keys. It reads every ticket to or
 * from the victim, and tries each secret with which the key of a body could be derived.
 */
import { toHex } from '@sealpost/std'
import { concatBytes, readU32 } from '../byte-fields.ts'
import { openBody } from '../envelope/envelope-memory.ts'
import { stepChain } from '../ratchet/ratchet-crypto.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'
import type { ReceivedSenderKeys } from '../sender-keys/received-sender-keys.ts'
import { readTicket, type SenderKeyTicket } from '../sender-keys/sender-key-ticket.ts'
import type { SenderKeys } from '../sender-keys/sender-keys.ts'
import type { RatchetThief } from './ratchet-thief.ts'

interface StolenChain {
  readonly key: Uint8Array
  readonly number: number
}

export class SenderKeyThief {
  readonly #ratchets: readonly RatchetThief[]
  readonly #chains = new Map<string, StolenChain[]>()
  /** The keys of single messages, by chain and number. */
  readonly #keys = new Map<string, Uint8Array>()

  /** Copies the loot, which its owner continues to use. */
  constructor(loot: {
    sending: readonly SenderKeys[]
    received: readonly ReceivedSenderKeys[]
    ratchets: readonly RatchetThief[]
  }) {
    this.#ratchets = loot.ratchets
    for (const { chain } of loot.sending) {
      if (!chain) continue
      this.#take(chain.id, chain)
      for (const { text } of chain.owed.values()) this.#take(chain.id, chainIn(text))
    }
    for (const { receiving } of loot.received) {
      for (const { id, key, next, keys } of receiving.values()) {
        if (key) this.#take(toHex(id), { key, number: next })
        for (const [number, known] of keys) this.#keys.set(`${toHex(id)} ${number}`, known.key.slice())
      }
    }
  }

  /** Returns the text of a message, or null if no stolen secret leads to its key. */
  read(bytes: Uint8Array, body: Uint8Array): Uint8Array | null {
    const ticket = readTicket(bytes)
    if (!ticket) return openBody(body, bytes)
    for (const key of this.#keysFor(ticket)) {
      const text = openBody(body, concatBytes([key, ticket.bodyId]))
      if (text) return text
    }
    return null
  }

  *#keysFor({ chainId, number, distribution }: SenderKeyTicket): Generator<Uint8Array> {
    const single = this.#keys.get(`${chainId} ${number}`)
    if (single) yield single
    for (const chain of this.#chains.get(chainId) ?? []) if (number >= chain.number) yield keyAt(chain, number)
    for (const thief of distribution ? this.#ratchets : []) {
      const text = thief.read(distribution!)
      if (!text) continue
      const chain = chainIn(text)
      this.#take(chainId, chain)
      yield keyAt(chain, number)
    }
  }

  #take(chainId: string, { key, number }: StolenChain): void {
    const known = this.#chains.get(chainId) ?? []
    this.#chains.set(chainId, [...known, { key: key.slice(), number }])
  }
}

/** Reads the text of a distribution. */
function chainIn(text: Uint8Array): StolenChain {
  return { key: text.slice(-32), number: readU32(text, text.length - 36) }
}

function keyAt({ key, number: from }: StolenChain, number: number): Uint8Array {
  let { next, out } = stepChain(key)
  for (let at = from; at < Math.min(number, CHAIN_MAX); at++) ({ next, out } = stepChain(next))
  return out
}
