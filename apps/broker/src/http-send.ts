/**
 * Sending by HTTP: each request is a session of its own that only sends. So it disturbs no socket of its peer, its order
 * is that of its list, and a bar after a refusal ends with it.
 */
import type { SendOutcome } from '@sealpost/core'
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
import type { Connection, Driver } from './driver.ts'

export type EnvelopeOutcome =
  | { envelopeId: EnvelopeId; status: 'stored' | 'duplicate' }
  | { envelopeId: EnvelopeId; status: 'refused'; code: RefusalCode; retryAfterMs: Millis }

type Envelopes = FrameOf<'sendWith'>['envelopes']
type Fields = Readonly<Record<string, unknown>>

/** What an envelope need not name, and what its terms need not. */
export const ENVELOPE_DEFAULTS = { priority: 'next', ttlSeconds: 0 } as const
export const TERMS_DEFAULTS: SendTerms = {
  notBeforeMs: 0,
  receipts: 'none',
  thread: NO_THREAD,
  hops: 0,
  noAutoReply: false,
  ifOnline: false,
}

/**
 * Envelopes as in the JSON form of `send`, each with its `terms` or none, and without `isHead`: the first of each lane is
 * its head, since a request waits for no other. `null`: malformed, or an id twice.
 */
export function readEnvelopes(items: readonly unknown[]): Envelopes | null {
  if (!items.every(isPlain)) return null
  const decoded = decodeFields('sendWith', { envelopes: items.map(withDefaults) })
  if (!decoded.ok) return null
  const { envelopes } = decoded.frame
  if (new Set(envelopes.map(({ send }) => send.envelopeId)).size < envelopes.length) return null
  const lanes = new Set<string>()
  return envelopes.map(({ send, terms }) => {
    const lane = send.recipient + send.priority
    const isHead = !lanes.has(lane)
    lanes.add(lane)
    return { send: { ...send, isHead }, terms }
  })
}

function isPlain(item: unknown): item is Fields {
  return isObject(item) && !Object.hasOwn(item, 'isHead') && (item.terms === undefined || isObject(item.terms))
}

function withDefaults({ terms, ...send }: Fields): Fields {
  return { send: { ...ENVELOPE_DEFAULTS, ...send, isHead: false }, terms: { ...TERMS_DEFAULTS, ...(terms as Fields) } }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Shorter than clients and proxies wait, longer than a database that answers at all. */
const ANSWER_WITHIN_MS = 20_000
const UNAVAILABLE_RETRY_MS = 1000

/** @returns an outcome for each envelope, in their order. Their ids must be distinct. */
export async function sendOnce(driver: Driver, from: Member, envelopes: Envelopes): Promise<EnvelopeOutcome[]> {
  const request = new SendRequest(envelopes.length)
  const socket = driver.joined(request, (socket) => driver.engine.provenSender(socket, from))
  const late = setTimeout(() => request.end(), ANSWER_WITHIN_MS)
  try {
    driver.step(() => driver.engine.received(socket, { type: 'sendWith', envelopes }))
    await request.ended
  } finally {
    clearTimeout(late)
    driver.disconnected(socket)
  }
  return envelopes.map(({ send }) => request.outcomeOf(send.envelopeId))
}

const nothing = () => undefined

class SendRequest implements Connection {
  readonly authority = ''
  // A request lives too briefly to be silent, and is read whole before it is sent.
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

  /** What has no answer may be stored. */
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
