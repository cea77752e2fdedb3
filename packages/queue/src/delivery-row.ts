/** A delivery as the claims answer it. */
import type { Delivery } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import type { Row } from './run.ts'

export interface DeliveryRow extends Row {
  id: DeliveryId | null
  priority: number
  attempts: number
  envelope: Uint8Array
  envelope_id: string
  terms: Uint8Array | null
  body: Uint8Array | null
  enqueued_at_ms: number
  sender: PeerKey
}

export function deliveryOf(row: DeliveryRow): Delivery {
  return {
    id: row.id!,
    envelopeId: row.envelope_id.replaceAll('-', '') as EnvelopeId,
    sender: row.sender,
    priority: row.priority,
    attempt: row.attempts,
    enqueuedAtMs: Math.floor(row.enqueued_at_ms),
    envelope: row.envelope,
    terms: row.terms,
    body: row.body,
  }
}
