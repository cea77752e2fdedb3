/** Judges a simulated world of ratchets: nothing is lost silently, and no key seals twice. */

import type { RatchetNews } from '@sealpost/identity/ratchet'
import { toHex } from '@sealpost/std'
import type { RatchetBroker } from './ratchet-broker.ts'

export interface Posted {
  readonly envelopeId: string
  readonly from: number
  readonly to: number
  readonly lane: number
  readonly isShared: boolean
  readonly bytes: Uint8Array
  readonly text: string
  /** When the sender stored it, as a count of events. */
  readonly no: number
  isOpened: boolean
  isSettled: boolean
  refusals: string[]
}

/** A lane pair, as `peer` sees it. */
interface Conversation {
  readonly peer: number
  readonly other: number
  readonly lane: number
}

/** The length of the id at the start of each text. */
export const ID_LENGTH = 6

/** Codes that only a restored or copied store explains. */
const LOST_CODES = ['ratchet_reset', 'prekey_gone', 'sender_key_unknown']
/** Codes that deleted keys explain as well. */
const GONE_CODES = ['ratchet_key_gone', 'sender_key_gone']

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

  mark(name: string, times = 1): void {
    this.marks.set(name, (this.marks.get(name) ?? 0) + times)
  }

  sealedWith(key: Uint8Array): void {
    const hex = toHex(key)
    if (this.#sealed.has(hex)) this.violated('key: a message key sealed twice')
    this.#sealed.add(hex)
  }

  /** The number of the newest post. */
  get no(): number {
    return this.#no
  }

  post(post: Pick<Posted, 'envelopeId' | 'from' | 'to' | 'lane' | 'isShared' | 'bytes' | 'text'>): void {
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
    } else if (GONE_CODES.includes(code)) {
      if (!this.isAged && this.disturbed.size === 0) this.violated(`false alarm: ${code}`)
    } else if (code !== 'app_rejected') this.violated(`refusal: ${code}`)
  }

  news({ peer, other, lane }: Conversation, sessionId: string | null, news: readonly RatchetNews[]): void {
    for (const name of news) this.mark(`news: ${name}`)
    if (news.includes('ratchet_reset') && !this.#twins.has(peer)) this.#owedResets.add(`${peer} ${other} ${lane}`)
    if (news.includes('ratchet_peer_reset')) this.#owedResets.delete(`${other} ${peer} ${lane}`)
    if (news.includes('ratchet_last_resort') && sessionId) this.#lastResorts.add(sessionId)
  }

  /** Judges the world once nothing is under way. */
  end(): void {
    for (const post of this.posted.values()) this.#judge(post)
    if (this.#owedResets.size > 0) this.violated('report: a peer did not learn of a reset')
  }

  #judge({ envelopeId, from, isOpened, refusals }: Posted): void {
    if (isOpened) return
    // A restored outbox can't contain what was posted later and did not reach the broker.
    if (!this.#broker.hasAccepted(envelopeId) && this.disturbed.has(from)) return this.mark('gone with the store')
    const isReported = this.#broker.reports.some((report) => report.envelopeId === envelopeId)
    if (refusals.length === 0) this.violated(`silent loss: the recipient of ${envelopeId} reported nothing`)
    if (!isReported) this.violated(`silent loss: the sender of ${envelopeId} got no report`)
  }

  /** Returns whether the session of a ratcheted message began without a one-time prekey. */
  isOfLastResort(ratcheted: Uint8Array): boolean {
    return this.#lastResorts.has(sessionIdOf(ratcheted))
  }
}

export const sessionIdOf = (bytes: Uint8Array): string => toHex(bytes.subarray(5, 15))
