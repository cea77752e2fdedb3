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

export const LANES = 2
const DAY_MS = 86_400_000
const KEEP_MS = 60 * DAY_MS

/** Ends a process in the middle of a function. */
export class SimulatedCrash extends Error {}

export type StoredRecords = Map<string, Uint8Array>
type Change = readonly [key: string, bytes: Uint8Array | null]

/** What a process does when chance decides. */
export interface ProcessChances {
  crash: number
  replyLost: number
  appRejects: number
  appHolds: number
}

/** What all processes of a peer share. */
export interface SimulatedOwner {
  readonly no: number
  readonly meshId: MeshId
  readonly identity: Identity
  readonly peer: Correspondent
  readonly records: StoredRecords
  readonly random: Random
  readonly crypto: RatchetCrypto
  readonly broker: RatchetBroker
  readonly oracle: RatchetOracle
  readonly chances: ProcessChances
  readonly nowMs: () => number
  readonly newId: () => string
}

const utf8 = new TextEncoder()
const decoder = new TextDecoder()

export class RatchetProcess {
  readonly prekeys: Prekeys
  readonly ratchets: readonly Ratchet[]
  /** Messages that the application holds. */
  readonly #held = new Map<string, { message: QueuedMessage; place: RatchetPlace }>()
  readonly #owner: SimulatedOwner
  readonly #isResetSent = new Set<number>()

  /** Opens the store. */
  constructor(owner: SimulatedOwner) {
    const { records, meshId, crypto } = owner
    this.#owner = owner
    const prekeys = records.get('prekeys')
    this.prekeys = prekeys ? Prekeys.restore(prekeys) : new Prekeys()
    this.ratchets = Array.from({ length: LANES }, (_, lane) => {
      const bytes = records.get(`ratchet ${lane}`)
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

  send(lane: number, what: string): void {
    const { oracle, no, nowMs, newId } = this.#owner
    const ratchet = this.ratchets[lane]!
    if (ratchet.needsAgreement(nowMs())) this.#agree(lane)
    const envelopeId = newId()
    const text = `${envelopeId} ${what}`
    const bytes = ratchet.seal(utf8.encode(text), nowMs())
    this.#write([[`out ${envelopeId}`, Uint8Array.of(lane, ...bytes)], ...this.#stateOf(lane)], () =>
      oracle.post({ envelopeId, from: no, to: 1 - no, lane, bytes, text }),
    )
    this.#transmit(envelopeId)
  }

  /** Sends again what the broker has not acknowledged. */
  resend(): void {
    for (const key of [...this.#owner.records.keys()]) if (key.startsWith('out ')) this.#transmit(key.slice(4))
  }

  receive(message: QueuedMessage): void {
    const { lane, envelopeId } = message
    const opened = this.#open(lane, message.bytes)
    this.#report(lane, message.bytes, opened.news)
    const hasMark = this.#owner.records.has(`settled ${envelopeId}`)
    if (opened.ok) this.#opened(message, opened, hasMark)
    else if (opened.code === 'settled') this.#repeated(message)
    else this.#refuse(message, opened.code)
    if (!opened.ok && opened.code === 'prekey_gone') this.publish(1, true)
    this.#reportReset(lane, opened.news)
  }

  /** Receives what a hostile broker made of a message: a copy under another envelope id, or a changed one. */
  receiveForged(lane: number, bytes: Uint8Array): void {
    const { oracle, no } = this.#owner
    const opened = this.#open(lane, bytes)
    this.#report(lane, bytes, opened.news)
    if (opened.ok) oracle.openedCopy(no, decoder.decode(opened.text))
    else oracle.mark(`forged: ${opened.code}`)
    this.#reportReset(lane, opened.news)
  }

  /** Settles what the application holds. */
  finish(): void {
    for (const { message, place } of [...this.#held.values()]) this.#settle(message, place)
  }

  expire(): void {
    for (const [lane, ratchet] of this.ratchets.entries()) {
      ratchet.expire(this.#owner.nowMs() - KEEP_MS)
      this.#write(this.#stateOf(lane), () => undefined)
    }
  }

  /** Sends an empty message if the peer must learn of a reset. */
  reportResets(): void {
    for (let lane = 0; lane < LANES; lane++) this.#reportReset(lane, [])
  }

  #open(lane: number, bytes: Uint8Array): RatchetOpening {
    const { identity, peer, nowMs } = this.#owner
    const parties = { own: identity, ownBoxes: [identity.box], peers: [peer], prekeys: this.prekeys }
    return this.ratchets[lane]!.open(bytes, parties, nowMs())
  }

  /** A reset counts once it is stored. Until then, the next process detects it again. */
  #report(lane: number, bytes: Uint8Array, news: readonly RatchetNews[]): void {
    const { oracle, no } = this.#owner
    const report = () => oracle.news(no, lane, sessionIdOf(bytes), news)
    if (news.includes('ratchet_reset')) this.#write(this.#stateOf(lane), report)
    else report()
  }

  #opened(message: QueuedMessage, opened: RatchetOpening & { ok: true }, hasMark: boolean): void {
    const { oracle, random, chances } = this.#owner
    oracle.opened(message.envelopeId, decoder.decode(opened.text), hasMark)
    if (hasMark) return this.#settle(message, opened.place)
    if (random.chance(chances.appRejects)) return this.#refuse(message, 'app_rejected')
    if (random.chance(chances.appHolds)) this.#held.set(message.envelopeId, { message, place: opened.place })
    else this.#settle(message, opened.place)
  }

  #settle(message: QueuedMessage, place: RatchetPlace): void {
    const { oracle, random, chances, broker } = this.#owner
    this.ratchets[message.lane]!.settle(place)
    const mark: Change = [`settled ${message.envelopeId}`, new Uint8Array(0)]
    this.#write([mark, ...this.#stateOf(message.lane)], () => oracle.settled(message.envelopeId))
    this.#held.delete(message.envelopeId)
    if (!random.chance(chances.replyLost)) broker.settle(message)
  }

  #repeated(message: QueuedMessage): void {
    this.#owner.oracle.saidSettled(message.envelopeId)
    this.#owner.broker.settle(message)
  }

  #refuse(message: QueuedMessage, code: string): void {
    const { oracle, broker } = this.#owner
    this.#write(this.#stateOf(message.lane), () => undefined)
    oracle.refused(message.envelopeId, code)
    broker.reject(message, code)
  }

  #reportReset(lane: number, news: readonly RatchetNews[]): void {
    if (news.includes('ratchet_reset')) this.#isResetSent.delete(lane)
    if (!this.ratchets[lane]!.owesReset || this.#isResetSent.has(lane)) return
    this.#isResetSent.add(lane)
    this.send(lane, 'reset')
  }

  #agree(lane: number): void {
    const { identity, meshId, peer, broker, no, nowMs, oracle } = this.#owner
    const bundle = broker.bundleOf(1 - no)
    const expected = { meshId, peerKey: peer.peerKey, nowMs: nowMs() }
    const verdict = readPrekeyStatement(bundle.statement, expected)
    assert(verdict.ok, 'the directory is honest')
    const terms = { statement: verdict.statement, oneTime: bundle.oneTime }
    const news = this.ratchets[lane]!.agree({ own: identity, peer }, terms, nowMs())
    oracle.news(no, lane, null, news)
  }

  #transmit(envelopeId: string): void {
    const { records, broker, no, nowMs, random, chances } = this.#owner
    const record = records.get(`out ${envelopeId}`)!
    broker.send({ envelopeId, to: 1 - no, lane: record[0]!, bytes: record.slice(1), atMs: nowMs() })
    if (!random.chance(chances.replyLost)) this.#write([[`out ${envelopeId}`, null]], () => undefined)
  }

  #stateOf(lane: number): Change[] {
    const { bytes, spent } = this.ratchets[lane]!.export()
    this.prekeys.spend(spent)
    return [
      [`ratchet ${lane}`, bytes],
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
