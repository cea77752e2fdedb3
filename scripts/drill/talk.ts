/** Two peers of a drill: one says numbers to the other, at a steady rate, whatever becomes of their brokers. */
import { setTimeout as delay } from 'node:timers/promises'
import { connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import type { Place, SecretKeys } from '../load/orders.ts'
import { identityOf } from '../load/seed.ts'
import { type Order, orderOf } from './order.ts'

/** How long a peer was without a session. */
export interface Outage {
  readonly lostAtMs: Millis
  servedAtMs: Millis
}

interface TalkPlace extends Place {
  readonly meshId: MeshId
}

export class Talk {
  isOver = false
  sent = 0
  /** How late this program came to a send at most: on a busy machine it waits for itself. */
  lateMs: Millis = 0
  /** How many times its sender was told that the database was restored, and how much it sent again for that. */
  restored = 0
  reoffered = 0
  private readonly ackedAtMs: Millis[] = []
  private longestMs: Millis = 0
  private longestReadMs: Millis = 0
  private readonly calledAtMs: Millis[] = []
  private readonly read: number[] = []
  /** Of each of the two. */
  private readonly outages: Outage[][] = []
  private sender!: Peer
  private recipient!: Peer
  private to!: PeerKey

  static async open(place: TalkPlace, { from, to }: { from: SecretKeys; to: SecretKeys }): Promise<Talk> {
    const talk = new Talk()
    talk.sender = await talk.join(place, from)
    talk.recipient = await talk.join(place, to)
    talk.to = talk.recipient.key
    talk.recipient.onMessage((message) => talk.take(Number(message.text())))
    return talk
  }

  get isOnline(): boolean {
    return this.sender.isOnline && this.recipient.isOnline
  }

  get hasAll(): boolean {
    return this.read.length >= this.sent
  }

  get order(): Order {
    return orderOf(this.read, this.sent)
  }

  async keepSending(perSecond: number): Promise<void> {
    const acked: Promise<void>[] = []
    await delay((Math.random() * 1000) / perSecond)
    for (let dueAtMs = performance.now(); !this.isOver; dueAtMs += 1000 / perSecond) {
      await delay(Math.max(0, dueAtMs - performance.now()))
      this.lateMs = Math.max(this.lateMs, performance.now() - dueAtMs)
      acked.push(this.sendOne())
    }
    await Promise.all(acked)
  }

  /** Of all that was answered since it was asked for. */
  takeLongestMs(): Millis {
    const { longestMs } = this
    this.longestMs = 0
    return longestMs
  }

  /** From the call of `send` to the recipient's application. */
  takeLongestReadMs(): Millis {
    const { longestReadMs } = this
    this.longestReadMs = 0
    return longestReadMs
  }

  /** Infinity: nothing was acknowledged since. */
  firstAckSince(atMs: Millis): Millis {
    return this.ackedAtMs.find((ackedAtMs) => ackedAtMs >= atMs) ?? Infinity
  }

  get acked(): number {
    return this.ackedAtMs.length
  }

  cutOffSince(atMs: Millis): Outage[] {
    return this.outages.flat().filter(({ lostAtMs }) => lostAtMs >= atMs)
  }

  async close(): Promise<void> {
    await Promise.all([this.sender.close(), this.recipient.close()])
  }

  private join(place: TalkPlace, secret: SecretKeys): Promise<Peer> {
    const own: Outage[] = []
    const onEvent = (event: PeerEvent) => {
      const { type } = event
      if (type === 'restored') {
        this.restored += 1
        this.reoffered += event.reoffered
      }
      const nowMs = performance.now()
      const last = own.at(-1)
      const isOut = last?.servedAtMs === Infinity
      if (type === 'disconnected' && !isOut) own.push({ lostAtMs: nowMs, servedAtMs: Infinity })
      if (type === 'connected' && isOut) last.servedAtMs = nowMs
    }
    this.outages.push(own)
    return connect({ ...place, identity: identityOf(secret), onEvent })
  }

  private take(number: number): void {
    this.read.push(number)
    this.longestReadMs = Math.max(this.longestReadMs, performance.now() - this.calledAtMs[number]!)
  }

  private async sendOne(): Promise<void> {
    const calledAtMs = performance.now()
    this.calledAtMs.push(calledAtMs)
    await this.sender.send(this.to, String(this.sent++))
    const nowMs = performance.now()
    this.ackedAtMs.push(nowMs)
    this.longestMs = Math.max(this.longestMs, nowMs - calledAtMs)
  }
}
