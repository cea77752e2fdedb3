/** Ephemeral envelopes: to whoever is there to hear them, on whichever shard. Nothing of them is stored. */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { type HintOf, WHISPER_BYTES_MAX } from '@sealpost/protocol/hints'
import type { PeerNo } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Presence } from './presence.ts'
import type { LiveSession } from './session.ts'

type Whisper = FrameOf<'whisper'>['items'][number]

export class Whispers {
  private readonly context: Context
  private readonly presence: Presence

  constructor(context: Context, presence: Presence) {
    this.context = context
    this.presence = presence
  }

  send(from: LiveSession, items: readonly Whisper[]): void {
    for (const item of items) {
      const code = this.refusalOf(from, item)
      if (code) this.unheard(from, item, code)
      else if (from.mesh.byKey.get(item.recipient)?.live) this.hand(from, item)
      else this.presence.whenKnown(from.mesh, () => this.hand(from, item))
    }
  }

  /** Another shard's peer whispers to one that may be here. Who it says it is, its envelope proves to the recipient. */
  heard({ meshId, recipient, sender, person, envelopeId, envelope }: HintOf<'whisper'>): void {
    const to = this.context.roster.find(meshId)?.byKey.get(recipient)?.live
    if (to && this.deafness(to, person) === null) this.pass(to, { sender, envelopeId, envelope })
  }

  private hand(from: LiveSession, item: Whisper): void {
    const { mesh, peer } = from
    const { recipient, envelopeId, envelope } = item
    const to = mesh.byKey.get(recipient)
    const code = to?.live ? this.deafness(to.live, peer.person) : this.deafnessElsewhere(from, item)
    if (code) return this.unheard(from, item, code)
    const sender = peer.peerKey
    if (to?.live) return this.pass(to.live, { sender, envelopeId, envelope })
    const { meshId } = mesh
    this.context.effects.hint({ type: 'whisper', meshId, recipient, sender, person: peer.person, envelopeId, envelope })
  }

  private pass(to: LiveSession, whisper: FrameOf<'whispered'>['items'][number]): void {
    this.context.counters.whispered += 1
    to.outgoing.whisper(whisper)
    this.context.touch(to)
  }

  private unheard(from: LiveSession, { envelopeId }: Whisper, code: NackCode): void {
    from.outgoing.notHeard(envelopeId, code)
    this.context.touch(from)
  }

  private refusalOf(from: LiveSession, { envelope }: Whisper): NackCode | null {
    const { limits, nowMs } = this.context
    if (envelope.length > limits.envelopeBytesMax) return 'envelope_too_large'
    return (from.bucket?.take(nowMs) ?? 0) > 0 ? 'rate_limited' : null
  }

  private deafness(to: LiveSession, person: PeerNo): NackCode | null {
    if (to.peer.rule?.admits(person) === false) return 'not_allowed'
    if (!to.isFree) return 'no_responder'
    return to.credit.isCongested ? 'busy' : null
  }

  /** What can't cross the bus finds nobody. Where nobody is, a stranger is not told that it would be refused. */
  private deafnessElsewhere({ mesh, peer }: LiveSession, { recipient, envelope }: Whisper): NackCode | null {
    const to = mesh.elsewhere.find(recipient, this.context.nowMs)
    if (!to) return 'no_responder'
    if (mesh.byKey.get(recipient)?.rule?.admits(peer.person) === false) return 'not_allowed'
    return to.availability === 'dnd' || envelope.length > WHISPER_BYTES_MAX ? 'no_responder' : null
  }
}
