/** Ephemeral envelopes: to whoever is there to hear them, on whichever shard. Nothing of them is stored. */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { EPHEMERAL_HINT_BYTES_MAX, type HintOf } from '@sealpost/protocol/hints'
import type { PeerNo } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession } from '../model.ts'
import type { Presence } from './presence.ts'

type EphemeralItem = FrameOf<'sendEphemeral'>['items'][number]

export class EphemeralMessages {
  private readonly context: Context
  private readonly presence: Presence

  constructor(context: Context, presence: Presence) {
    this.context = context
    this.presence = presence
  }

  send(from: LiveSession, items: readonly EphemeralItem[]): void {
    for (const item of items) {
      const code = this.refusalOf(from, item)
      if (code) this.refuse(from, item, code)
      else if (from.mesh.byKey.get(item.recipient)?.live) this.route(from, item)
      else this.presence.whenKnown(from.mesh, () => this.route(from, item))
    }
  }

  /** Another shard's peer whispers to one that may be here. Who it says it is, its envelope proves to the recipient. */
  received({ meshId, recipient, sender, user, envelopeId, envelope }: HintOf<'ephemeral'>): void {
    const to = this.context.meshes.find(meshId)?.byKey.get(recipient)?.live
    if (to && this.refusalBy(to, user) === null) this.push(to, { sender, envelopeId, envelope })
  }

  private route(from: LiveSession, item: EphemeralItem): void {
    const { mesh, peer } = from
    const { recipient, envelopeId, envelope } = item
    const to = mesh.byKey.get(recipient)
    const code = to?.live ? this.refusalBy(to.live, peer.user) : this.remoteRefusal(from, item)
    if (code) return this.refuse(from, item, code)
    const sender = peer.peerKey
    if (to?.live) return this.push(to.live, { sender, envelopeId, envelope })
    const { meshId } = mesh
    this.context.effects.hint({ type: 'ephemeral', meshId, recipient, sender, user: peer.user, envelopeId, envelope })
  }

  private push(to: LiveSession, item: FrameOf<'pushEphemeral'>['items'][number]): void {
    this.context.counters.ephemeralPushed += 1
    to.outgoing.pushEphemeral(item)
    this.context.touch(to)
  }

  private refuse(from: LiveSession, { envelopeId }: EphemeralItem, code: NackCode): void {
    from.outgoing.nackEphemeral(envelopeId, code)
    this.context.touch(from)
  }

  private refusalOf(from: LiveSession, { envelope }: EphemeralItem): NackCode | null {
    const { limits, nowMs } = this.context
    if (envelope.length > limits.envelopeBytesMax) return 'envelope_too_large'
    return (from.peer.share.sends?.take(nowMs) ?? 0) > 0 ? 'rate_limited' : null
  }

  private refusalBy(to: LiveSession, user: PeerNo): NackCode | null {
    if (to.peer.rule?.admits(user) === false) return 'not_allowed'
    if (!to.isFree) return 'no_responder'
    return to.credit.isCongested ? 'busy' : null
  }

  /** What can't cross the bus finds nobody. Where nobody is, a stranger is not told that it would be refused. */
  private remoteRefusal({ mesh, peer }: LiveSession, { recipient, envelope }: EphemeralItem): NackCode | null {
    const to = mesh.remotePresence.find(recipient, this.context.nowMs)
    if (!to) return 'no_responder'
    if (mesh.byKey.get(recipient)?.rule?.admits(peer.user) === false) return 'not_allowed'
    return to.availability === 'dnd' || envelope.length > EPHEMERAL_HINT_BYTES_MAX ? 'no_responder' : null
  }
}
