/** Models the lanes of a broker, to test the outbox. Bars lanes, loses replies, and stores each id once. */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { assert, type EnvelopeId, type PeerKey } from '@sealpost/std'
import type { SendItem } from '../outbox/lane.ts'

export class LaneBroker {
  readonly stored: { envelopeId: EnvelopeId; lane: string; body: string }[] = []
  private readonly known = new Map<EnvelopeId, string>()
  private readonly barred = new Set<string>()
  private pending: SendItem[] = []
  private readonly random: () => number

  constructor(random: () => number) {
    this.random = random
  }

  newSession(): void {
    this.barred.clear()
    // A session ended, so an arbitrary number of the appends in flight is stored, without a reply.
    const keep = Math.floor(this.random() * (this.pending.length + 1))
    for (const item of this.pending.slice(0, keep)) this.store(item)
    this.pending = []
  }

  send(items: SendItem[], refuseShare: number): FrameOf<'nack'>['items'] {
    const nacks: FrameOf<'nack'>['items'] = []
    const refuse = (item: SendItem, code: NackCode) => {
      this.barred.add(laneOf(item))
      nacks.push({ envelopeId: item.envelopeId, code, retryAfterMs: code === 'busy' ? 20 : 0 })
    }
    for (const item of items) {
      if (item.isHead) this.barred.delete(laneOf(item))
      if (this.barred.has(laneOf(item))) refuse(item, 'out_of_sequence')
      else if (this.random() < refuseShare) refuse(item, this.random() < 0.5 ? 'busy' : 'rate_limited')
      else this.pending.push(item)
    }
    return nacks
  }

  commit(count: number): SendItem[] {
    const items = this.pending.splice(0, count)
    for (const item of items) this.store(item)
    return items
  }

  /** Loses the replies to all waiting appends, of which only the first are stored. */
  failCommit(): SendItem[] {
    const keep = Math.floor(this.random() * (this.pending.length + 1))
    for (const item of this.pending.slice(0, keep)) this.store(item)
    for (const item of this.pending) this.barred.add(laneOf(item))
    return this.pending.splice(0)
  }

  private store(item: SendItem): void {
    const body = JSON.stringify([...item.envelope.slice(-2)])
    const before = this.known.get(item.envelopeId)
    assert((before ?? body) === body, 'an id keeps its bytes')
    if (before !== undefined) return
    this.known.set(item.envelopeId, body)
    this.stored.push({ envelopeId: item.envelopeId, lane: laneOf(item), body })
  }
}

export const laneOf = (item: { recipient: PeerKey; priority: string }) => item.recipient + item.priority
