/**
 * Handles presence and ephemeral messages, which reach connected peers and are never stored. When a session ends, the
 * broker forgets this peer's status and subscription, so both are sent again in each session. Pure and synchronous.
 */
import { AVAILABILITIES, type Availability, BODY_BYTES_MAX, type FrameOf, SUMMARY_MAX } from '@sealpost/protocol'
import { type EnvelopeId, isHex, type Millis, type PeerKey } from '@sealpost/std'
import { type SealpostCode, SealpostError } from '../errors.ts'
import { addBounded } from '../inbox/stream-order.ts'
import type { KeyDirectory } from '../keys/key-directory.ts'
import type { EnvelopeOpener } from '../keys/peer-keys.ts'
import { packed } from '../outbox/lane.ts'
import {
  type CryptoPort,
  type EnginePart,
  NO_FRAMES,
  type PeerCounters,
  type PeerEffects,
  type PresenceEntry,
} from '../ports.ts'

export interface Status {
  /** With `dnd`, only messages with priority `now` are pushed; all others wait. */
  readonly availability: Availability
  /** A text for subscribers, up to 120 characters of printable ASCII. The broker can read it. */
  readonly summary?: string
  /** Whether senders receive no receipts when their mail is pushed to this peer or settled. */
  readonly declinesReceipts?: boolean
}

export class PresenceClient implements EnginePart {
  readonly presence: Map<PeerKey, PresenceEntry> = new Map()
  readonly #changed: (entry: PresenceEntry) => void
  #status: FrameOf<'status'> | null = null
  #isStatusSaid = true
  #isWatching = false
  /** Whether the broker has the subscription in this session. */
  #isWatched = false

  constructor(changed: (entry: PresenceEntry) => void) {
    this.#changed = changed
  }

  setStatus({ availability, summary = '', declinesReceipts = false }: Status): void {
    this.#status = { type: 'status', availability, summary, declinesReceipts }
    this.#isStatusSaid = false
  }

  /** Starts or ends the subscription. A new subscription discards the presence that is known. */
  watch(isWatching: boolean): void {
    if (isWatching === this.#isWatching) return
    this.#isWatching = isWatching
    if (isWatching) this.#isWatched = false
    else this.presence.clear()
  }

  connected(): void {
    this.#isStatusSaid = this.#status === null
    this.#isWatched = false
  }

  /** Call when the session has ended, after which no presence is known. */
  disconnected(): void {
    for (const entry of this.presence.values()) if (entry.isOnline) this.#note({ ...entry, isOnline: false })
  }

  received({ peers }: FrameOf<'presence'>): void {
    if (this.#isWatching) for (const entry of peers) this.#note(entry)
  }

  readonly wakeAtMs = Infinity

  takeFrames(): readonly (FrameOf<'status'> | FrameOf<'watch'>)[] {
    if (this.#isStatusSaid && this.#isWatching === this.#isWatched) return NO_FRAMES
    const frames: (FrameOf<'status'> | FrameOf<'watch'>)[] = []
    if (!this.#isStatusSaid) frames.push(this.#status!)
    if (this.#isWatching !== this.#isWatched) frames.push({ type: 'watch', isOn: this.#isWatching })
    this.#isStatusSaid = true
    this.#isWatched = this.#isWatching
    return frames
  }

  #note(entry: PresenceEntry): void {
    const known = this.presence.get(entry.peer)
    this.presence.set(entry.peer, entry)
    if (!known || !isSame(known, entry)) this.#changed(entry)
  }
}

/** Checks a status. @throws SealpostError `summary_malformed`; RangeError if the availability is invalid @internal */
export function validateStatus(status: Status): Status {
  const { availability, summary = '' } = status
  if (!AVAILABILITIES.includes(availability))
    throw new RangeError(`availability must be one of ${AVAILABILITIES.join(', ')}`)
  if (summary.length <= SUMMARY_MAX && /^[ -~]*$/.test(summary)) return status
  throw new SealpostError(
    'summary_malformed',
    `A summary can have at most ${SUMMARY_MAX} characters of printable ASCII.`,
  )
}

function isSame(a: PresenceEntry, b: PresenceEntry): boolean {
  return a.isOnline === b.isOnline && a.availability === b.availability && a.summary === b.summary
}

export interface EphemeralClientPorts {
  readonly crypto: Pick<CryptoPort, 'seal' | 'newEnvelopeId'>
  readonly keys: KeyDirectory
  readonly opening: EnvelopeOpener
  readonly effects: Pick<PeerEffects, 'emit' | 'flushSoon'>
  readonly counters: PeerCounters
}

type Said = FrameOf<'sendEphemeral'>['items'][number]
type ReceivedEphemeral = FrameOf<'pushEphemeral'>['items'][number]
interface Unsealed {
  readonly to: PeerKey
  readonly envelopeId: EnvelopeId
  readonly body: Uint8Array
}

/** The maximum number of messages per peer that wait while its key is requested. */
const PARKED_MAX = 64
/** The number of ids that are remembered to drop repeated messages. */
const RECEIVED_MAX = 4_096
const ITEM_BYTES = 128

/**
 * Sends and receives ephemeral messages. Their sealed notes mark them, so that a broker can't pass one off as mail or
 * vice versa.
 */
export class EphemeralClient implements EnginePart {
  readonly #ports: EphemeralClientPorts
  #isLive = false
  #outgoing: Said[] = []
  readonly #unsealed = new Map<PeerKey, Unsealed[]>()
  readonly #unopened = new Map<PeerKey, ReceivedEphemeral[]>()
  readonly #receivedIds = new Set<string>()

  constructor(ports: EphemeralClientPorts) {
    this.#ports = ports
  }

  /** Returns the id that `ephemeralFailed` will report. @throws SealpostError `body_too_large` */
  send(to: PeerKey, body: Uint8Array, nowMs: Millis): EnvelopeId {
    if (body.length > BODY_BYTES_MAX)
      throw new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`)
    const envelopeId = this.#ports.crypto.newEnvelopeId()
    if (!isHex(to, 32)) this.#lost(envelopeId, 'unknown_recipient')
    else if (!this.#isLive) this.#lost(envelopeId, 'connection_lost')
    else this.#seal({ to, envelopeId, body }, nowMs)
    return envelopeId
  }

  received(items: readonly ReceivedEphemeral[], nowMs: Millis): void {
    for (const item of items) this.#open(item, nowMs)
  }

  failed(items: FrameOf<'ephemeralFailed'>['items']): void {
    for (const { envelopeId, code } of items) this.#lost(envelopeId, code)
  }

  unlock(peer: PeerKey, nowMs: Millis): void {
    for (const message of take(this.#unsealed, peer)) this.#seal(message, nowMs)
    this.received(take(this.#unopened, peer), nowMs)
  }

  refuse(peer: PeerKey, code: SealpostCode): void {
    this.#unopened.delete(peer)
    for (const { envelopeId } of take(this.#unsealed, peer)) this.#lost(envelopeId, code)
  }

  connected(): void {
    this.#isLive = true
  }

  disconnected(): void {
    this.#isLive = false
    const lost = [...this.#outgoing, ...[...this.#unsealed.values()].flat()]
    this.#outgoing = []
    this.#unsealed.clear()
    this.#unopened.clear()
    for (const { envelopeId } of lost) this.#lost(envelopeId, 'connection_lost')
  }

  readonly wakeAtMs = Infinity

  takeFrames(): readonly FrameOf<'sendEphemeral'>[] {
    if (this.#outgoing.length === 0) return NO_FRAMES
    const frames = packed(this.#outgoing, ({ envelope }) => envelope.length + ITEM_BYTES)
    this.#outgoing = []
    return frames.map((items) => ({ type: 'sendEphemeral', items }))
  }

  #seal(message: Unsealed, nowMs: Millis): void {
    const { to: recipient, envelopeId, body } = message
    const { crypto, keys, effects } = this.#ports
    const to = keys.find(recipient, nowMs)
    effects.flushSoon()
    if (!to) {
      if (!park(this.#unsealed, recipient, message)) this.#lost(envelopeId, 'busy')
      return
    }
    try {
      const draft = { to, envelopeId, stream: null, sentAtMs: Math.floor(nowMs), note: { isEphemeral: true }, body }
      this.#outgoing.push({ envelopeId, recipient, envelope: crypto.seal(draft).envelope })
    } catch {
      this.#lost(envelopeId, 'key_refused') // the box key has small order, so nothing can be sealed to it
    }
  }

  #open(item: ReceivedEphemeral, nowMs: Millis): void {
    const { sender, envelopeId } = item
    const { opening, effects, counters } = this.#ports
    const opened = opening.open(item, nowMs)
    if (opened === 'later') return // an ephemeral message may be dropped, so it does not wait
    if (opened === 'asked') {
      park(this.#unopened, sender, item) // drops the message if too many wait, as ephemeral messages may be
      return effects.flushSoon()
    }
    const reason = !opened.ok ? opened.reason : opened.note?.isEphemeral ? null : 'not_ephemeral'
    if (!opened.ok || reason !== null) {
      counters.tampered += 1
      return effects.emit({ type: 'tamper', sender, envelopeId, reason: reason! })
    }
    const id = `${sender} ${envelopeId}`
    if (this.#receivedIds.has(id)) return
    addBounded(this.#receivedIds, id, RECEIVED_MAX)
    effects.emit({ type: 'ephemeral', sender, envelopeId, body: opened.body, sentAtMs: opened.header.sentAtMs })
  }

  #lost(envelopeId: EnvelopeId, code: SealpostCode): void {
    this.#ports.effects.emit({ type: 'ephemeral_lost', envelopeId, code })
  }
}

function park<T>(parked: Map<PeerKey, T[]>, peer: PeerKey, item: T): boolean {
  const items = parked.get(peer)
  if (!items) parked.set(peer, [item])
  else if (items.length < PARKED_MAX) items.push(item)
  else return false
  return true
}

function take<T>(parked: Map<PeerKey, T[]>, peer: PeerKey): T[] {
  const items = parked.get(peer) ?? []
  parked.delete(peer)
  return items
}
