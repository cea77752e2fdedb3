/** What waits to be sent to one session, and the frames it goes in: as few as their limits allow. */
import {
  BATCH_MAX,
  type Delivery,
  FRAME_BYTES_MAX,
  type FrameOf,
  type NackCode,
  PRIORITIES,
  type ReceiptEvent,
  type ServerFrame,
  type Terms,
} from '@sealpost/protocol'
import type { EnvelopeId, Millis } from '@sealpost/std'

type PushItem = FrameOf<'push'>['deliveries'][number]
type WithTerms = FrameOf<'pushWith'>['deliveries'][number]
type Whisper = FrameOf<'whispered'>['items'][number]
export type PresenceItem = FrameOf<'presence'>['peers'][number]

/** An attempt has two bytes on the wire. */
const ATTEMPT_MAX = 0xffff
/** A frame that carries envelopes is bounded in bytes too (base64 in the readable form makes them a third longer). */
const CARRIED_BYTES = FRAME_BYTES_MAX / 2
const ITEM_BYTES = 192

export class Outgoing {
  private acks: FrameOf<'ack'>['items'] = []
  private nacks: FrameOf<'nack'>['items'] = []
  /** Those with terms are told apart by them; the order of both together is the order they were pushed in. */
  private deliveries: (PushItem | WithTerms)[] = []
  private receipts: FrameOf<'receipts'>['items'] = []
  private whispers: Whisper[] = []
  private unheard: FrameOf<'unheard'>['items'] = []
  private presences = new Map<string, PresenceItem>()

  ack(envelopeId: EnvelopeId, isDuplicate: boolean): void {
    this.acks.push({ envelopeId, isDuplicate })
  }

  nack(envelopeId: EnvelopeId, code: NackCode, retryAfterMs: Millis): void {
    this.nacks.push({ envelopeId, code, retryAfterMs })
  }

  push(delivery: Delivery, terms: Terms | null): void {
    const push: PushItem = {
      id: delivery.id,
      envelopeId: delivery.envelopeId,
      sender: delivery.sender,
      priority: PRIORITIES[delivery.priority]!,
      attempt: Math.min(delivery.attempt, ATTEMPT_MAX),
      enqueuedAtMs: delivery.enqueuedAtMs,
      envelope: delivery.envelope,
    }
    this.deliveries.push(terms ? { push, terms } : push)
  }

  receipt({ id, envelopeId, sender, enqueuedAtMs }: Delivery, event: ReceiptEvent): void {
    this.receipts.push({ id, envelopeId, recipient: sender, event, atMs: enqueuedAtMs })
  }

  whisper(item: Whisper): void {
    this.whispers.push(item)
  }

  notHeard(envelopeId: EnvelopeId, code: NackCode): void {
    this.unheard.push({ envelopeId, code })
  }

  /** The newest of a peer counts. */
  presence(item: PresenceItem): void {
    this.presences.set(item.peer, item)
  }

  takeFrames(): ServerFrame[] {
    const frames: ServerFrame[] = []
    for (const items of chunks(this.acks)) frames.push({ type: 'ack', items })
    for (const items of chunks(this.nacks)) frames.push({ type: 'nack', items })
    this.acks = []
    this.nacks = []
    if (this.deliveries.length > 0) this.takePushes(frames)
    if (this.receipts.length + this.whispers.length + this.unheard.length + this.presences.size > 0)
      this.takeRare(frames)
    return frames
  }

  private takePushes(frames: ServerFrame[]): void {
    for (const run of runs(this.deliveries)) {
      if (isPlain(run[0]!)) {
        for (const deliveries of carried(run as PushItem[], sizeOf)) frames.push({ type: 'push', deliveries })
      } else {
        const sized = carried(run as WithTerms[], ({ push }) => sizeOf(push))
        for (const deliveries of sized) frames.push({ type: 'pushWith', deliveries })
      }
    }
    this.deliveries = []
  }

  private takeRare(frames: ServerFrame[]): void {
    for (const items of chunks(this.receipts)) frames.push({ type: 'receipts', items })
    for (const items of carried(this.whispers, sizeOf)) frames.push({ type: 'whispered', items })
    for (const items of chunks(this.unheard)) frames.push({ type: 'unheard', items })
    for (const peers of chunks([...this.presences.values()]))
      frames.push({ type: 'presence', peers, isSnapshot: false })
    this.receipts = []
    this.whispers = []
    this.unheard = []
    this.presences.clear()
  }
}

const isPlain = (item: PushItem | WithTerms): item is PushItem => !('terms' in item)
const sizeOf = ({ envelope }: { envelope: Uint8Array }): number => envelope.length + ITEM_BYTES

/** Neighbours of one kind; all of them, when none has terms. */
function runs(items: (PushItem | WithTerms)[]): (PushItem | WithTerms)[][] {
  if (items.every(isPlain)) return [items]
  const result: (PushItem | WithTerms)[][] = []
  for (const item of items) {
    const last = result.at(-1)
    if (last && isPlain(last[0]!) === isPlain(item)) last.push(item)
    else result.push([item])
  }
  return result
}

export function chunks<T>(items: T[]): T[][] {
  if (items.length <= BATCH_MAX) return items.length === 0 ? [] : [items]
  const result: T[][] = []
  for (let i = 0; i < items.length; i += BATCH_MAX) result.push(items.slice(i, i + BATCH_MAX))
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
