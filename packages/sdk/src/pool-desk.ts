/** Pools as the engine has them: the statements it believes, messages that go to them, and the work that is taken. */
import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import type { Millis, PoolId } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { OutboxLimits } from './outbox.ts'
import { PoolBook } from './pool-book.ts'
import { PoolSeats } from './pool-seats.ts'
import { type PoolSendPorts, PoolSends } from './pool-sends.ts'
import type { CryptoPort } from './ports.ts'
import type { Asker } from './questions.ts'

export interface PoolDeskPorts extends Omit<PoolSendPorts, 'book'> {
  readonly crypto: CryptoPort
  readonly announce: (event: PeerEvent) => void
  readonly ask: (question: { type: 'pools'; after: PoolId }, asker: Asker<'pools'>) => void
}

export class PoolDesk {
  readonly crypto: CryptoPort['pools']
  readonly book: PoolBook
  readonly sends: PoolSends
  readonly seats: PoolSeats
  readonly #ports: PoolDeskPorts

  constructor(ports: PoolDeskPorts) {
    const { crypto, announce } = ports
    this.#ports = ports
    this.crypto = crypto.pools
    this.book = new PoolBook({ crypto: crypto.pools, announce, ask: (after) => this.#ask(after) })
    this.sends = new PoolSends({ ...ports, book: this.book })
    this.seats = new PoolSeats(ports)
  }

  connected(limits: OutboxLimits): void {
    this.sends.connected(limits)
  }

  disconnected(): void {
    this.sends.disconnected()
    this.seats.disconnected()
  }

  takeFrames(nowMs: Millis): (FrameOf<'sendPool'> | FrameOf<'joinPool'>)[] {
    return [...this.seats.takeFrames(nowMs), ...this.sends.takeFrames(nowMs)]
  }

  /** Passes by what is none of its own. */
  received(frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'ack') this.sends.acked(frame.items, nowMs)
    else if (frame.type === 'nack') this.sends.nacked(frame.items, nowMs)
    else if (frame.type === 'poolJoined') this.seats.answered(frame)
  }

  /** In a session. */
  get wakeAtMs(): Millis {
    return Math.min(this.seats.wakeAtMs, this.sends.wakeAtMs)
  }

  close(error: SealpostError): void {
    this.sends.close(error)
    this.seats.close(error)
  }

  #ask(after: PoolId): void {
    this.#ports.ask(
      { type: 'pools', after },
      {
        answered: ({ statements, isLast }) => this.book.listed(statements, isLast),
        refused: (error) => this.book.close(error),
      },
    )
  }
}
