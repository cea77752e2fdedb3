/**
 * The ratchet of a lane pair: two peers and one priority, both directions. It chooses the session that messages are sealed
 * in, opens messages of all its sessions, and detects that a side was restored from an older store
 * (docs/adr/0018-ratchets.md). Mutable, synchronous, and stored as bytes.
 */
import { assert, OperatingError } from '@sealpost/std'
import { concatBytes, FieldReader, u16, u32, u64 } from '../byte-fields.ts'
import type { Correspondent } from '../envelope/envelope.ts'
import type { BoxKeys, Identity } from '../keys/keys.ts'
import { type AgreementRefusal, accept, initiate, type RatchetScope, sessionTime } from './agreement.ts'
import type { PrekeyBundle, PrekeyStatement, Prekeys, SpentPrekey } from './prekeys.ts'
import { type RatchetCrypto, sodiumRatchetCrypto } from './ratchet-crypto.ts'
import { type RatchetHeader, type RatchetMessage, readMessage } from './ratchet-header.ts'
import { expireInSession, openInSession } from './ratchet-opening.ts'
import { decodeSession, encodeSession } from './ratchet-record.ts'
import { sealInSession } from './ratchet-sealing.ts'
import {
  type RatchetSession,
  type RatchetSessionRefusal,
  sessionOfInitiator,
  sessionOfResponder,
} from './ratchet-session.ts'
import { type Position, settleInChains } from './receiving-chains.ts'

/** Names a message for `settle`. */
export interface RatchetPlace extends Position {
  readonly sessionId: string
}

/**
 * What an agreement or a message shows, for the application's log. `ratchet_agreed`: a session began.
 * `ratchet_last_resort`: it began without a one-time prekey. `ratchet_reset`: one side was restored or lost its state, so
 * the next message begins another session. `ratchet_peer_reset`: the peer has noticed that.
 */
export type RatchetNews = 'ratchet_agreed' | 'ratchet_last_resort' | 'ratchet_reset' | 'ratchet_peer_reset'

/** `malformed`: not a ratcheted message. */
export type RatchetRefusal = RatchetSessionRefusal | AgreementRefusal | 'malformed'

export type RatchetOpening =
  | {
      readonly ok: true
      readonly text: Uint8Array
      readonly place: RatchetPlace
      readonly news: readonly RatchetNews[]
    }
  | { readonly ok: false; readonly code: RatchetRefusal; readonly news: readonly RatchetNews[] }

export interface RatchetParties {
  readonly own: Identity
  /** The current and former box keys of this side. */
  readonly ownBoxes: readonly BoxKeys[]
  /** The peer, with its current and former box keys. */
  readonly peers: readonly Correspondent[]
  readonly prekeys: Prekeys
}

/** What a store batch contains. */
export interface RatchetRecord {
  readonly bytes: Uint8Array
  /** Pass these to `Prekeys.spend` in the same batch. */
  readonly spent: readonly SpentPrekey[]
}

const FORMAT = 1
const SESSIONS_MAX = 8
/** The minimum time between two resets that nothing proves. */
const RESET_PAUSE_MS = 60_000
/** A session without a reply is replaced after this time, before the peer deletes the prekey. */
const UNANSWERED_MS_MAX = 30 * 86_400_000
/** How far the time of an agreement that does not open may be in the future. */
const SKEW_MS_MAX = 86_400_000

/**
 * @example
 * const ratchet = new Ratchet({ meshId, priority: 1 })
 * if (ratchet.needsAgreement(nowMs)) ratchet.agree({ own, peer }, { statement, oneTime }, nowMs)
 * const bytes = ratchet.seal(text, nowMs)
 * // Store `bytes` and `ratchet.export()` in one batch. Then send `bytes`, and resend the same bytes.
 */
export class Ratchet {
  readonly #scope: RatchetScope
  readonly #crypto: RatchetCrypto
  /** In the order in which they began. */
  readonly #sessions = new Map<string, RatchetSession>()
  #current: RatchetSession | null = null
  /** Whether the peer has to learn of a reset of this side. */
  #isResetOwed = false
  /** The chain in which this process first reported the reset. */
  #resetSentIn: Pick<RatchetPlace, 'sessionId' | 'chain'> | null = null
  #resetAtMs = 0
  /** The newest time of an agreement that this side knows, so that its next one is newer. */
  #agreedAtMs = 0

  constructor(scope: RatchetScope, crypto: RatchetCrypto = sodiumRatchetCrypto) {
    this.#scope = scope
    this.#crypto = crypto
  }

  /** Returns whether `agree` must be called before `seal`. */
  needsAgreement(nowMs: number): boolean {
    const current = this.#current
    return !current || (isUnanswered(current) && nowMs - current.atMs > UNANSWERED_MS_MAX)
  }

  /** Whether the peer has not confirmed that it has learned of a reset. Send it a message soon, even an empty one. */
  get owesReset(): boolean {
    return this.#isResetOwed
  }

  /** The state for tests and simulators, which play the thief. @internal */
  get sessions(): ReadonlyMap<string, RatchetSession> {
    return this.#sessions
  }

  /**
   * Begins a session with prekeys of the peer. `statement` has passed `readPrekeyStatement`, and `peer` has the box key
   * of its epoch.
   * @throws OperatingError `key_unusable`, `box_key_unknown`
   */
  agree(
    { own, peer }: { own: Identity; peer: Correspondent },
    bundle: { statement: PrekeyStatement; oneTime: PrekeyBundle['oneTime'] },
    nowMs: number,
  ): RatchetNews[] {
    const atMs = Math.max(nowMs, this.#agreedAtMs + 1)
    const result = initiate(this.#crypto, { own, peer, scope: this.#scope }, bundle, atMs)
    if (!result.ok) throw new OperatingError(result.code, 'The keys of this peer can not begin a ratchet.')
    this.#current = this.#add(sessionOfInitiator(result.agreement))
    return result.agreement.isLastResort ? ['ratchet_agreed', 'ratchet_last_resort'] : ['ratchet_agreed']
  }

  /** Seals a text. Store the bytes and `export()` in one batch before the first send. */
  seal(text: Uint8Array, nowMs: number): Uint8Array {
    assert(this.#current, 'a ratchet has a session before it seals')
    const { sessionId } = this.#current
    const bytes = sealInSession(this.#crypto, this.#current, text, { nowMs, isReset: this.#isResetOwed })
    if (!bytes) throw new OperatingError('key_unusable', 'The ratchet key of this peer can not be used.')
    if (this.#isResetOwed && this.#resetSentIn?.sessionId !== sessionId)
      this.#resetSentIn = { sessionId, chain: this.#current.lastChain }
    return bytes
  }

  /** Opens a message from the network. Never throws. Its key remains until `settle`, so that it opens again. */
  open(bytes: Uint8Array, parties: RatchetParties, nowMs: number): RatchetOpening {
    const message = readMessage(bytes)
    if (!message) return { ok: false, code: 'malformed', news: [] }
    const session = this.#sessions.get(message.header.sessionId)
    if (session) return this.#openKnown(session, message, nowMs)
    if (message.initiation) return this.#openFirst(message, parties, nowMs)
    const news = this.#resetUnproven(message.header.sessionId, nowMs) // a broker can invent a session
    return { ok: false, code: 'ratchet_reset', news }
  }

  /** Deletes the key of a message that is settled. Store `export()` in the batch of the settlement. */
  settle({ sessionId, ...position }: RatchetPlace): void {
    const session = this.#sessions.get(sessionId)
    if (session) settleInChains(session, position)
  }

  /** Deletes the keys of messages that have been missing, or unsettled, since before this time. */
  expire(beforeMs: number): void {
    for (const session of this.#sessions.values()) expireInSession(session, beforeMs)
  }

  /** Ends the current session for sending, so that the next message begins another one and reports the reset. */
  reset(nowMs: number): void {
    for (const session of this.#sessions.values()) session.standing = 'lost'
    this.#current = null
    this.#isResetOwed = true
    this.#resetSentIn = null
    this.#resetAtMs = nowMs
  }

  #openKnown(session: RatchetSession, message: RatchetMessage, nowMs: number): RatchetOpening {
    const result = openInSession(this.#crypto, session, message, nowMs)
    const { chain, number } = message.header
    const isLost = result.ok ? result.isOwnStateOld : result.code === 'ratchet_reset'
    const news: RatchetNews[] = result.ok ? this.#newsOf(session, message) : []
    if (isLost) news.push(...this.#resetProven(session, nowMs))
    if (!result.ok) return { ok: false, code: result.code, news }
    return { ok: true, text: result.text, place: { sessionId: session.sessionId, chain, number }, news }
  }

  #resetProven(session: RatchetSession, nowMs: number): RatchetNews[] {
    if (session !== this.#current) return this.#resetUnproven(session.sessionId, nowMs)
    this.reset(nowMs)
    return ['ratchet_reset']
  }

  #openFirst(message: RatchetMessage, parties: RatchetParties, nowMs: number): RatchetOpening {
    const { prekeys } = parties
    const result = accept(this.#crypto, { ...parties, scope: this.#scope }, prekeys, message.initiation!)
    if (!result.ok) return this.#refuseFirst(result.code, message.header, nowMs)
    const { agreement } = result
    if (agreement.sessionId !== message.header.sessionId) return { ok: false, code: 'does_not_open', news: [] }
    const session = sessionOfResponder(agreement)
    const opened = openInSession(this.#crypto, session, message, nowMs)
    if (!opened.ok) return { ok: false, code: 'does_not_open', news: [] }
    prekeys.reserve(agreement.spent)
    this.#add(session)
    const { chain, number } = message.header
    const news: RatchetNews[] = ['ratchet_agreed']
    if (agreement.isLastResort) news.push('ratchet_last_resort')
    news.push(...this.#newsOf(session, message))
    return { ok: true, text: opened.text, place: { sessionId: session.sessionId, chain, number }, news }
  }

  /** Notes what an opened message shows about resets of both sides, and chooses the session to seal in. */
  #newsOf(session: RatchetSession, { header }: RatchetMessage): RatchetNews[] {
    const sent = this.#resetSentIn
    if (sent && sent.sessionId === session.sessionId && header.ack >= sent.chain) {
      this.#isResetOwed = false
      this.#resetSentIn = null
    }
    const isHeard = header.isReset && !session.isResetHeard
    if (isHeard) session.isResetHeard = true
    this.#choose(session, isHeard)
    return isHeard ? ['ratchet_peer_reset'] : []
  }

  /** If the prekey is gone, this side may have lost its store. The peer learns that from a newer agreement. */
  #refuseFirst(code: AgreementRefusal, { sessionId }: RatchetHeader, nowMs: number): RatchetOpening {
    return { ok: false, code, news: code === 'prekey_gone' ? this.#resetUnproven(sessionId, nowMs) : [] }
  }

  /**
   * Resets because of a session that this side does not use, unless the peer is about to learn of a newer one: it may have
   * sent the message before.
   */
  #resetUnproven(sessionId: string, nowMs: number): RatchetNews[] {
    const atMs = sessionTime(sessionId)
    if (atMs < nowMs + SKEW_MS_MAX) this.#agreedAtMs = Math.max(this.#agreedAtMs, atMs)
    const isPaused = nowMs >= this.#resetAtMs && nowMs - this.#resetAtMs < RESET_PAUSE_MS
    const isReplaced = this.#isResetOwed && (this.#current?.sessionId ?? '') > sessionId
    if (isReplaced || isPaused) return []
    this.reset(nowMs)
    return ['ratchet_reset']
  }

  /**
   * Both sides seal in the newest session that both can use, so they choose the same one, also if both have agreed at
   * once. A message proves that its sender can use its session.
   */
  #choose(session: RatchetSession, isResetHeard: boolean): void {
    if (session.standing === 'doubtful') session.standing = 'usable'
    if (isResetHeard)
      for (const other of this.#sessions.values())
        if (other !== session && other.standing === 'usable' && !isUnanswered(other)) other.standing = 'doubtful'
    this.#current = null
    for (const other of this.#sessions.values()) {
      const isNewer = !this.#current || other.sessionId > this.#current.sessionId
      if (other.standing === 'usable' && isNewer) this.#current = other
    }
  }

  #add(session: RatchetSession): RatchetSession {
    this.#sessions.set(session.sessionId, session)
    this.#agreedAtMs = Math.max(this.#agreedAtMs, session.atMs)
    for (const [id, known] of this.#sessions) {
      if (this.#sessions.size <= SESSIONS_MAX) break
      if (known !== this.#current && known !== session) this.#sessions.delete(id)
    }
    return session
  }

  /** Returns the state for the store: a format, the sessions, and which one is current. */
  export(): RatchetRecord {
    const spent = [...this.#sessions.values()].flatMap((session) => session.spent ?? [])
    for (const session of this.#sessions.values()) session.spent = null
    const currentNo = [...this.#sessions.values()].indexOf(this.#current!) + 1
    const times = [u64(this.#resetAtMs), u64(this.#agreedAtMs)]
    const head = [u16(FORMAT), u16(this.#isResetOwed ? 1 : 0), ...times, u16(currentNo), u32(this.#sessions.size)]
    return { bytes: concatBytes([...head, ...[...this.#sessions.values()].map(encodeSession)]), spent }
  }

  /**
   * Returns the ratchet that a store contains. It begins a chain at its first `seal`.
   * @throws AssertionFailed for bytes that `export` did not write
   */
  static restore(bytes: Uint8Array, scope: RatchetScope, crypto?: RatchetCrypto): Ratchet {
    const fields = new FieldReader(bytes)
    assert(fields.u16() === FORMAT, 'a ratchet has a known format')
    const ratchet = new Ratchet(scope, crypto)
    ratchet.#isResetOwed = fields.u16() === 1
    ratchet.#resetAtMs = fields.u64()
    ratchet.#agreedAtMs = fields.u64()
    const currentNo = fields.u16()
    const sessions = Array.from({ length: fields.u32() }, () => decodeSession(fields))
    assert(fields.isAtEnd, 'a ratchet is complete')
    for (const session of sessions) ratchet.#sessions.set(session.sessionId, session)
    ratchet.#current = sessions[currentNo - 1] ?? null
    return ratchet
  }
}

function isUnanswered({ isInitiator, initiation }: RatchetSession): boolean {
  return isInitiator && initiation !== null
}
