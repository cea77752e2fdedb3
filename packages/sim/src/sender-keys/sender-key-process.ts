/**
 * Simulates a process of a group member. It follows the rules of docs/adr/0025-sender-keys.md for stores: a sealed message
 * and the ratchets that distribute its key are one batch, and so are a settlement, the chain without the key, and the
 * ratchet without the key of the distribution.
 */
import type { RatchetOpening, RatchetPlace } from '@sealpost/identity/ratchet'
import {
  ReceivedSenderKeys,
  type SenderCrypto,
  type SenderKeyScope,
  SenderKeys,
  sodiumSenderCrypto,
} from '@sealpost/identity/sender-keys'
import { assert, type GroupId, type PeerKey } from '@sealpost/std'
import { type Change, RatchetProcess, type SharedMail, type SimulatedOwner } from '../ratchet/ratchet-process.ts'

const GROUP = 'd0'.repeat(16) as GroupId
/** Reports with these codes show that a recipient lacks the key of a chain. */
const LOST_CODES = ['sender_key_unknown', 'sender_key_gone']

/** The ticket of an envelope and the body that all recipients share. */
export interface SharedBytes {
  readonly ticket: Uint8Array
  readonly body: Uint8Array
}

export class SenderKeyProcess extends RatchetProcess {
  readonly sending: SenderKeys
  readonly #mail: ReceivedMail
  readonly #owner: SimulatedOwner
  /** The chains of messages without a report. */
  readonly #sent = new Map<string, { peer: PeerKey; chainId: string }>()

  constructor(owner: SimulatedOwner) {
    const mail = new ReceivedMail(owner)
    super(owner, mail)
    this.#mail = mail
    this.#owner = owner
    const sealBody: SenderCrypto['sealBody'] = (text, key, nonce) => {
      owner.oracle.sealedWith(key)
      return sodiumSenderCrypto.sealBody(text, key, nonce)
    }
    this.sending = new SenderKeys(scopeOf(owner), { random: owner.crypto.random, sealBody })
  }

  get received(): readonly ReceivedSenderKeys[] {
    return this.#mail.keys
  }

  /** Sends a message to each of these peers. */
  sendToGroup(members: ReadonlySet<number>, what: string): void {
    const { lines, newId, nowMs } = this.#owner
    const to = [...lines.keys()].filter((line) => members.has(lines[line]!.to))
    for (const line of to) this.prepare(line)
    const lineOf = new Map(to.map((line) => [lines[line]!.peer.peerKey, line]))
    const distribute = (peer: PeerKey, key: Uint8Array) => this.seal(lineOf.get(peer)!, key)
    const text = `${newId()} ${what}`
    const recipients = { to: [...lineOf.keys()], distribute }
    const { place, body, tickets } = this.sending.seal(new TextEncoder().encode(text), recipients, nowMs())
    const mail = [...lineOf].map(([peer, line]) => {
      const envelopeId = newId()
      this.#sent.set(envelopeId, { peer, chainId: place.chainId })
      const bytes = joinShared({ ticket: tickets.get(peer)!, body: body.bytes })
      return { line, envelopeId, text, bytes, isShared: true }
    })
    this.post(mail)
  }

  /** Reads what the broker reports of the messages of this process. */
  readReports(): void {
    for (const { envelopeId, code } of this.#owner.broker.reports) {
      const sent = this.#sent.get(envelopeId)
      if (!sent) continue
      this.#sent.delete(envelopeId)
      if (code === 'settled') this.sending.confirm(sent.peer, sent.chainId)
      else if (LOST_CODES.includes(code)) this.sending.refused(sent.chainId)
    }
  }
}

class ReceivedMail implements SharedMail {
  /** One for each line. */
  readonly keys: readonly ReceivedSenderKeys[]
  readonly #owner: SimulatedOwner

  constructor(owner: SimulatedOwner) {
    this.#owner = owner
    this.keys = owner.lines.map((_, line) => receivedFrom(owner, line) ?? new ReceivedSenderKeys(scopeOf(owner)))
  }

  open(line: number, bytes: Uint8Array, openRatcheted: (bytes: Uint8Array) => RatchetOpening) {
    const opened = this.keys[line]!.open(splitShared(bytes), openRatcheted, this.#owner.nowMs())
    if (!opened.ok) return opened
    const { place } = opened
    assert(place, 'every member has ratchets')
    return { ...opened, settle: () => this.keys[line]!.settle(place) }
  }

  export(line: number): { changes: Change[]; settled: readonly RatchetPlace[] } {
    const { bytes, distributions } = this.keys[line]!.export()
    return { changes: [[recordKey(line), bytes]], settled: distributions }
  }

  expire(beforeMs: number): void {
    for (const keys of this.keys) keys.expire(beforeMs)
  }
}

const recordKey = (line: number) => `sender keys ${line}`

/** Returns what the store contains for a line. */
export function receivedFrom(owner: SimulatedOwner, line: number): ReceivedSenderKeys | null {
  const bytes = owner.records.get(recordKey(line))
  return bytes ? ReceivedSenderKeys.restore(bytes, scopeOf(owner)) : null
}

function scopeOf({ meshId }: SimulatedOwner): SenderKeyScope {
  return { meshId, audience: GROUP, priority: 0 }
}

function joinShared({ ticket, body }: SharedBytes): Uint8Array {
  return Uint8Array.of(ticket.length >> 8, ticket.length, ...ticket, ...body)
}

export function splitShared(bytes: Uint8Array): SharedBytes {
  const end = 2 + ((bytes[0]! << 8) | bytes[1]!)
  return { ticket: bytes.slice(2, end), body: bytes.slice(end) }
}
