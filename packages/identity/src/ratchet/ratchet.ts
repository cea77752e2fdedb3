/**
 * The ratchet of a lane pair: two peers and one priority, both directions. It chooses the session that messages are sealed
 * in, opens messages of all its sessions, and detects that a side was restored from an older store
 * (docs/adr/0018-ratchets.md). Mutable, synchronous, and stored as bytes.
 */
import { assert, OperatingError } from '@sealpost/std'
import { concatBytes, FieldReader, u16, u32, u64 } from '../byte-fields.ts'
import type { Correspondent } from '../envelope/envelope.ts'
import type { BoxKeys, Identity } from '../keys/keys.ts'
import { type AgreementRefusal, accept, initiate, initiationTime, type RatchetScope } from './agreement.ts'
import type { PrekeyBundle, PrekeyStatement, Prekeys, SpentPrekey } from './prekeys.ts'
import { type RatchetCrypto, sodiumRatchetCrypto } from './ratchet-crypto.ts'
import { type RatchetMessage, readMessage } from './ratchet-header.ts'
import { decodeSession, encodeSession } from './ratchet-record.ts'
import {
  expireInSession,
  openInSession,
  type Position,
  type RatchetSession,
  type RatchetSessionRefusal,
  sealInSession,
  sessionOfInitiator,
  sessionOfResponder,
  settleInSession,
} from './ratchet-session.ts'

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
    return !current || (current.isInitiator && current.initiation !== null && nowMs - current.atMs > UNANSWERED_MS_MAX)
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
    return { ok: false, code: 'ratchet_reset', news: this.#resetUnproven(nowMs) } // a broker can invent a session
  }

  /** Deletes the key of a message that is settled. Store `export()` in the batch of the settlement. */
  settle({ sessionId, ...position }: RatchetPlace): void {
    const session = this.#sessions.get(sessionId)
    if (session) settleInSession(session, position)
  }

  /** Deletes the keys of messages that have been missing, or unsettled, since before this time. */
  expire(beforeMs: number): void {
    for (const session of this.#sessions.values()) expireInSession(session, beforeMs)
  }

  /** Ends the current session for sending, so that the next message begins another one and reports the reset. */
  reset(nowMs: number): void {
    this.#current = null
    this.#isResetOwed = true
    this.#resetSentIn = null
    this.#resetAtMs = nowMs
  }

  #openKnown(session: RatchetSession, message: RatchetMessage, nowMs: number): RatchetOpening {
    const result = openInSession(this.#crypto, session, message, nowMs)
    const { chain, number } = message.header
    const isLost = result.ok ? result.isOwnStateOld : result.code === 'ratchet_reset'
    const isReset = isLost && session === this.#current
    if (isReset) this.reset(nowMs)
    const news: RatchetNews[] = isReset ? ['ratchet_reset'] : []
    if (result.ok) news.push(...this.#newsOf(session, message))
    if (!result.ok) return { ok: false, code: result.code, news }
    return { ok: true, text: result.text, place: { sessionId: session.sessionId, chain, number }, news }
  }

  #openFirst(message: RatchetMessage, parties: RatchetParties, nowMs: number): RatchetOpening {
    const { prekeys } = parties
    const result = accept(this.#crypto, { ...parties, scope: this.#scope }, prekeys, message.initiation!)
    if (!result.ok) return this.#refuseFirst(result.code, message.initiation!, nowMs)
    const { agreement } = result
    if (agreement.sessionId !== message.header.sessionId) return { ok: false, code: 'does_not_open', news: [] }
    const session = sessionOfResponder(agreement)
    const opened = openInSession(this.#crypto, session, message, nowMs)
    if (!opened.ok) return { ok: false, code: 'does_not_open', news: [] }
    prekeys.reserve(agreement.spent)
    this.#add(session)
    if (this.#isPreferred(session, message.header.isReset)) this.#current = session
    const { chain, number } = message.header
    const news: RatchetNews[] = ['ratchet_agreed']
    if (agreement.isLastResort) news.push('ratchet_last_resort')
    news.push(...this.#newsOf(session, message))
    return { ok: true, text: opened.text, place: { sessionId: session.sessionId, chain, number }, news }
  }

  /** Notes what an opened message shows about resets of both sides. */
  #newsOf(session: RatchetSession, { header }: RatchetMessage): RatchetNews[] {
    const sent = this.#resetSentIn
    if (sent && sent.sessionId === session.sessionId && header.ack >= sent.chain) {
      this.#isResetOwed = false
      this.#resetSentIn = null
    }
    if (!header.isReset || session.isResetHeard) return []
    session.isResetHeard = true
    return ['ratchet_peer_reset']
  }

  /** If the prekey is gone, this side may have lost its store. The peer learns that from a newer agreement. */
  #refuseFirst(code: AgreementRefusal, initiation: Uint8Array, nowMs: number): RatchetOpening {
    if (code !== 'prekey_gone') return { ok: false, code, news: [] }
    const atMs = initiationTime(initiation)
    if (atMs < nowMs + SKEW_MS_MAX) this.#agreedAtMs = Math.max(this.#agreedAtMs, atMs)
    return { ok: false, code, news: this.#resetUnproven(nowMs) }
  }

  #resetUnproven(nowMs: number): RatchetNews[] {
    const isPaused = nowMs >= this.#resetAtMs && nowMs - this.#resetAtMs < RESET_PAUSE_MS
    if (isPaused) return []
    this.reset(nowMs)
    return ['ratchet_reset']
  }

  /**
   * Returns whether to seal in the peer's session from now on. If both sides agree at once, both choose the newer
   * session. If the peer lost a session that it has used, it can't open that one any more.
   */
  #isPreferred(session: RatchetSession, isReset: boolean): boolean {
    const current = this.#current
    if (!current || (isReset && !current.initiation)) return true
    if (session.atMs !== current.atMs) return session.atMs > current.atMs
    return session.sessionId < current.sessionId
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
