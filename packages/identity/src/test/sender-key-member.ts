/** Provides tests with members of a group, each with its ratchets, its sender keys and a store. */
import type { GroupId, PeerKey } from '@sealpost/std'
import { openBody } from '../index.ts'
import { Prekeys, Ratchet, type RatchetOpening, sodiumRatchetCrypto } from '../ratchet/index.ts'
import { ReceivedSenderKeys, type SenderKeyMessage, type SenderKeyPlace, SenderKeys } from '../sender-keys/index.ts'
import { bytes, correspondent, MESH, peerNumber, text } from './fixtures.ts'
import { RatchetThief } from './ratchet-thief.ts'
import { SenderKeyThief } from './sender-key-thief.ts'

export const GROUP = 'd0'.repeat(16) as GroupId
const RATCHET_SCOPE = { meshId: MESH, priority: 1 }
export const SENDER_SCOPE = { ...RATCHET_SCOPE, audience: GROUP }
const DAY_MS = 86_400_000
const crypto = sodiumRatchetCrypto

export interface SentMessage extends SenderKeyMessage {
  readonly from: PeerKey
  readonly tickets: ReadonlyMap<PeerKey, Uint8Array>
}

export class SenderKeyMember {
  readonly own
  readonly statement
  prekeys = new Prekeys()
  ratchets = new Map<PeerKey, Ratchet>()
  keys = new SenderKeys(SENDER_SCOPE)
  received = new Map<PeerKey, ReceivedSenderKeys>()

  constructor(no: number) {
    this.own = peerNumber(no)
    const terms = { identity: this.own, meshId: MESH, nowMs: 0, notAfterMs: 90 * DAY_MS, keepFormerMs: DAY_MS }
    this.statement = this.prekeys.rotate(crypto, { ...terms, hasKem: false })
  }

  get key(): PeerKey {
    return this.own.signing.publicKey
  }

  /** Sends to members. The recipients in `without` have no ratchets. */
  send(
    said: string,
    to: readonly SenderKeyMember[],
    { nowMs = 0, without = [] }: { nowMs?: number; without?: readonly SenderKeyMember[] } = {},
  ): SentMessage {
    const keys = to.map(({ key }) => key)
    const message = this.keys.seal(bytes(said), keys, nowMs)
    const ticketFor = (member: SenderKeyMember) =>
      message.ticketFor(member.key, (text) =>
        without.includes(member) ? null : this.ratchetTo(member, nowMs).seal(text, nowMs),
      )
    const tickets = new Map(to.map((member) => [member.key, ticketFor(member) ?? message.body.ticket]))
    return { ...message, from: this.key, tickets }
  }

  ratchetTo(other: SenderKeyMember, nowMs: number): Ratchet {
    const ratchet = this.#ratchetOf(other.key)
    if (ratchet.needsAgreement(nowMs)) {
      const [oneTime] = other.prekeys.addOneTime(crypto, 1)
      const parties = { own: this.own, peer: correspondent(other.own) }
      ratchet.agree(parties, { statement: other.statement, oneTime: oneTime! }, nowMs)
    }
    return ratchet
  }

  #ratchetOf(peer: PeerKey): Ratchet {
    const ratchet = this.ratchets.get(peer) ?? new Ratchet(RATCHET_SCOPE)
    this.ratchets.set(peer, ratchet)
    return ratchet
  }

  receivedFrom(peer: PeerKey): ReceivedSenderKeys {
    const received = this.received.get(peer) ?? new ReceivedSenderKeys(SENDER_SCOPE)
    this.received.set(peer, received)
    return received
  }

  open({ tickets, from }: SentMessage, nowMs = 0) {
    const openRatcheted = (message: Uint8Array): RatchetOpening => {
      const peers = PEERS.filter(({ peerKey }) => peerKey === from)
      const parties = { own: this.own, ownBoxes: [this.own.box], peers, prekeys: this.prekeys }
      return this.#ratchetOf(from).open(message, parties, nowMs)
    }
    return this.receivedFrom(from).open(tickets.get(this.key)!, openRatcheted, nowMs)
  }

  /** Opens and settles. Returns the text or the code. */
  read(message: SentMessage, nowMs = 0): string | null | undefined {
    const opened = this.open(message, nowMs)
    if (!opened.ok) return opened.code
    const body = text(openBody(message.body.bytes, opened.ticket))
    this.settle(message.from, opened.place)
    return body
  }

  settle(from: PeerKey, place: SenderKeyPlace): void {
    this.receivedFrom(from).settle(place)
    this.#export(from)
  }

  /** Returns the records of one peer, as a store batch contains them. */
  #export(peer: PeerKey) {
    const received = this.receivedFrom(peer).export()
    const ratchet = this.#ratchetOf(peer)
    for (const place of received.distributions) ratchet.settle(place)
    const { bytes: ratcheted, spent } = ratchet.export()
    this.prekeys.spend(spent)
    return { received: received.bytes, ratchet: ratcheted }
  }

  /** Returns the records of a store. */
  save() {
    const peers = new Map([...this.ratchets.keys()].map((peer) => [peer, this.#export(peer)]))
    return { peers, prekeys: this.prekeys.export() }
  }

  /** Starts again with the records of a store. */
  restart(stored: ReturnType<SenderKeyMember['save']>): void {
    this.prekeys = Prekeys.restore(stored.prekeys)
    const { peers } = stored
    this.ratchets = new Map([...peers].map(([peer, of]) => [peer, Ratchet.restore(of.ratchet, RATCHET_SCOPE)]))
    this.received = new Map(
      [...peers].map(([peer, of]) => [peer, ReceivedSenderKeys.restore(of.received, SENDER_SCOPE)]),
    )
    this.keys = new SenderKeys(SENDER_SCOPE)
  }

  robbed(): SenderKeyThief {
    const ratchets = [...this.ratchets].map(([peerKey, ratchet]) => {
      const peer = PEERS.find((known) => known.peerKey === peerKey)!
      return new RatchetThief({ own: this.own, peer, scope: RATCHET_SCOPE, ratchet, prekeys: this.prekeys, crypto })
    })
    return new SenderKeyThief({ sending: [this.keys], received: [...this.received.values()], ratchets })
  }
}

const PEERS = Array.from({ length: 8 }, (_, no) => correspondent(peerNumber(no)))

/** Returns members whose identities have the numbers from 1. */
export function senderKeyMembers(count: number): SenderKeyMember[] {
  return Array.from({ length: count }, (_, i) => new SenderKeyMember(i + 1))
}
