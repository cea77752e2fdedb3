/** One connection, from its greeting to its end, and what a live one owes and is owed. */
import type { Delivery, FrameOf, Member, NackCode, ServerFrame } from '@sealpost/protocol'
import { BATCH_MAX, FRAME_BYTES_MAX, PRIORITIES } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { Credit } from './credit.ts'
import type { SocketId } from './effects.ts'
import type { EngineLimits } from './limits.ts'
import { TokenBucket } from './rate.ts'
import type { Mesh, Peer } from './roster.ts'

/** `over` is final. Every other state may go there; otherwise they follow one another in this order. */
export type SessionState =
  | { readonly name: 'greeted'; readonly hello: FrameOf<'hello'> }
  | { readonly name: 'proving'; readonly credit: number }
  | { readonly name: 'opening'; readonly member: Member; readonly credit: number; readonly proof: Uint8Array }
  | { readonly name: 'live'; readonly live: LiveSession }
  | { readonly name: 'over' }

export class Session {
  readonly socket: SocketId
  readonly connectedAtMs: Millis
  state: SessionState
  heardAtMs: Millis
  pingedAtMs: Millis

  constructor(socket: SocketId, hello: FrameOf<'hello'>, nowMs: Millis) {
    this.socket = socket
    this.connectedAtMs = nowMs
    this.heardAtMs = nowMs
    this.pingedAtMs = nowMs
    this.state = { name: 'greeted', hello }
  }
}

/** One envelope of a `send`, numbered by its arrival in the session. */
export interface Arrival {
  readonly no: number
  readonly item: FrameOf<'send'>['envelopes'][number]
}
type PushItem = FrameOf<'push'>['deliveries'][number]

/** A session that has proven its key and holds its epoch. */
export class LiveSession {
  readonly socket: SocketId
  readonly mesh: Mesh
  readonly peer: Peer
  readonly credit: Credit
  readonly bucket: TokenBucket | null
  epoch: number
  polledAtMs: Millis
  /**
   * What it sent before this moment, through another shard or in a commit whose answer was lost, may have come to the
   * queue unseen: the session's start, or the last of its resends that turned out to be stored.
   */
  knownSince: number

  /** As a sender: envelopes between `send` and `ack`. */
  inFlight = 0
  inFlightBytes = 0
  isPaused = false
  /** Sends that wait, in order, for a recipient's key to be looked up. */
  held: Arrival[] = []
  private arrivals = 0
  isResolving = false
  /** A refused envelope, here by its number, bars what follows it in its lane, until the sender starts again from it. */
  private readonly barred = new Map<string, number>()

  private acks: FrameOf<'ack'>['items'] = []
  private nacks: FrameOf<'nack'>['items'] = []
  private deliveries: PushItem[] = []
  /** Leased to this session, and not to be pushed before something else of the same sender. */
  private parked: Delivery[] = []

  constructor(
    place: { socket: SocketId; mesh: Mesh; peer: Peer; epoch: number; credit: number; nowMs: Millis; moment: number },
    limits: EngineLimits,
  ) {
    this.socket = place.socket
    this.mesh = place.mesh
    this.peer = place.peer
    this.epoch = place.epoch
    this.polledAtMs = place.nowMs
    this.knownSince = place.moment
    this.credit = new Credit({ count: Math.min(place.credit, limits.creditMax), byteCount: limits.creditBytes }, limits)
    this.bucket = limits.rate && new TokenBucket(limits.rate, place.nowMs)
  }

  /** `isHead` says that nothing before it in its lane is outstanding: the sender starts again. */
  arrive(item: Arrival['item']): Arrival {
    this.arrivals += 1
    if (item.isHead && this.barred.size > 0) this.barred.delete(laneOf(item))
    return { no: this.arrivals, item }
  }

  /** Whether nothing before it in its lane was refused. What was refused behind it does not matter. */
  isInSequence({ no, item }: Arrival): boolean {
    return this.barred.size === 0 || no < (this.barred.get(laneOf(item)) ?? Number.POSITIVE_INFINITY)
  }

  bar({ no, item }: Arrival): void {
    const lane = laneOf(item)
    this.barred.set(lane, Math.min(no, this.barred.get(lane) ?? no))
  }

  ack(envelopeId: EnvelopeId, isDuplicate: boolean): void {
    this.acks.push({ envelopeId, isDuplicate })
  }

  nack(envelopeId: EnvelopeId, code: NackCode, retryAfterMs: Millis): void {
    this.nacks.push({ envelopeId, code, retryAfterMs })
  }

  push(delivery: Delivery, nowMs: Millis): void {
    this.deliveries.push({
      id: delivery.id,
      envelopeId: delivery.envelopeId,
      sender: delivery.sender,
      priority: PRIORITIES[delivery.priority]!,
      attempt: Math.min(delivery.attempt, ATTEMPT_MAX),
      enqueuedAtMs: delivery.enqueuedAtMs,
      envelope: delivery.envelope,
    })
    this.count(delivery, nowMs)
  }

  /** Takes its place in the window, to be pushed later. */
  park(delivery: Delivery, nowMs: Millis): void {
    this.parked.push(delivery)
    this.count(delivery, nowMs)
  }

  get hasParked(): boolean {
    return this.parked.length > 0
  }

  takeParked(): Delivery[] {
    const { parked } = this
    if (parked.length > 0) this.parked = []
    return parked
  }

  /** Those of one sender; below an id when it is given. */
  takeParkedOf(sender: PeerKey, before: DeliveryId | undefined): Delivery[] {
    const isTaken = (delivery: Delivery) => delivery.sender === sender && (before === undefined || delivery.id < before)
    const taken = this.parked.filter(isTaken).sort((a, b) => a.id - b.id)
    if (taken.length > 0) this.parked = this.parked.filter((delivery) => !isTaken(delivery))
    return taken
  }

  private count({ id, priority, envelope }: Delivery, nowMs: Millis): void {
    this.credit.pushed(id, { priority, pushedAtMs: nowMs, byteCount: envelope.length })
  }

  /** All that waits to be sent, in as few frames as their limits allow. */
  takeFrames(): ServerFrame[] {
    const frames: ServerFrame[] = []
    for (const items of chunks(this.acks)) frames.push({ type: 'ack', items })
    for (const items of chunks(this.nacks)) frames.push({ type: 'nack', items })
    for (const deliveries of pushChunks(this.deliveries)) frames.push({ type: 'push', deliveries })
    this.acks = []
    this.nacks = []
    this.deliveries = []
    return frames
  }
}

export const PRIORITY_NUMBERS = { now: 0, next: 1, low: 2 } as const

/** An attempt has two bytes on the wire. */
const ATTEMPT_MAX = 0xffff

const laneOf = (item: Arrival['item']): string => item.recipient + item.priority

function chunks<T>(items: T[]): T[][] {
  if (items.length <= BATCH_MAX) return items.length === 0 ? [] : [items]
  const result: T[][] = []
  for (let i = 0; i < items.length; i += BATCH_MAX) result.push(items.slice(i, i + BATCH_MAX))
  return result
}

/** A push carries its envelopes, so it is bounded in bytes too (base64 in the readable form makes them a third longer). */
const PUSH_BYTES = FRAME_BYTES_MAX / 2
const PUSH_ITEM_BYTES = 128

function pushChunks(items: PushItem[]): PushItem[][] {
  const result: PushItem[][] = []
  let chunk: PushItem[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = item.envelope.length + PUSH_ITEM_BYTES
    if (chunk.length > 0 && (chunk.length === BATCH_MAX || byteCount + itemBytes > PUSH_BYTES)) {
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
