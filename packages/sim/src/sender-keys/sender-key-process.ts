/**
 * Simulates a process of a group member. It follows the rules of docs/adr/0025-sender-keys.md for stores: a sealed message
 * and the ratchets that distribute its key are one batch, and so are a settlement, the chain without the key, and the
 * ratchet without the key of the distribution.
 */
import { openBody } from '@sealpost/identity'
import type { RatchetOpening, RatchetPlace } from '@sealpost/identity/ratchet'
import {
  ReceivedSenderKeys,
  type SenderCrypto,
  type SenderKeyMessage,
  type SenderKeyScope,
  SenderKeys,
  sodiumSenderCrypto,
} from '@sealpost/identity/sender-keys'
import type { GroupId, PeerKey } from '@sealpost/std'
import {
  type Change,
  RatchetProcess,
  type SealedMail,
  type SharedMail,
  type SimulatedOwner,
} from '../ratchet/ratchet-process.ts'

const GROUP = 'd0'.repeat(16) as GroupId
/** Reports with these codes show that a recipient lacks the key of a chain. */
const LOST_CODES = ['sender_key_unknown', 'sender_key_gone']

/** The ticket of an envelope and the body that all recipients share. */
export interface SharedBytes {
  readonly ticket: Uint8Array
  readonly body: Uint8Array
}

/** A message to one recipient, before it has a ticket. */
interface Sent {
  readonly line: number
  readonly text: string
  readonly message: SenderKeyMessage
}

export class SenderKeyProcess extends RatchetProcess {
  readonly sending: SenderKeys
  readonly #mail: ReceivedMail
  readonly #owner: SimulatedOwner
  /** The chains of messages without a report. */
  readonly #sent = new Map<string, { peer: PeerKey; chainId: string }>()
  #late: readonly Sent[] = []

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

  get hasLate(): boolean {
    return this.#late.length > 0
  }

  get received(): readonly ReceivedSenderKeys[] {
    return this.#mail.keys
  }

  /** Sends a message to each of these peers. Some of them get it with the next one, like peers whose keys are requested. */
  sendToGroup(members: ReadonlySet<number>, what: string, lateShare: number): void {
    const { lines, newId, nowMs, random } = this.#owner
    this.sendLate()
    const to = [...lines.keys()].filter((line) => members.has(lines[line]!.to))
    for (const line of to) this.prepare(line)
    const text = `${newId()} ${what}`
    const peers = to.map((line) => lines[line]!.peer.peerKey)
    const message = this.sending.seal(new TextEncoder().encode(text), peers, nowMs())
    const isLate = to.map(() => random.chance(lateShare))
    this.#late = to.filter((_, i) => isLate[i]).map((line) => ({ line, text, message }))
    this.#post(to.filter((_, i) => !isLate[i]).map((line) => ({ line, text, message })))
  }

  sendLate(): void {
    const late = this.#late
    this.#late = []
    this.#post(late)
  }

  #post(sent: readonly Sent[]): void {
    const mail = sent.map((of) => this.#mailOf(of))
    if (mail.length > 0) this.post(mail)
  }

  #mailOf({ line, text, message }: Sent): SealedMail {
    const { lines, newId, oracle } = this.#owner
    const { peerKey: peer } = lines[line]!.peer
    const { place, body, ticketFor } = message
    const ticket = ticketFor(peer, (distribution) => this.seal(line, distribution))
    const envelopeId = newId()
    if (!ticket) {
      oracle.mark('a chain ended before a recipient got it')
      return { line, envelopeId, text, bytes: this.seal(line, new TextEncoder().encode(text)), isShared: false }
    }
    this.#sent.set(envelopeId, { peer, chainId: place.chainId })
    return { line, envelopeId, text, bytes: joinShared({ ticket, body: body.bytes }), isShared: true }
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
    const { ticket, body } = splitShared(bytes)
    const opened = this.keys[line]!.open(ticket, openRatcheted, this.#owner.nowMs())
    if (!opened.ok) return opened
    const text = openBody(body, opened.ticket)
    if (!text) return { ok: false, code: 'body_swapped' } as const
    return { ok: true, text, settle: () => this.keys[line]!.settle(opened.place) } as const
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
