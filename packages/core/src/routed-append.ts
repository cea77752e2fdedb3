import { type Append, type Delivery, encodeTerms, type SharedBody } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerNo } from '@sealpost/std'
import type { Context } from './context.ts'
import { Pool } from './pool-roster.ts'
import type { Peer } from './roster.ts'
import { type Arrival, type Broadcast, type LiveSession, PRIORITY_NUMBERS } from './session.ts'

/** Whoever can be written to. */
export type Recipient = Peer | Pool

/** The epochs of its lease at birth; 0: none. */
export type Birth = Pick<Append, 'birthEpoch' | 'epochElsewhere'>

/** An append that remembers whose it is, so that its answer needs no lookup. */
export class RoutedAppend implements Append {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly recipient: PeerNo
  readonly envelopeId: EnvelopeId
  readonly priority: number
  readonly ttlSeconds: number
  readonly envelope: Uint8Array
  readonly birthEpoch: number
  readonly epochElsewhere: number
  readonly terms: Uint8Array | null
  readonly notBeforeMs: Millis
  readonly body: SharedBody | null
  readonly arrival: Arrival
  readonly from: LiveSession
  readonly to: Recipient
  readonly pool: Pool | null
  /** The recipient's session whose credit counts this envelope. */
  readonly toLive: LiveSession | null
  /** When its sender was let through with it. */
  readonly routedAtMs: Millis
  private readonly context: Context

  constructor(
    from: LiveSession,
    to: Recipient,
    arrival: Arrival,
    { ttlSeconds, context }: { ttlSeconds: number; context: Context },
    birth: Birth,
  ) {
    const { item } = arrival
    this.meshId = from.mesh.meshId
    this.sender = from.peer.peer
    this.recipient = to.peer
    this.envelopeId = item.envelopeId
    this.priority = PRIORITY_NUMBERS[item.priority]
    this.ttlSeconds = ttlSeconds
    this.envelope = item.envelope
    this.birthEpoch = birth.birthEpoch
    this.epochElsewhere = birth.epochElsewhere
    this.context = context
    this.terms = arrival.terms && encodeTerms(arrival.terms)
    this.notBeforeMs = arrival.terms?.notBeforeMs ?? 0
    this.pool = to instanceof Pool ? to : null
    this.body = this.pool ? bodyFor(this.pool, arrival.body!) : (arrival.body?.shared ?? null)
    this.arrival = arrival
    this.from = from
    this.routedAtMs = context.nowMs
    this.to = to
    this.toLive = this.notBeforeMs > 0 ? null : to.live
  }

  /** Asked for when the commit begins: the one before it may have shown more, or that a resend was stored meanwhile. */
  get birthFloor(): number {
    return this.birthEpoch === 0 ? 0 : this.toLive!.credit.seenUpTo(this.from, this.context.nowMs)
  }

  get byteCount(): number {
    return this.envelope.length + (this.body?.bytes.length ?? 0)
  }

  /** What its recipient is pushed when it was born leased. */
  firstDelivery(id: DeliveryId, enqueuedAtMs: Millis): Delivery {
    return {
      id,
      envelopeId: this.envelopeId,
      sender: this.from.peer.peerKey,
      priority: this.priority,
      attempt: 1,
      enqueuedAtMs,
      envelope: this.envelope,
      terms: this.terms,
      body: this.body?.bytes ?? null,
    }
  }
}

/** Who has no box, or is no member any more, is given nothing. */
function bodyFor({ members }: Pool, { shared, toPool }: Broadcast): SharedBody {
  return { ...shared, readers: toPool!.readers.flatMap((key) => members.get(key) ?? []) }
}
