/** What a shard says on a socket, with the oracle listening. */
import type { FrameOf, Member, ServerFrame } from '@sealpost/protocol'
import type { DeliveryId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { Link } from './link.ts'
import type { World } from './world.ts'

export interface Socket {
  readonly link: Link
  peer: { meshId: MeshId; peerKey: PeerKey; credit: number } | null
  /** As the database told of it. */
  member: Member | null
  /** With which its session opened; 0 before. */
  epoch: number
  /** Pushed and not settled, and when; what comes of pools is counted there. */
  readonly outstanding: Map<DeliveryId, Millis>
}

export function watchFrame(world: World, socket: Socket, frame: ServerFrame, leaseMs: Millis): void {
  const { peer, outstanding } = socket
  const { oracle, store } = world
  const { nowMs } = world.clock
  if (frame.type === 'welcome') socket.epoch = frame.epoch
  if (!peer) return
  const { meshId, peerKey } = peer
  if (frame.type === 'nack') for (const { code } of frame.items) oracle.mark(`nack: ${code}`)
  if (frame.type === 'ack')
    for (const { envelopeId, isDuplicate } of frame.items) {
      if (isDuplicate) oracle.mark('ack: duplicate')
      const sender = store.findByKey(meshId, peerKey)!.peer
      oracle.ackSent(meshId, peerKey, envelopeId, store.isStored(meshId, sender, envelopeId))
    }
  for (const delivery of pushesOf(frame)) oracle.pushSent(meshId, peerKey, delivery)
  const own = pushesOf(frame).filter(({ sender, envelopeId }) => !oracle.isOfPool(meshId, sender, envelopeId))
  const ids = [...own, ...(frame.type === 'receipts' ? frame.items : [])].map(({ id }) => id)
  if (ids.length === 0) return
  for (const id of ids) outstanding.set(id, nowMs)
  // One that lies there for a lease fills no room any more.
  const held = [...outstanding.values()].filter((atMs) => atMs > nowMs - leaseMs)
  oracle.creditOf(held.length, peer.credit)
}

function pushesOf(frame: ServerFrame): FrameOf<'push'>['deliveries'] {
  if (frame.type === 'push') return frame.deliveries
  const hasMore = frame.type === 'pushWith' || frame.type === 'pushBody'
  return hasMore ? frame.deliveries.map(({ push }) => push) : []
}
