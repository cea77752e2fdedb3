/** The peers that poll: at most one session each, and none together with a socket of the same key. */

import type { Driver } from '@sealpost/driver'
import type { Member } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import { type HttpRefusal, isRefused } from '../refusals.ts'
import { nameOf, type TokenHolder } from '../tokens.ts'
import { type Poll, PolledConnection, type PollResult, type Settling } from './polled-connection.ts'

const SETTLE_WITHIN_MS = 10_000

export class Inboxes {
  private readonly driver: Driver
  private readonly queue: Queue
  private readonly idleMs: Millis
  private readonly sessions = new Map<string, PolledConnection>()

  constructor(driver: Driver, queue: Queue, idleMs: Millis) {
    this.driver = driver
    this.queue = queue
    this.idleMs = idleMs
  }

  /**
   * Waits for deliveries; returns an empty result after the wait. `takesOver`: supersedes a socket of the same key.
   * @throws OperatingError if the database does not respond
   */
  async poll(holder: TokenHolder, poll: Poll & { readonly takesOver: boolean }): Promise<PollResult | HttpRefusal> {
    const session = this.sessions.get(nameOf(holder)) ?? (await this.open(holder, poll))
    return isRefused(session) ? session : session.poll(poll)
  }

  async settle(holder: TokenHolder, frames: readonly Settling[]): Promise<HttpRefusal | null> {
    const session = this.sessions.get(nameOf(holder))
    if (!session?.isOpen) return { code: 'session_over' }
    session.settle(frames)
    const isCommitted = await this.driver.ends.committed(session.member, SETTLE_WITHIN_MS)
    return isCommitted ? null : { code: 'try_later', retryAfterMs: 1000 }
  }

  private async open(
    holder: TokenHolder,
    { max, takesOver }: { readonly max: number; readonly takesOver: boolean },
  ): Promise<PolledConnection | HttpRefusal> {
    const { meshId, peerKey } = holder
    if (!takesOver) await this.driver.knowsPresence(meshId)
    if (!takesOver && this.driver.engine.presence.isServed(meshId, peerKey)) return { code: 'session_conflict' }
    const [member] = await this.queue.findMembers(meshId, [peerKey])
    if (!member) return { code: 'token_invalid' }
    return this.sessions.get(nameOf(holder)) ?? this.opened(nameOf(holder), member, max)
  }

  private opened(name: string, member: Member, credit: number): PolledConnection {
    const { driver, idleMs, sessions } = this
    const ended = () => void sessions.delete(name)
    const session = new PolledConnection(driver, member, credit, { idleMs, ended })
    if (session.isOver) return session
    sessions.set(name, session)
    return session
  }
}
