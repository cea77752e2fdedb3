/** Pools as the engine has them: the statements it believes, messages that go to them, and the work that is taken. */

import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import type { Millis, PoolId } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import { PoolStatements } from '../groups/statement-cache.ts'
import type { OutboxLimits } from '../outbox/outbox.ts'
import type { CryptoPort } from '../ports.ts'
import type { ReplyHandler } from '../requests/broker-requests.ts'
import { PoolJoins } from './pool-joins.ts'
import { PoolSender, type PoolSenderPorts } from './pool-sender.ts'

export interface PoolClientPorts extends Omit<PoolSenderPorts, 'statements'> {
  readonly crypto: CryptoPort
  readonly emit: (event: PeerEvent) => void
  readonly ask: (question: { type: 'pools'; after: PoolId }, handler: ReplyHandler<'pools'>) => void
}

export class PoolClient {
  readonly crypto: CryptoPort['pools']
  readonly statements: PoolStatements
  readonly sender: PoolSender
  readonly joins: PoolJoins
  readonly #ports: PoolClientPorts

  constructor(ports: PoolClientPorts) {
    const { crypto, emit } = ports
    this.#ports = ports
    this.crypto = crypto.pools
    this.statements = new PoolStatements({ crypto: crypto.pools, emit, ask: (after) => this.#ask(after) })
    this.sender = new PoolSender({ ...ports, statements: this.statements })
    this.joins = new PoolJoins(ports)
  }

  connected(limits: OutboxLimits): void {
    this.sender.connected(limits)
  }

  disconnected(): void {
    this.sender.disconnected()
    this.joins.disconnected()
  }

  takeFrames(nowMs: Millis): (FrameOf<'sendPool'> | FrameOf<'joinPool'>)[] {
    return [...this.joins.takeFrames(nowMs), ...this.sender.takeFrames(nowMs)]
  }

  /** Passes by what is none of its own. */
  received(frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'ack') this.sender.acked(frame.items, nowMs)
    else if (frame.type === 'nack') this.sender.nacked(frame.items, nowMs)
    else if (frame.type === 'poolJoined') this.joins.answered(frame)
  }

  /** In a session. */
  get wakeAtMs(): Millis {
    return Math.min(this.joins.wakeAtMs, this.sender.wakeAtMs)
  }

  close(error: SealpostError): void {
    this.sender.close(error)
    this.joins.close(error)
  }

  #ask(after: PoolId): void {
    this.#ports.ask(
      { type: 'pools', after },
      {
        replied: ({ statements, isLast }) => this.statements.listed(statements, isLast),
        refused: (error) => this.statements.close(error),
      },
    )
  }
}
