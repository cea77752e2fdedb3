/** Packs the items for one session into as few frames as the limits allow. */
import {
  BATCH_MAX,
  type Delivery,
  FRAME_BYTES_MAX,
  type FrameOf,
  LOOKUP_MAX,
  type NackCode,
  NO_THREAD,
  PRIORITIES,
  PRIORITY_COSTS,
  type ReceiptEvent,
  type ServerFrame,
  type Terms,
  type VirtualTimes,
} from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'

type PushItem = FrameOf<'push'>['deliveries'][number]
type WithTerms = FrameOf<'pushWith'>['deliveries'][number]
type WithBody = FrameOf<'pushBody'>['deliveries'][number]
type Pushed = PushItem | WithTerms | WithBody
type EphemeralItem = FrameOf<'pushEphemeral'>['items'][number]
export type PresenceItem = FrameOf<'presence'>['peers'][number]

const ATTEMPT_MAX = 0xffff
/** The maximum size of a frame's envelopes in bytes. In JSON, base64 makes them a third longer. */
const CARRIED_BYTES = FRAME_BYTES_MAX / 2
const ITEM_BYTES = 192

export class Outgoing {
  private acks: FrameOf<'ack'>['items'] = []
  private nacks: FrameOf<'nack'>['items'] = []
  private deliveries: Pushed[] = []
  /** Whether all waiting deliveries have neither terms nor a shared body. */
  private arePlain = true
  private receipts: FrameOf<'receipts'>['items'] = []
  private ephemeral: EphemeralItem[] = []
  private ephemeralNacks: FrameOf<'ephemeralFailed'>['items'] = []
  private presences = new Map<string, PresenceItem>()
  private rotatedKeys = new Set<PeerKey>()

  ack(envelopeId: EnvelopeId, isDuplicate: boolean): void {
    this.acks.push({ envelopeId, isDuplicate })
  }

  nack(envelopeId: EnvelopeId, code: NackCode, retryAfterMs: Millis): void {
    this.nacks.push({ envelopeId, code, retryAfterMs })
  }

  push(delivery: Delivery, terms: Terms | null): void {
    if (terms === null) {
      this.deliveries.push(itemOf(delivery))
      return
    }
    this.arePlain = false
    this.deliveries.push({ push: itemOf(delivery), terms })
  }

  pushBody(delivery: Delivery, body: Uint8Array, terms: Terms | null): void {
    this.arePlain = false
    this.deliveries.push({ push: itemOf(delivery), terms: terms ?? NO_TERMS, body })
  }

  receipt({ id, envelopeId, sender, enqueuedAtMs }: Delivery, event: ReceiptEvent): void {
    this.receipts.push({ id, envelopeId, recipient: sender, event, atMs: enqueuedAtMs })
  }

  pushEphemeral(item: EphemeralItem): void {
    this.ephemeral.push(item)
  }

  nackEphemeral(envelopeId: EnvelopeId, code: NackCode): void {
    this.ephemeralNacks.push({ envelopeId, code })
  }

  presence(item: PresenceItem): void {
    this.presences.set(item.peer, item)
  }

  boxKeyRotated(peer: PeerKey): void {
    this.rotatedKeys.add(peer)
  }

  /**
   * Returns and clears the waiting frames. `withNews`: whether presence updates are included; otherwise, each peer's
   * newest one waits.
   */
  takeFrames({ withNews } = { withNews: true }): ServerFrame[] {
    const frames: ServerFrame[] = []
    if (this.acks.length > 0) {
      if (this.acks.length <= BATCH_MAX) frames.push({ type: 'ack', items: this.acks })
      else for (const items of chunks(this.acks)) frames.push({ type: 'ack', items })
      this.acks = []
    }
    if (this.nacks.length > 0) {
      for (const items of chunks(this.nacks)) frames.push({ type: 'nack', items })
      this.nacks = []
    }
    if (this.deliveries.length > 0) this.takePushes(frames)
    if (this.receipts.length + this.ephemeral.length + this.ephemeralNacks.length > 0) this.takeRare(frames)
    if (withNews && this.presences.size + this.rotatedKeys.size > 0) this.takeNews(frames)
    return frames
  }

  private takePushes(frames: ServerFrame[]): void {
    const { deliveries, arePlain } = this
    if (arePlain && deliveries.length === 1) frames.push({ type: 'push', deliveries: deliveries as PushItem[] })
    else
      for (const run of arePlain ? [deliveries] : runs(deliveries))
        for (const some of carried(run, sizeOf)) frames.push(frameOf(some))
    this.deliveries = []
    this.arePlain = true
  }

  private takeRare(frames: ServerFrame[]): void {
    for (const items of chunks(this.receipts)) frames.push({ type: 'receipts', items })
    for (const items of carried(this.ephemeral, sizeOf)) frames.push({ type: 'pushEphemeral', items })
    for (const items of chunks(this.ephemeralNacks)) frames.push({ type: 'ephemeralFailed', items })
    this.receipts = []
    this.ephemeral = []
    this.ephemeralNacks = []
  }

  private takeNews(frames: ServerFrame[]): void {
    const presences = [...this.presences.values()]
    for (const peers of chunks(presences)) frames.push({ type: 'presence', peers, isSnapshot: false })
    for (const peers of pieces([...this.rotatedKeys], LOOKUP_MAX)) frames.push({ type: 'rebound', peers })
    this.presences.clear()
    this.rotatedKeys.clear()
  }
}

const NO_TERMS: Terms = { receipts: 'none', thread: NO_THREAD, hops: 0, noAutoReply: false }

function itemOf(delivery: Delivery): PushItem {
  return {
    id: delivery.id,
    envelopeId: delivery.envelopeId,
    sender: delivery.sender,
    priority: PRIORITIES[delivery.priority]!,
    attempt: Math.min(delivery.attempt, ATTEMPT_MAX),
    enqueuedAtMs: delivery.enqueuedAtMs,
    envelope: delivery.envelope,
  }
}

type Kind = 'push' | 'pushWith' | 'pushBody'
const kindOf = (item: Pushed): Kind => ('body' in item ? 'pushBody' : 'terms' in item ? 'pushWith' : 'push')

const frameOf = (run: Pushed[]) => ({ type: kindOf(run[0]!), deliveries: run }) as ServerFrame

function sizeOf(item: Pushed | EphemeralItem): number {
  if ('envelope' in item) return item.envelope.length + ITEM_BYTES
  return item.push.envelope.length + ITEM_BYTES + ('body' in item ? item.body.length : 0)
}

/** Groups consecutive items of the same frame type. */
function runs(items: Pushed[]): Pushed[][] {
  const result: Pushed[][] = []
  for (const item of items) {
    const last = result.at(-1)
    if (last && kindOf(last[0]!) === kindOf(item)) last.push(item)
    else result.push([item])
  }
  return result
}

export const chunks = <T>(items: T[]): T[][] => pieces(items, BATCH_MAX)

function pieces<T>(items: T[], size: number): T[][] {
  if (items.length <= size) return items.length === 0 ? [] : [items]
  const result: T[][] = []
  for (let i = 0; i < items.length; i += size) result.push(items.slice(i, i + size))
  return result
}

function carried<T>(items: T[], bytesOf: (item: T) => number): T[][] {
  const result: T[][] = []
  let chunk: T[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = bytesOf(item)
    if (chunk.length > 0 && (chunk.length === BATCH_MAX || byteCount + itemBytes > CARRIED_BYTES)) {
      result.push(chunk)
      chunk = []
      byteCount = 0
    }
    chunk.push(item)
    byteCount += itemBytes
  }
  if (chunk.length > 0) result.push(chunk)
  return result
}

/**
 * Implements weighted fair queueing between the priorities of one recipient. Each delivery advances the virtual time of
 * its priority by its cost (`PRIORITY_COSTS`), and a claim picks the lowest time. A flood of `now` takes 16 of every 21
 * slots, never all. An idle priority saves up at most one delivery.
 */
export class WeightedFairQueue {
  private times: [number, number, number] = [0, 0, 0]

  /** The virtual time of each priority, relative to the last served one. */
  get now(): VirtualTimes {
    return this.times
  }

  served(deliveries: readonly Pick<Delivery, 'priority'>[]): void {
    if (deliveries.length === 0) return
    const isServed = [false, false, false]
    for (const { priority } of deliveries) {
      this.times[priority]! += PRIORITY_COSTS[priority]!
      isServed[priority] = true
    }
    const front = Math.max(...this.times.filter((_, priority) => isServed[priority]))
    for (const [priority, cost] of PRIORITY_COSTS.entries())
      this.times[priority] = Math.max(this.times[priority]! - front, -cost)
  }
}
