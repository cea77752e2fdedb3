/**
 * Simulates a process of a peer with ratchets. It follows the rules of docs/adr/0018-ratchets.md for stores: a sealed
 * message and the advanced ratchet are one batch, and so are a settlement and the ratchet without the key.
 */
import type { Correspondent, Identity } from '@sealpost/identity'
import {
  Prekeys,
  Ratchet,
  type RatchetCrypto,
  type RatchetNews,
  type RatchetOpening,
  type RatchetPlace,
  readPrekeyStatement,
} from '@sealpost/identity/ratchet'
import { assert, type MeshId, type Random } from '@sealpost/std'
import type { QueuedMessage, RatchetBroker } from './ratchet-broker.ts'
import { type RatchetOracle, sessionIdOf } from './ratchet-oracle.ts'

const DAY_MS = 86_400_000
const KEEP_MS = 60 * DAY_MS

/** Ends a process in the middle of a function. */
export class SimulatedCrash extends Error {}

export type StoredRecords = Map<string, Uint8Array>
export type Change = readonly [key: string, bytes: Uint8Array | null]

/** What a process does when chance decides. */
export interface ProcessChances {
  crash: number
  replyLost: number
  appRejects: number
  appHolds: number
}

/** A lane pair of a peer. */
export interface SimulatedLine {
  readonly to: number
  readonly peer: Correspondent
  readonly lane: number
}

/** What all processes of a peer share. */
export interface SimulatedOwner {
  readonly no: number
  readonly meshId: MeshId
  readonly identity: Identity
  readonly lines: readonly SimulatedLine[]
  readonly records: StoredRecords
  readonly random: Random
  readonly crypto: RatchetCrypto
  readonly broker: RatchetBroker
  readonly oracle: RatchetOracle
  readonly chances: ProcessChances
  readonly nowMs: () => number
  readonly newId: () => string
}

type MailOpening =
  | { readonly ok: true; readonly text: Uint8Array; readonly settle: () => void }
  | { readonly ok: false; readonly code: string }

/** Mail that the ratchet of a line does not seal itself. `line` is the number of the line to the other peer. */
export interface SharedMail {
  open(line: number, bytes: Uint8Array, openRatcheted: (bytes: Uint8Array) => RatchetOpening): MailOpening
  /** Returns the changes of a store batch. The batch also contains the ratchet, in which these messages are settled. */
  export(line: number): { changes: readonly Change[]; settled: readonly RatchetPlace[] }
  expire(beforeMs: number): void
}

/** A message that is sealed and not stored yet. */
export interface SealedMail {
  readonly line: number
  readonly envelopeId: string
  readonly text: string
  readonly bytes: Uint8Array
  readonly isShared: boolean
}

const utf8 = new TextEncoder()
const decoder = new TextDecoder()

export class RatchetProcess {
  readonly prekeys: Prekeys
  /** One for each line. */
  readonly ratchets: readonly Ratchet[]
  /** Messages that the application holds. */
  readonly #held = new Map<string, { message: QueuedMessage; settle: () => void }>()
  readonly #owner: SimulatedOwner
  readonly #shared: SharedMail | null
  readonly #isResetSent = new Set<number>()

  /** Opens the store. */
  constructor(owner: SimulatedOwner, shared: SharedMail | null = null) {
    const { records, meshId, crypto, lines } = owner
    this.#owner = owner
    this.#shared = shared
    const prekeys = records.get('prekeys')
    this.prekeys = prekeys ? Prekeys.restore(prekeys) : new Prekeys()
    this.ratchets = lines.map(({ lane }, line) => {
      const bytes = records.get(`ratchet ${line}`)
      const scope = { meshId, priority: lane }
      return bytes ? Ratchet.restore(bytes, scope, crypto) : new Ratchet(scope, crypto)
    })
  }

  holds(envelopeId: string): boolean {
    return this.#held.has(envelopeId)
  }

  publish(oneTimeCount: number, isNewPrekey: boolean): void {
    const { identity, meshId, crypto, broker, no, nowMs, records } = this.#owner
    const terms = { identity, meshId, nowMs: nowMs(), notAfterMs: nowMs() + 9_999 * DAY_MS, keepFormerMs: KEEP_MS }
    const former = records.get('statement')
    const statement = !former || isNewPrekey ? this.prekeys.rotate(crypto, { ...terms, hasKem: false }).bytes : former
    this.prekeys.expire(nowMs())
    const oneTime = this.prekeys.addOneTime(crypto, oneTimeCount)
    const changes: Change[] = [['prekeys', this.prekeys.export()]]
    this.#write([...changes, ['statement', statement]], () => broker.publish(no, statement, oneTime))
  }

  send(line: number, what: string): void {
    const { newId } = this.#owner
    this.prepare(line)
    const envelopeId = newId()
    const text = `${envelopeId} ${what}`
    const bytes = this.seal(line, utf8.encode(text))
    this.post([{ line, envelopeId, text, bytes, isShared: false }])
  }

  /** Agrees with the peer of a line if that is necessary. */
  prepare(line: number): void {
    if (this.ratchets[line]!.needsAgreement(this.#owner.nowMs())) this.#agree(line)
  }

  seal(line: number, text: Uint8Array): Uint8Array {
    return this.ratchets[line]!.seal(text, this.#owner.nowMs())
  }

  /** Stores messages and their ratchets in one batch, and sends them. */
  post(mail: readonly SealedMail[]): void {
    const { oracle, no, lines } = this.#owner
    const changes = mail.flatMap(({ line, envelopeId, bytes, isShared }): Change[] => [
      [`out ${envelopeId}`, Uint8Array.of(line, isShared ? 1 : 0, ...bytes)],
      ...this.#stateOf(line),
    ])
    this.#write(changes, () => {
      for (const { line, ...post } of mail) oracle.post({ ...post, from: no, ...lines[line]! })
    })
    for (const { envelopeId } of mail) this.#transmit(envelopeId)
  }

  /** Sends again what the broker has not acknowledged. */
  resend(): void {
    for (const key of [...this.#owner.records.keys()]) if (key.startsWith('out ')) this.#transmit(key.slice(4))
  }

  receive(message: QueuedMessage): void {
    const line = this.#lineOf(message)
    const opened = this.#openMail(line, message)
    const hasMark = this.#owner.records.has(`settled ${message.envelopeId}`)
    if (opened.ok) this.#opened(message, opened, hasMark)
    else if (opened.code === 'settled') this.#repeated(message)
    else this.#refuse(message, opened.code)
    if (!opened.ok && opened.code === 'prekey_gone') this.publish(1, true)
    this.#reportReset(line, opened.news)
  }

  /** Receives what a hostile broker made of a message: a copy under another envelope id, or a changed one. */
  receiveForged(line: number, bytes: Uint8Array): void {
    const { oracle, no } = this.#owner
    const opened = this.#open(line, bytes)
    this.#report(line, bytes, opened.news)
    if (opened.ok) oracle.openedCopy(no, decoder.decode(opened.text))
    else oracle.mark(`forged: ${opened.code}`)
    this.#reportReset(line, opened.news)
  }

  /** Settles what the application holds. */
  finish(): void {
    for (const { message, settle } of [...this.#held.values()]) this.#settle(message, settle)
  }

  expire(): void {
    const beforeMs = this.#owner.nowMs() - KEEP_MS
    this.#shared?.expire(beforeMs)
    for (const [line, ratchet] of this.ratchets.entries()) {
      ratchet.expire(beforeMs)
      this.#write(this.#stateOf(line), () => undefined)
    }
  }

  /** Sends an empty message if the peer must learn of a reset. */
  reportResets(): void {
    for (const line of this.ratchets.keys()) this.#reportReset(line, [])
  }

  #lineOf({ from, lane }: QueuedMessage): number {
    return this.#owner.lines.findIndex((line) => line.to === from && line.lane === lane)
  }

  #openMail(line: number, message: QueuedMessage): MailOpening & { news: readonly RatchetNews[] } {
    const news: RatchetNews[] = []
    const openRatcheted = (bytes: Uint8Array) => {
      const opened = this.#open(line, bytes)
      this.#report(line, bytes, opened.news)
      news.push(...opened.news)
      return opened
    }
    if (message.isShared) return { ...this.#shared!.open(line, message.bytes, openRatcheted), news }
    const opened = openRatcheted(message.bytes)
    if (!opened.ok) return opened
    return { ...opened, settle: () => this.ratchets[line]!.settle(opened.place) }
  }

  #open(line: number, bytes: Uint8Array): RatchetOpening {
    const { identity, lines, nowMs } = this.#owner
    const parties = { own: identity, ownBoxes: [identity.box], peers: [lines[line]!.peer], prekeys: this.prekeys }
    return this.ratchets[line]!.open(bytes, parties, nowMs())
  }

  /** A reset counts once it is stored. Until then, the next process detects it again. */
  #report(line: number, bytes: Uint8Array, news: readonly RatchetNews[]): void {
    const report = () => this.#news(line, sessionIdOf(bytes), news)
    if (news.includes('ratchet_reset')) this.#write(this.#stateOf(line), report)
    else report()
  }

  #news(line: number, sessionId: string | null, news: readonly RatchetNews[]): void {
    const { oracle, no: peer, lines } = this.#owner
    const { to: other, lane } = lines[line]!
    oracle.news({ peer, other, lane }, sessionId, news)
  }

  #opened(message: QueuedMessage, opened: MailOpening & { ok: true }, hasMark: boolean): void {
    const { oracle, random, chances } = this.#owner
    oracle.opened(message.envelopeId, decoder.decode(opened.text), hasMark)
    if (hasMark) return this.#settle(message, opened.settle)
    if (random.chance(chances.appRejects)) return this.#refuse(message, 'app_rejected')
    if (random.chance(chances.appHolds)) this.#held.set(message.envelopeId, { message, settle: opened.settle })
    else this.#settle(message, opened.settle)
  }

  #settle(message: QueuedMessage, settle: () => void): void {
    const { oracle, random, chances, broker } = this.#owner
    settle()
    const mark: Change = [`settled ${message.envelopeId}`, new Uint8Array(0)]
    this.#write([mark, ...this.#stateAfter(message)], () => oracle.settled(message.envelopeId))
    this.#held.delete(message.envelopeId)
    if (!random.chance(chances.replyLost)) broker.settle(message)
  }

  #repeated(message: QueuedMessage): void {
    this.#owner.oracle.saidSettled(message.envelopeId)
    this.#owner.broker.settle(message)
  }

  #refuse(message: QueuedMessage, code: string): void {
    const { oracle, broker } = this.#owner
    this.#write(this.#stateAfter(message), () => undefined)
    oracle.refused(message.envelopeId, code)
    broker.reject(message, code)
  }

  #reportReset(line: number, news: readonly RatchetNews[]): void {
    if (news.includes('ratchet_reset')) this.#isResetSent.delete(line)
    if (!this.ratchets[line]!.owesReset || this.#isResetSent.has(line)) return
    this.#isResetSent.add(line)
    this.send(line, 'reset')
  }

  #agree(line: number): void {
    const { identity, meshId, broker, nowMs, lines } = this.#owner
    const { to, peer } = lines[line]!
    const bundle = broker.bundleOf(to)
    const expected = { meshId, peerKey: peer.peerKey, nowMs: nowMs() }
    const verdict = readPrekeyStatement(bundle.statement, expected)
    assert(verdict.ok, 'the directory is honest')
    const terms = { statement: verdict.statement, oneTime: bundle.oneTime }
    const news = this.ratchets[line]!.agree({ own: identity, peer }, terms, nowMs())
    this.#news(line, null, news)
  }

  #transmit(envelopeId: string): void {
    const { records, broker, no, nowMs, random, chances, lines } = this.#owner
    const [line, isShared, ...bytes] = records.get(`out ${envelopeId}`)!
    const { to, lane } = lines[line!]!
    const message = { envelopeId, from: no, to, lane, isShared: isShared === 1, bytes: Uint8Array.from(bytes) }
    broker.send({ ...message, atMs: nowMs() })
    if (!random.chance(chances.replyLost)) this.#write([[`out ${envelopeId}`, null]], () => undefined)
  }

  /** Returns the batch of a settlement or a refusal, without its mark. */
  #stateAfter(message: QueuedMessage): Change[] {
    const line = this.#lineOf(message)
    const shared = message.isShared ? this.#shared!.export(line) : { changes: [], settled: [] }
    for (const place of shared.settled) this.ratchets[line]!.settle(place)
    return [...shared.changes, ...this.#stateOf(line)]
  }

  #stateOf(line: number): Change[] {
    const { bytes, spent } = this.ratchets[line]!.export()
    this.prekeys.spend(spent)
    return [
      [`ratchet ${line}`, bytes],
      ['prekeys', this.prekeys.export()],
    ]
  }

  /** Writes a batch, or crashes before or after it. */
  #write(changes: readonly Change[], stored: () => void): void {
    const { random, chances, records, oracle } = this.#owner
    const isCrash = random.chance(chances.crash)
    const isAfter = random.chance(0.5)
    if (isCrash) oracle.mark(isAfter ? 'crash after a write' : 'crash before a write')
    if (isCrash && !isAfter) throw new SimulatedCrash()
    for (const [key, bytes] of changes) {
      if (bytes) records.set(key, bytes)
      else records.delete(key)
    }
    stored()
    if (isCrash) throw new SimulatedCrash()
  }
}
