/**
 * Replaces the operations of a peer by ones that use ratchets. docs/adr/0022-ratchets-in-the-sdk.md explains how ratchets
 * join the batches of the store.
 */
import {
  type BoxKeys,
  type Correspondent,
  ENVELOPE_OVERHEAD_BYTES,
  type EnvelopeDraft,
  type Identity,
  isRatcheted,
  type SealedEnvelope,
  Sealer,
} from '@sealpost/identity'
import {
  INITIATION_BYTES_MAX,
  RATCHET_OVERHEAD_BYTES,
  type RatchetNews,
  type RatchetPlace,
  sealRatcheted,
} from '@sealpost/identity/ratchet'
import { senderKeyBox } from '@sealpost/identity/sender-keys'
import { type FrameOf, PRIORITIES, type Priority } from '@sealpost/protocol'
import { type Millis, type PeerKey, withResolvers } from '@sealpost/std'
import type { PeerEngine } from '../engine.ts'
import type { SealpostError } from '../errors.ts'
import type { HttpAccess, HttpSigner } from '../http/access.ts'
import type { Message, OpenVerdict } from '../inbox/message.ts'
import type { OwnKeys } from '../keys/key-epochs.ts'
import { paddedUpTo } from '../keys/sodium-crypto.ts'
import type { ConnectOptions, PeerPorts } from '../peer.ts'
import {
  type AddedPart,
  type AddedPartPorts,
  type CryptoPort,
  type GroupCrypto,
  type IncomingEnvelope,
  NO_FRAMES,
} from '../ports.ts'
import type { StoreRecord } from '../stores/records.ts'
import { Agreements, ratchetRequired } from './agreements.ts'
import { type GroupPlace, GroupSecrecy } from './group-secrecy.ts'
import { PrekeyPublisher } from './prekey-publisher.ts'
import {
  type KnownPeer,
  laneOf,
  openBytesInLane,
  openInLane,
  type RatchetLane,
  RatchetLanes,
  type RatchetOpener,
} from './ratchet-lanes.ts'

/** A lane that only receives sends an empty message after this time, or this many messages, so that the keys change. */
const UNANSWERED_MS_MAX: Millis = 3_600_000
const UNANSWERED_MAX = 1_000
const DAY_MS: Millis = 86_400_000
const KEYS_KEPT_MS: Millis = 60 * DAY_MS
const PADDING_ROOM_BYTES = ENVELOPE_OVERHEAD_BYTES + RATCHET_OVERHEAD_BYTES + INITIATION_BYTES_MAX
const NO_BODY = new Uint8Array(0)
const ignore = (): void => undefined

/** A message that was opened and has not ended. */
interface OpenedMessage {
  readonly lane: RatchetLane
  readonly place: RatchetPlace | GroupPlace
}

type Operations = Pick<CryptoPort, 'seal' | 'open'> & Pick<OwnKeys, 'activate'>

/** What forward secrecy needs besides the peer. */
export interface SecrecyPlatform {
  /** The clock: milliseconds since 1970. */
  readonly now: () => Millis
  /** Opens the access to the directory of prekeys. */
  readonly accessTo: (place: HttpSigner) => Pick<HttpAccess, 'ask' | 'meshId' | 'close'>
}

/** A peer with whom this one has used a ratchet. */
export type RatchetedPeer = Pick<KnownPeer, 'peer'>

export class PeerSecrecy implements AddedPart {
  readonly pendingCount = 0
  readonly isPoolMember = false
  readonly #ports: PeerPorts
  readonly #options: ConnectOptions
  readonly #platform: SecrecyPlatform
  /** The operations without ratchets. */
  readonly #plain: Operations
  readonly #lanes: RatchetLanes
  readonly #agreements: Agreements
  readonly #publisher: PrekeyPublisher
  readonly #groups: GroupSecrecy
  readonly #engine: PeerEngine
  readonly #sealer: Sealer
  readonly #opened = new Map<string, OpenedMessage>()
  /** Lanes that only receive, in the order of the first message. */
  readonly #unanswered = new Set<RatchetLane>()
  /** Called when a lane has a ratchet or a verdict. */
  readonly #unlocked: (() => void)[] = []
  /** The rejections of calls that wait, for the case that the peer ends. */
  readonly #endings = new Set<(error: SealpostError) => void>()
  readonly #closing = new AbortController()
  #boxes: readonly BoxKeys[]
  #paddedMax = Infinity
  #maintainAtMs: Millis = Infinity
  #access: ReturnType<SecrecyPlatform['accessTo']>
  #added!: AddedPartPorts

  constructor(
    ports: PeerPorts,
    parts: { options: ConnectOptions; records: readonly StoreRecord[]; platform: SecrecyPlatform },
  ) {
    const { options, records, platform } = parts
    const { crypto, meshId, tell } = ports
    const { identity, formerBoxKeys = [], formerKeys = [], padding = false } = options
    this.#ports = ports
    this.#options = options
    this.#platform = platform
    this.#plain = { seal: crypto.seal, open: crypto.open, activate: crypto.activate }
    this.#engine = tell((engine) => engine)
    this.#boxes = [identity.box, ...formerBoxKeys]
    const padTo = (bytes: number) => (padding ? paddedUpTo(bytes, this.#paddedMax) : bytes)
    this.#sealer = new Sealer({ identity, meshId, formerKeys, padTo })
    this.#lanes = new RatchetLanes(meshId, this.#engine.writer!, records)
    this.#access = this.#accessAt(records.find((record) => record.kind === 'addresses')?.cell ?? [])
    const { sealBody } = crypto.groups
    const distribute = (lane: RatchetLane, text: Uint8Array) => this.#distribute(lane, text)
    this.#groups = new GroupSecrecy(
      { meshId, now: platform.now, writer: this.#engine.writer!, plain: this.#plain, sealBody, distribute },
      records,
    )
    const shared = { now: platform.now, lanes: this.#lanes, own: () => this.#own, access: () => this.#signal() }
    this.#agreements = new Agreements({
      ...shared,
      reportNews: (lane, news) => this.#report(lane, news),
      unlock: (peer) => this.#unlock(peer),
    })
    this.#publisher = new PrekeyPublisher({
      ...{ ...shared, meshId },
      stored: () => this.#stored(),
      emit: (event) => this.#added.emit(event),
    })
  }

  /** Replaces the operations of the peer. */
  begin(): void {
    const { crypto, observers } = this.#ports
    const operations: Operations & Pick<CryptoPort, 'awaitsKeys' | 'sealStored'> = {
      seal: (draft, priority) => this.#seal(draft, priority),
      open: (from, arrival) => this.#open(from, arrival),
      awaitsKeys: (to, priority) => this.#awaitsKeys(to, priority),
      sealStored: (draft, priority) => this.#sealStored(draft, priority),
      activate: (next) => this.#activate(next),
    }
    Object.assign(crypto, operations)
    const sealBody: GroupCrypto['sealBody'] = (...sealed) => this.#groups.sealBody(...sealed)
    Object.assign(crypto.groups, { sealBody })
    observers.add((event) => {
      if (event.type === 'addresses') this.#access = this.#accessAt(event.cell)
      else if (event.type === 'receipt') this.#groups.receipt(event)
    })
    this.#engine.hooks.forget = (message, reason) => this.#forget(message, reason)
    this.#engine.add((added) => {
      this.#added = added
      return this
    })
  }

  connected({ envelopeBytesMax }: FrameOf<'welcome'>): void {
    this.#paddedMax = envelopeBytesMax - PADDING_ROOM_BYTES
    this.#maintain()
  }

  /** Renews the prekeys and deletes old keys, also of a peer that stays connected. */
  #maintain(): void {
    this.#maintainAtMs = this.#platform.now() + DAY_MS
    this.#publisher.check()
    this.#expire()
  }

  /** `engineMs` never goes back, so that a clock that was set back causes no loop of early ticks. */
  tick(engineMs: Millis): void {
    const nowMs = Math.max(engineMs, this.#platform.now())
    if (nowMs >= this.#agreements.wakeAtMs) this.#agreements.resume()
    if (nowMs >= this.#maintainAtMs) this.#maintain()
    for (const lane of this.#unanswered) {
      if (nowMs < lane.unanswered!.sinceMs + UNANSWERED_MS_MAX) return
      this.#sendEmpty(lane)
    }
  }

  get wakeAtMs(): Millis {
    const [oldest] = this.#unanswered
    return Math.min(
      this.#agreements.wakeAtMs,
      this.#maintainAtMs,
      oldest ? oldest.unanswered!.sinceMs + UNANSWERED_MS_MAX : Infinity,
    )
  }

  get ratchetedPeers(): readonly RatchetedPeer[] {
    return this.#lanes.peers.filter(({ isPinned }) => isPinned)
  }

  forgetPeer(peer: PeerKey): Promise<void> {
    for (const lane of this.#lanes.forget(peer)) this.#unanswered.delete(lane)
    // Otherwise, the end of such a message would store a ratchet that was deleted.
    for (const [name, { lane }] of this.#opened) if (lane.peer === peer) this.#opened.delete(name)
    return this.#stored()
  }

  takeFrames(): readonly never[] {
    return NO_FRAMES
  }

  readonly received = ignore

  disconnected(): void {
    this.#maintainAtMs = Infinity
  }

  close(error: SealpostError): void {
    for (const end of this.#endings) end(error)
    this.#closing.abort()
    void this.#access.close()
  }

  get #own(): Identity {
    return { signing: this.#options.identity.signing, box: this.#boxes[0]! }
  }

  #accessAt(cell: readonly string[]): ReturnType<SecrecyPlatform['accessTo']> {
    const { url, brokerKey, meshId, identity } = this.#options
    const urls = [...cell, ...(typeof url === 'string' ? [url] : url)]
    return this.#platform.accessTo({ url: urls, brokerKey, meshId, identity })
  }

  #signal(): Pick<HttpAccess, 'ask' | 'meshId'> {
    const access = this.#access
    return { meshId: access.meshId, ask: (ask) => access.ask({ ...ask, signal: this.#closing.signal }) }
  }

  #stored(): Promise<void> {
    return new Promise((resolve) => {
      this.#engine.writer!.whenWritten(resolve)
      this.#added.flushSoon()
    })
  }

  #unlock(peer: PeerKey): void {
    for (const resolve of this.#unlocked.splice(0)) resolve()
    this.#engine.outbox.unlock(peer)
    this.#added.flushSoon()
  }

  #awaitsKeys(to: Correspondent, priority: Priority): boolean {
    if (to.peerKey === this.#ports.self) return false
    const lane = laneOf(this.#lanes, to.peerKey, priority)
    const nowMs = this.#platform.now()
    return lane.ratchet.needsAgreement(nowMs) && this.#agreements.awaits(lane, to, nowMs)
  }

  /** @throws SealpostError `ratchet_required`, `prekey_forged`, … */
  #seal(draft: EnvelopeDraft, priority?: Priority): SealedEnvelope {
    const { peerKey } = draft.to
    if (priority === undefined || peerKey === this.#ports.self) return this.#plain.seal(draft)
    const lane = laneOf(this.#lanes, peerKey, priority)
    const shared = this.#groups.seal(lane, draft)
    if (shared) return shared
    const nowMs = this.#platform.now()
    if (lane.ratchet.needsAgreement(nowMs)) return this.#sealPlain(lane, draft)
    const sealed = sealRatcheted(this.#sealer, lane.ratchet, draft, nowMs)
    this.#sealedIn(lane)
    return sealed
  }

  #distribute(lane: RatchetLane, text: Uint8Array): Uint8Array | null {
    const nowMs = this.#platform.now()
    if (lane.ratchet.needsAgreement(nowMs)) return null
    const sealed = lane.ratchet.seal(text, nowMs)
    this.#sealedIn(lane)
    return sealed
  }

  #sealedIn(lane: RatchetLane): void {
    this.#pin(lane, null)
    this.#unanswered.delete(lane)
    lane.unanswered = null
    this.#lanes.put(lane)
  }

  async #sealStored(draft: EnvelopeDraft, priority: Priority): Promise<SealedEnvelope> {
    while (this.#awaitsKeys(draft.to, priority)) await this.#untilEnd((done) => this.#unlocked.push(done))
    const sealed = this.#seal(draft, priority)
    await this.#untilEnd((done) => void this.#stored().then(done))
    return sealed
  }

  /** Resolves when `begin` reports that it is done. Rejects if the peer ends before. */
  async #untilEnd(begin: (done: () => void) => void): Promise<void> {
    const { promise, resolve, reject } = withResolvers<void>()
    this.#endings.add(reject)
    begin(resolve)
    await promise.finally(() => this.#endings.delete(reject))
  }

  #sealPlain({ peer, refusal }: RatchetLane, draft: EnvelopeDraft): SealedEnvelope {
    if (refusal?.error) throw refusal.error
    if (this.#lanes.peer(peer).isPinned) throw ratchetRequired()
    return this.#plain.seal(draft)
  }

  #open(from: Correspondent, arrival: IncomingEnvelope): OpenVerdict {
    if (from.peerKey === this.#ports.self || arrival.priority === undefined) return this.#plain.open(from, arrival)
    if (isRatcheted(arrival.envelope))
      return senderKeyBox(arrival.envelope) ? this.#openShared(from, arrival) : this.#openRatcheted(from, arrival)
    const opened = this.#plain.open(from, arrival)
    return opened.ok && this.#isDowngrade(from.peerKey, opened) ? { ok: false, reason: 'ratchet_downgrade' } : opened
  }

  /** The peer may have sealed the message before it sealed its first one with a ratchet. Pools have no ratchets. */
  #isDowngrade(peer: PeerKey, { header, note }: Extract<OpenVerdict, { ok: true }>): boolean {
    const { sinceMs } = this.#lanes.peer(peer)
    if (sinceMs === null || note?.pool !== undefined) return false
    return header.sentAtMs > sinceMs || this.#platform.now() - sinceMs > KEYS_KEPT_MS
  }

  #openRatcheted(from: Correspondent, arrival: IncomingEnvelope): OpenVerdict {
    const { lane, opened } = openInLane(this.#opener, from, arrival)
    if (opened.ok) {
      this.#pin(lane, opened.header.sentAtMs)
      this.#opened.set(nameOf(arrival), { lane, place: opened.place })
    }
    this.#openedIn(lane, opened.news)
    if (opened.ok) return opened
    if (opened.reason === 'prekey_gone') this.#publisher.lost()
    return { ok: false, reason: REASONS[opened.reason] ?? opened.reason }
  }

  #openShared(from: Correspondent, arrival: IncomingEnvelope): OpenVerdict {
    const lane = laneOf(this.#lanes, from.peerKey, arrival.priority!)
    const { verdict, place } = this.#groups.open(from, arrival, (distribution) => {
      const opened = openBytesInLane(this.#opener, lane, from, distribution)
      this.#openedIn(lane, opened.news)
      if (!opened.ok && opened.code === 'prekey_gone') this.#publisher.lost()
      return opened
    })
    if (!verdict.ok || !place) return verdict
    this.#pin(lane, verdict.header.sentAtMs)
    this.#opened.set(nameOf(arrival), { lane, place })
    return verdict
  }

  get #opener(): RatchetOpener {
    const { now } = this.#platform
    return { now, sealer: this.#sealer, own: this.#own, ownBoxes: this.#boxes, lanes: this.#lanes }
  }

  #openedIn(lane: RatchetLane, news: readonly RatchetNews[]): void {
    if (news.includes('ratchet_agreed')) lane.hasUnstoredSession = true
    if (news.length > 0) this.#report(lane, news)
  }

  /** `sentAtMs`: of a message of the peer; null for one to it. */
  #pin({ peer }: RatchetLane, sentAtMs: Millis | null): void {
    const known = this.#lanes.peer(peer)
    const sinceMs = sentAtMs === null ? known.sinceMs : Math.min(sentAtMs, known.sinceMs ?? Infinity)
    if (!known.isPinned || sinceMs !== known.sinceMs) this.#lanes.putPeer({ ...known, isPinned: true, sinceMs })
  }

  #report(lane: RatchetLane, news: readonly RatchetNews[]): void {
    const { peer, no, ratchet } = lane
    for (const each of news) this.#added.emit({ type: 'ratchet', peer, priority: PRIORITIES[no] ?? null, news: each })
    if (news.includes('ratchet_reset')) {
      lane.isResetReported = false
      this.#lanes.put(lane)
    }
    if (ratchet.owesReset && !lane.isResetReported) this.#sendEmpty(lane)
  }

  /** Deletes the key of a message that was settled. That of a rejected one remains, because it may be redriven. */
  #forget(message: Message, reason: string | null): void {
    const name = nameOf(message)
    const opened = this.#opened.get(name)
    if (!opened) return
    const { lane, place } = opened
    this.#opened.delete(name)
    if ('received' in place) this.#groups.end(place, lane, reason)
    else if (reason === null) lane.ratchet.settle(place)
    if (reason === null && !isEmpty(message)) this.#countUnanswered(lane)
    this.#lanes.put(lane)
  }

  #countUnanswered(lane: RatchetLane): void {
    const { count, sinceMs } = lane.unanswered ?? { count: 0, sinceMs: this.#platform.now() }
    lane.unanswered = { count: count + 1, sinceMs }
    this.#unanswered.add(lane)
    if (count + 1 >= UNANSWERED_MAX) this.#sendEmpty(lane)
  }

  /** Lets the peer change its keys, or shows it a reset. The recipient settles the message without the application. */
  #sendEmpty(lane: RatchetLane): void {
    this.#unanswered.delete(lane)
    lane.unanswered = null
    lane.isResetReported = true
    const priority = PRIORITIES[lane.no]!
    const fixed = { ttlSeconds: 0, note: { isConfirmation: true }, body: NO_BODY, accepted: ignore, refused: ignore }
    this.#engine.enqueue({ to: lane.peer, priority, ...fixed })
  }

  #activate(next: BoxKeys): void {
    this.#plain.activate(next)
    this.#boxes = [next, ...this.#boxes.filter(({ epoch }) => epoch !== next.epoch)]
    this.#publisher.check()
  }

  /** Deletes the keys of messages that did not arrive in time. */
  #expire(): void {
    const { statement } = this.#lanes
    const nowMs = this.#platform.now()
    if (!statement || nowMs - statement.expiredAtMs < DAY_MS) return
    this.#lanes.statement = { ...statement, expiredAtMs: nowMs }
    this.#lanes.putPrekeys()
    this.#groups.expire(nowMs - KEYS_KEPT_MS, (peer, no) => this.#lanes.lane(peer, no))
    for (const lane of this.#lanes.all()) {
      lane.ratchet.expire(nowMs - KEYS_KEPT_MS)
      this.#lanes.put(lane)
    }
  }
}

/** Only `does_not_open` makes the peer ask for other box keys of the sender. */
const REASONS: Readonly<Record<string, string>> = { box_key_unknown: 'does_not_open', does_not_open: 'ratchet_forged' }

const nameOf = ({ sender, envelopeId }: Pick<IncomingEnvelope, 'sender' | 'envelopeId'>) => `${sender} ${envelopeId}`

const isEmpty = ({ note, body }: Message): boolean => note?.isConfirmation === true && body.length === 0
