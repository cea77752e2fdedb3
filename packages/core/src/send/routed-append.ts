import { type Append, type Delivery, encodeTerms, type SharedBody } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerNo } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { Peer } from '../directory/meshes.ts'
import { Pool } from '../pools/pool-table.ts'
import { type Broadcast, type LiveSession, PRIORITY_NUMBERS, type SendRequest } from '../session/session.ts'

/** Whoever can be written to. */
export type Recipient = Peer | Pool

/** The epochs of its lease at birth; 0: none. */
export type InsertLease = Pick<Append, 'insertLeaseEpoch' | 'remoteLeaseEpoch'>

/** An append that remembers whose it is, so that its answer needs no lookup. */
export class RoutedAppend implements Append {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly recipient: PeerNo
  readonly envelopeId: EnvelopeId
  readonly priority: number
  readonly ttlSeconds: number
  readonly envelope: Uint8Array
  readonly insertLeaseEpoch: number
  readonly remoteLeaseEpoch: number
  readonly terms: Uint8Array | null
  readonly notBeforeMs: Millis
  readonly body: SharedBody | null
  readonly arrival: SendRequest
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
    arrival: SendRequest,
    { ttlSeconds, context }: { ttlSeconds: number; context: Context },
    birth: InsertLease,
  ) {
    const { item } = arrival
    this.meshId = from.mesh.meshId
    this.sender = from.peer.peer
    this.recipient = to.peer
    this.envelopeId = item.envelopeId
    this.priority = PRIORITY_NUMBERS[item.priority]
    this.ttlSeconds = ttlSeconds
    this.envelope = item.envelope
    this.insertLeaseEpoch = birth.insertLeaseEpoch
    this.remoteLeaseEpoch = birth.remoteLeaseEpoch
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
  get insertLeaseFloor(): number {
    return this.insertLeaseEpoch === 0 ? 0 : this.toLive!.credit.scannedUpTo(this.from, this.context.nowMs)
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
