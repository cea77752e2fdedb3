/**
 * The way of a push to the application and back: open, compare, drop what was seen, hand out, settle. A push whose
 * sender's key is not known yet waits for it, with everything this sender says after it.
 *
 * With a store a message is settled at the broker when its mark is kept, and not before.
 */
import type { Correspondent } from '@sealpost/identity'
import { BATCH_MAX, type FrameOf } from '@sealpost/protocol'
import type { DeliveryId, Millis, PeerKey } from '@sealpost/std'
import type { PeerCounters } from './events.ts'
import { Inbox, type InboxKeeping } from './inbox.ts'
import type { Keeper } from './keeper.ts'
import type { KeyDirectory } from './key-directory.ts'
import { Message, type MessageDesk } from './message.ts'
import type { CryptoPort, Opened, PeerEffects } from './ports.ts'
import { pieces } from './send-frames.ts'

export type Pushed = FrameOf<'push'>['deliveries'][number]

export interface ArrivalPorts {
  readonly crypto: Pick<CryptoPort, 'open'>
  readonly effects: Pick<PeerEffects, 'deliver' | 'announce' | 'flushSoon'>
  readonly keys: KeyDirectory
  readonly counters: PeerCounters
}

/** A broker that pushes mail of a peer it has no key for may find the key later. */
const KEYLESS_RETRY_MS = 60_000
const RETRY_MAX_MS = 0xffffffff

export class Arrivals implements MessageDesk {
  private readonly ports: ArrivalPorts
  private readonly inbox: Inbox<Message>
  private readonly keeper: Keeper | null
  private readonly parked = new Map<PeerKey, Pushed[]>()
  private settling: DeliveryId[] = []
  private retrying: FrameOf<'retry'>['items'] = []
  /** Counts sessions: a delivery is settled in the session it was pushed in, or not at all. */
  private sessionNo = 0

  constructor(ports: ArrivalPorts, keeping?: InboxKeeping) {
    this.ports = ports
    this.inbox = new Inbox(keeping)
    this.keeper = keeping?.keeper ?? null
  }

  connected(): void {
    this.sessionNo += 1
  }

  /** What is not settled will be pushed again in the next session. */
  disconnected(): void {
    this.sessionNo += 1
    this.parked.clear()
    this.settling = []
    this.retrying = []
  }

  pushed(deliveries: readonly Pushed[], nowMs: Millis): void {
    for (const delivery of deliveries) {
      const waiting = this.parked.size > 0 ? this.parked.get(delivery.sender) : undefined
      if (waiting) waiting.push(delivery)
      else this.take(delivery, nowMs)
    }
  }

  /** A sender's key came: what waited for it goes on, in its order. */
  unlock(sender: PeerKey, nowMs: Millis): void {
    const waiting = this.parked.get(sender)
    if (!waiting) return
    this.parked.delete(sender)
    this.pushed(waiting, nowMs)
  }

  /** No believable key: nothing of this sender can be opened now. */
  refuse(sender: PeerKey): void {
    const waiting = this.parked.get(sender)
    if (!waiting) return
    this.parked.delete(sender)
    for (const { id } of waiting) this.retrying.push({ id, afterMs: KEYLESS_RETRY_MS })
    this.ports.effects.flushSoon()
  }

  settle(message: Message): void {
    if (message.state !== 'open') return
    message.state = 'settled'
    this.inbox.settled(message)
    this.ports.counters.settled += 1
    this.settleWhenKept(message)
  }

  retry(message: Message, afterMs: Millis): void {
    if (message.state !== 'open') return
    message.state = 'put off'
    this.inbox.reopened(message)
    this.ports.counters.retried += 1
    if (message.sessionNo !== this.sessionNo) return
    const wholeMs = Math.ceil(Math.min(Math.max(afterMs, 0), RETRY_MAX_MS)) || 0
    this.retrying.push({ id: message.deliveryId, afterMs: wholeMs })
    this.ports.effects.flushSoon()
  }

  takeFrames(): (FrameOf<'settle'> | FrameOf<'retry'>)[] {
    if (this.settling.length === 0 && this.retrying.length === 0) return []
    const { settling, retrying } = this
    this.settling = []
    this.retrying = []
    return [
      ...pieces(settling, BATCH_MAX).map((ids) => ({ type: 'settle' as const, ids })),
      ...pieces(retrying, BATCH_MAX).map((items) => ({ type: 'retry' as const, items })),
    ]
  }

  private take(delivery: Pushed, nowMs: Millis): void {
    const from = this.ports.keys.findForOpening(delivery.sender)
    if (!from) return this.park(delivery)
    const opened = this.open(from, delivery)
    if (opened.ok) return this.takeOpened(delivery, opened, nowMs)
    if (opened.reason === 'does_not_open' && this.ports.keys.recheck(delivery.sender, nowMs)) return this.park(delivery)
    this.reject(delivery, opened.reason)
  }

  private open(from: Correspondent, delivery: Pushed): Opened {
    const opened = this.ports.crypto.open(from, delivery)
    if (opened.ok || opened.reason !== 'does_not_open') return opened
    const former = this.ports.keys.formerOf(delivery.sender)
    return former ? this.ports.crypto.open(former, delivery) : opened
  }

  private takeOpened(delivery: Pushed, opened: Extract<Opened, { ok: true }>, nowMs: Millis): void {
    const { counters, effects } = this.ports
    const { sessionNo } = this
    const message = new Message(this, { pushed: delivery, opened, receivedAtMs: nowMs, sessionNo })
    const verdict = this.inbox.receive(message)
    if (verdict === 'fresh') {
      counters.received += 1
      return effects.deliver(message)
    }
    if (verdict === 'duplicate') {
      counters.duplicates += 1
      return this.settleWhenKept(message)
    }
    if (verdict.running) {
      counters.duplicates += 1
      verdict.running.deliveryId = delivery.id
      verdict.running.sessionNo = this.sessionNo
      return
    }
    counters.received += 1
    const { sender, envelopeId } = delivery
    effects.announce({ type: 'gap', sender, envelopeId, missing: verdict.gap })
    effects.deliver(message)
  }

  private park(delivery: Pushed): void {
    const waiting = this.parked.get(delivery.sender)
    if (waiting) waiting.push(delivery)
    else this.parked.set(delivery.sender, [delivery])
    this.ports.effects.flushSoon() // the question for the key
  }

  /** Settled, or it would come back for ever; its application never sees it. */
  private reject({ id, sender, envelopeId }: Pushed, reason: string): void {
    this.ports.counters.tampered += 1
    this.ports.effects.announce({ type: 'tamper', sender, envelopeId, reason })
    this.settleSoon(id)
  }

  private settleWhenKept(message: Message): void {
    if (!this.keeper) return this.settleIfCurrent(message)
    this.keeper.whenKept(() => this.settleIfCurrent(message))
    this.ports.effects.flushSoon()
  }

  private settleIfCurrent({ deliveryId, sessionNo }: Message): void {
    if (sessionNo === this.sessionNo) this.settleSoon(deliveryId)
  }

  private settleSoon(id: DeliveryId): void {
    this.settling.push(id)
    this.ports.effects.flushSoon()
  }
}
