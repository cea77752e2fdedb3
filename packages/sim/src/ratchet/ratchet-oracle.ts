/** Judges a simulated world of ratchets: nothing is lost silently, no key seals twice, and a thief opens nothing settled. */

import type { RatchetNews } from '@sealpost/identity/ratchet'
import { RatchetThief } from '@sealpost/identity/testing-ratchet'
import { toHex } from '@sealpost/std'
import type { RatchetBroker } from './ratchet-broker.ts'

interface Posted {
  readonly envelopeId: string
  readonly from: number
  readonly to: number
  readonly lane: number
  readonly bytes: Uint8Array
  readonly text: string
  /** When the sender stored it, as a count of events. */
  readonly no: number
  isOpened: boolean
  isSettled: boolean
  refusals: string[]
}

interface Theft {
  readonly victim: number
  /** The victim's sessions with their newest chains at that time, by lane. */
  readonly chains: readonly ReadonlyMap<string, number>[]
  readonly thieves: readonly RatchetThief[]
  readonly settled: readonly Posted[]
  readonly no: number
}

/** The length of the id at the start of each text. */
export const ID_LENGTH = 6

/** Codes that only a restored or copied store explains. */
const LOST_CODES = ['ratchet_reset', 'prekey_gone']

export class RatchetOracle {
  violation: string | null = null
  readonly marks = new Map<string, number>()
  readonly posted = new Map<string, Posted>()
  readonly #sealed = new Set<string>()
  readonly #broker: RatchetBroker
  /** The peers whose store was restored, copied or lost. */
  readonly disturbed = new Set<number>()
  /** Whether keys of messages that did not arrive were deleted for their age. */
  isAged = false
  /** Peers that detected a reset in a lane, of which the other peer has not learned yet. */
  readonly #owedResets = new Set<string>()
  /** Peers with two processes on one store, which overwrite what the other one has learned. */
  readonly #twins = new Set<number>()
  readonly #lastResorts = new Set<string>()
  #theft: Theft | null = null
  #no = 0

  constructor(broker: RatchetBroker) {
    this.#broker = broker
  }

  disturb(peer: number, how: string): void {
    this.mark(how)
    this.disturbed.add(peer)
    if (how === 'two processes') this.#twins.add(peer)
    for (const owed of this.#owedResets) if (owed.startsWith(`${peer} `)) this.#owedResets.delete(owed)
  }

  violated(text: string): void {
    this.violation ??= text
  }

  mark(name: string): void {
    this.marks.set(name, (this.marks.get(name) ?? 0) + 1)
  }

  sealedWith(key: Uint8Array): void {
    const hex = toHex(key)
    if (this.#sealed.has(hex)) this.violated('key: a message key sealed twice')
    this.#sealed.add(hex)
  }

  post(post: Pick<Posted, 'envelopeId' | 'from' | 'to' | 'lane' | 'bytes' | 'text'>): void {
    this.#no += 1
    this.posted.set(post.envelopeId, { ...post, no: this.#no, isOpened: false, isSettled: false, refusals: [] })
  }

  opened(envelopeId: string, text: string, hasMark: boolean): void {
    const post = this.posted.get(envelopeId)
    if (post?.text !== text) return this.violated(`invention: ${envelopeId} opened as ${text}`)
    post.isOpened = true
    if (post.isSettled && !hasMark && !this.disturbed.has(post.to))
      this.violated('opened again: a settled message opened without a mark')
    if (post.isSettled && !this.disturbed.has(post.to)) this.violated('opened again: the key of a settled message')
  }

  /** A copy under another envelope id opened, which the inner header then reveals. */
  openedCopy(reader: number, text: string): void {
    this.mark('forged: a copy opened')
    const post = this.posted.get(text.slice(0, ID_LENGTH))
    if (post?.text !== text || post.to !== reader) return this.violated('invention: a forged message opened')
    if (post.isSettled && !this.disturbed.has(reader)) this.violated('opened again: a copy of a settled message')
  }

  settled(envelopeId: string): void {
    this.posted.get(envelopeId)!.isSettled = true
  }

  /** The ratchet claims that the message was settled before. */
  saidSettled(envelopeId: string): void {
    this.mark('code: settled')
    if (!this.posted.get(envelopeId)!.isSettled) this.violated('silent loss: reported as settled, and never was')
  }

  refused(envelopeId: string, code: string): void {
    this.mark(`code: ${code}`)
    const post = this.posted.get(envelopeId)!
    post.refusals.push(code)
    if (LOST_CODES.includes(code)) {
      if (this.disturbed.size === 0 && !this.isAged) this.violated(`false alarm: ${code} although no store was touched`)
    } else if (code === 'ratchet_key_gone') {
      if (!this.isAged && this.disturbed.size === 0) this.violated('false alarm: ratchet_key_gone')
    } else if (code !== 'app_rejected') this.violated(`refusal: ${code}`)
  }

  news(peer: number, lane: number, sessionId: string | null, news: readonly RatchetNews[]): void {
    for (const name of news) this.mark(`news: ${name}`)
    if (news.includes('ratchet_reset')) this.#detectedReset(peer, lane)
    if (news.includes('ratchet_peer_reset')) this.#owedResets.delete(`${1 - peer} ${lane}`)
    if (news.includes('ratchet_last_resort') && sessionId) this.#lastResorts.add(sessionId)
  }

  #detectedReset(peer: number, lane: number): void {
    if (!this.#twins.has(peer)) this.#owedResets.add(`${peer} ${lane}`)
  }

  /** `loot`: what memory and store contain, by lane. */
  stolen(victim: number, loot: readonly ConstructorParameters<typeof RatchetThief>[0][], lanes: number): void {
    if (this.#theft || this.disturbed.size > 0) return
    this.mark('theft')
    const chains = loot
      .slice(0, lanes)
      .map(({ ratchet }) => new Map([...ratchet.sessions].map(([id, { lastChain }]) => [id, lastChain])))
    const settled = [...this.posted.values()].filter(({ isSettled }) => isSettled)
    this.#theft = { victim, chains, thieves: loot.map((of) => new RatchetThief(of)), settled, no: this.#no }
  }

  /** After a theft and several round trips, both sides must use keys that the thief does not have. */
  judgeHealing(isLast: (post: Posted) => boolean): void {
    const theft = this.#theft
    if (!theft) return
    const isStolen = (post: Posted) => isLast(post) && post.no > theft.no && !isHealed(post, theft)
    if ([...this.posted.values()].some(isStolen)) this.violated('theft: round trips do not heal')
    else this.mark('theft: healed')
  }

  /** Judges the world once nothing is under way. */
  end(): void {
    for (const post of this.posted.values()) this.#judge(post)
    if (this.#owedResets.size > 0) this.violated('report: a peer did not learn of a reset')
    if (this.#theft) this.#judgeTheft(this.#theft)
  }

  #judge({ envelopeId, from, isOpened, refusals }: Posted): void {
    if (isOpened) return
    // A restored outbox can't contain what was posted later and did not reach the broker.
    if (!this.#broker.hasAccepted(envelopeId) && this.disturbed.has(from)) return this.mark('gone with the store')
    const isReported = this.#broker.reports.some((report) => report.envelopeId === envelopeId)
    if (refusals.length === 0) this.violated(`silent loss: the recipient of ${envelopeId} reported nothing`)
    if (!isReported) this.violated(`silent loss: the sender of ${envelopeId} got no report`)
  }

  #judgeTheft(theft: Theft): void {
    const read = ({ bytes }: Posted) => theft.thieves.some((thief) => thief.read(bytes))
    for (const post of theft.settled)
      if (!this.#isOfLastResort(post) && read(post)) this.violated('theft: opened a message that was settled before')
    for (const post of this.posted.values()) {
      if (post.no <= theft.no || this.#isOfLastResort(post)) continue
      const isSafe = isHealed(post, theft)
      if (isSafe && read(post)) this.violated('theft: opened a message after a round trip')
      this.mark(isSafe ? 'theft: a later message is safe' : 'theft: a later message is not safe yet')
    }
  }

  #isOfLastResort({ bytes }: Posted): boolean {
    return this.#lastResorts.has(sessionIdOf(bytes))
  }
}

export const sessionIdOf = (bytes: Uint8Array): string => toHex(bytes.subarray(5, 15))

/** Returns whether the victim began the chain, or the parent, of the message after the theft. */
function isHealed({ bytes, from, lane }: Posted, { victim, chains }: Theft): boolean {
  const last = chains[lane]!.get(sessionIdOf(bytes))
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const own = view.getUint32(from === victim ? 47 : 51)
  return last === undefined ? from === victim || own > 0 : own > last
}
