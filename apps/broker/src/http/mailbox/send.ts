/** Sends over HTTP. Each request is a separate send-only session, whose envelopes are sent in the list's order. */
import type { SendOutcome } from '@sealpost/core'
import type { Connection, Driver } from '@sealpost/driver'
import {
  decodeFields,
  type FrameOf,
  type Member,
  NO_THREAD,
  type RefusalCode,
  type SendTerms,
  type ServerFrame,
} from '@sealpost/protocol'
import type { EnvelopeId, Millis } from '@sealpost/std'

export type EnvelopeOutcome =
  | { envelopeId: EnvelopeId; status: 'stored' | 'duplicate' }
  | { envelopeId: EnvelopeId; status: 'refused'; code: RefusalCode; retryAfterMs: Millis }

/** The contents of a request, with distinct envelope ids. */
export type Sending = FrameOf<'sendWith'> | FrameOf<'broadcast'>
type SendItem = FrameOf<'send'>['envelopes'][number]
type Fields = Readonly<Record<string, unknown>>

export const ENVELOPE_DEFAULTS = { priority: 'next', ttlSeconds: 0 } as const
export const TERMS_DEFAULTS: SendTerms = {
  notBeforeMs: 0,
  receipts: 'none',
  thread: NO_THREAD,
  hops: 0,
  noAutoReply: false,
  ifOnline: false,
}

const { notBeforeMs: _, ifOnline: __, ...SHARED_TERMS_DEFAULTS } = TERMS_DEFAULTS
export const BROADCAST_DEFAULTS = { group: '0'.repeat(32), rosterEpoch: 0, terms: SHARED_TERMS_DEFAULTS } as const

/**
 * Reads envelopes in the JSON form of `send`, with optional `terms` and without `isHead`: each lane's first one is its
 * head. Returns `null` for malformed input or a duplicate id.
 */
export function readEnvelopes(items: readonly unknown[]): Sending | null {
  if (!items.every(isEnvelope) || !items.every(areTermsPlain)) return null
  const envelopes = items.map(({ terms, ...send }) => ({
    send: withDefaults(send),
    terms: { ...TERMS_DEFAULTS, ...(terms as Fields) },
  }))
  const decoded = decodeFields('sendWith', { envelopes })
  if (!decoded.ok) return null
  const { frame } = decoded
  const heads = headsOf(frame.envelopes.map(({ send }) => send))
  return heads && { ...frame, envelopes: frame.envelopes.map(({ terms }, i) => ({ send: heads[i]!, terms })) }
}

/**
 * Reads the fields of a `broadcast`, with envelopes as in a send. Returns `null` for malformed input or a duplicate id.
 */
export function readBroadcast(fields: unknown): Sending | null {
  if (!isObject(fields) || !areTermsPlain(fields) || !Array.isArray(fields.envelopes)) return null
  if (!fields.envelopes.every(isEnvelope)) return null
  const terms = { ...SHARED_TERMS_DEFAULTS, ...(fields.terms as Fields) }
  const envelopes = fields.envelopes.map(withDefaults)
  const decoded = decodeFields('broadcast', { ...BROADCAST_DEFAULTS, ...fields, terms, envelopes })
  if (!decoded.ok) return null
  const heads = headsOf(decoded.frame.envelopes)
  return heads && { ...decoded.frame, envelopes: heads }
}

function headsOf(sends: readonly SendItem[]): SendItem[] | null {
  return new Set(sends.map(({ envelopeId }) => envelopeId)).size < sends.length ? null : withHeads(sends)
}

/** Marks the first envelope of each lane as its head. */
export function withHeads(sends: readonly SendItem[]): SendItem[] {
  const lanes = new Set<string>()
  return sends.map((send) => {
    const lane = send.recipient + send.priority
    const isHead = !lanes.has(lane)
    lanes.add(lane)
    return { ...send, isHead }
  })
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isEnvelope = (item: unknown): item is Fields => isObject(item) && !Object.hasOwn(item, 'isHead')
const areTermsPlain = ({ terms }: Fields): boolean => terms === undefined || isObject(terms)
const withDefaults = (send: Fields): Fields => ({ ...ENVELOPE_DEFAULTS, ...send, isHead: false })

/** The time limit for outcomes: shorter than clients' and proxies' timeouts, longer than a healthy database takes. */
const ANSWER_WITHIN_MS = 20_000
const UNAVAILABLE_RETRY_MS = 1000

/** Sends the envelopes. @returns the outcomes, in the order of the envelopes */
export async function sendOnce(driver: Driver, from: Member, sending: Sending): Promise<EnvelopeOutcome[]> {
  const ids = idsOf(sending)
  const request = new SendRequest(ids.length)
  const socket = driver.joined(request, (socket) => driver.engine.provenSender(socket, from))
  const late = setTimeout(() => request.end(), ANSWER_WITHIN_MS)
  try {
    driver.step(() => driver.engine.received(socket, sending))
    await request.ended
  } finally {
    clearTimeout(late)
    driver.disconnected(socket)
  }
  return ids.map((envelopeId) => request.outcomeOf(envelopeId))
}

function idsOf(sending: Sending): EnvelopeId[] {
  return sending.type === 'broadcast'
    ? sending.envelopes.map(({ envelopeId }) => envelopeId)
    : sending.envelopes.map(({ send }) => send.envelopeId)
}

const nothing = () => undefined

class SendRequest implements Connection {
  readonly authority = ''
  // a request is too short for heartbeats
  readonly ping = nothing
  readonly pause = nothing
  readonly resume = nothing
  readonly ended: Promise<void>
  readonly end: () => void
  private readonly count: number
  private readonly outcomes = new Map<EnvelopeId, EnvelopeOutcome>()

  constructor(count: number) {
    this.count = count
    const { promise, resolve } = Promise.withResolvers<void>()
    this.ended = promise
    this.end = resolve
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    for (const frame of frames) {
      if (frame.type === 'ack') for (const item of frame.items) this.acked(item)
      if (frame.type === 'nack') for (const item of frame.items) this.note({ ...item, status: 'refused' })
    }
    if (this.outcomes.size === this.count) this.end()
    return 'sent'
  }

  close(): void {
    this.end()
  }
  hangUp(): void {
    this.end()
  }

  /** Returns an envelope's outcome. Without a reply, it may have been stored. */
  outcomeOf(envelopeId: EnvelopeId): EnvelopeOutcome {
    const unknown = { envelopeId, status: 'refused', code: 'unavailable', retryAfterMs: UNAVAILABLE_RETRY_MS } as const
    return this.outcomes.get(envelopeId) ?? unknown
  }

  private acked({ envelopeId, isDuplicate }: FrameOf<'ack'>['items'][number]): void {
    this.note({ envelopeId, status: isDuplicate ? 'duplicate' : 'stored' })
  }
  private note(outcome: EnvelopeOutcome): void {
    this.outcomes.set(outcome.envelopeId, outcome)
  }
}
