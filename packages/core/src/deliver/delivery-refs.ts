/** How the database names a delivery that a session has: its own, or one of a pool. */
import type { DeliveryRef, SessionRef, Settle } from '@sealpost/protocol'
import type { DeliveryId, PeerNo } from '@sealpost/std'
import type { LiveSession } from '../session/session.ts'
import type { Unsettled } from './credit.ts'

export const refOf = (live: LiveSession): SessionRef => ({
  meshId: live.mesh.meshId,
  peer: live.peer.peer,
  epoch: live.epoch,
})

export const deliveryRef = (
  { mesh: { meshId }, peer: { peer } }: LiveSession,
  id: DeliveryId,
  { priority, pool }: { readonly priority: number; readonly pool?: PeerNo | undefined },
): DeliveryRef =>
  pool === undefined
    ? { meshId, recipient: peer, priority, id }
    : { meshId, recipient: pool, priority, id, holder: peer }

/** The epoch under which the session holds it. */
export const epochOf = (live: LiveSession, { pool }: Pick<Unsettled, 'pool'>): number =>
  pool === undefined ? live.epoch : live.openedEpoch

export const settleOf = (live: LiveSession, id: DeliveryId, { priority, pool, receiptTo }: Unsettled): Settle =>
  pool === undefined
    ? { meshId: live.mesh.meshId, recipient: live.peer.peer, priority, id, receiptTo: receiptTo }
    : { meshId: live.mesh.meshId, recipient: pool, priority, id, holder: live.peer.peer, receiptTo: receiptTo }
