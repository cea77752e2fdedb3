/**
 * What is asked of the broker in a live session and answered by one frame. A question is kept until its answer comes: it
 * is said again in the next session, and after a while without an answer, which a broker gives whose database is away.
 * So only what may be asked twice is asked here.
 */
import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'

const REPLIES = {
  members: 'roster',
  revoke: 'revoked',
  consent: 'consented',
  bind: 'bound',
  setGroup: 'groupSet',
  groups: 'groupList',
  devices: 'deviceList',
  removeDevice: 'deviceRemoved',
  succeed: 'succeeded',
  setPool: 'groupSet',
  pools: 'groupList',
} as const

export type BrokerRequestType = keyof typeof REPLIES
export type BrokerRequestOf<Type extends BrokerRequestType> = Omit<FrameOf<Type>, 'ref'>
export type BrokerReplyTo<Type extends BrokerRequestType> = FrameOf<(typeof REPLIES)[Type]>

export interface ReplyHandler<Type extends BrokerRequestType = BrokerRequestType> {
  replied(answer: BrokerReplyTo<Type>): void
  refused(error: SealpostError): void
}

interface Open {
  readonly frame: FrameOf<BrokerRequestType>
  readonly handler: ReplyHandler
  /** In this session; Infinity: not yet. */
  sentAtMs: Millis
}

const RESEND_AFTER_MS = 5_000

export class BrokerRequests {
  readonly #open = new Map<number, Open>()
  #ref = 0

  send<Type extends BrokerRequestType>(question: BrokerRequestOf<Type>, handler: ReplyHandler<Type>): void {
    this.#ref = (this.#ref + 1) >>> 0
    const frame = { ...question, ref: this.#ref } as unknown as FrameOf<BrokerRequestType>
    this.#open.set(this.#ref, { frame, handler: handler as unknown as ReplyHandler, sentAtMs: Infinity })
  }

  /** Whether any is without an answer. */
  get isOpen(): boolean {
    return this.#open.size > 0
  }

  takeFrames(nowMs: Millis): FrameOf<BrokerRequestType>[] {
    const due = [...this.#open.values()].filter(
      ({ sentAtMs: askedAtMs }) => askedAtMs === Infinity || nowMs - askedAtMs >= RESEND_AFTER_MS,
    )
    for (const open of due) open.sentAtMs = nowMs
    return due.map(({ frame }) => frame)
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { sentAtMs: askedAtMs } of this.#open.values()) atMs = Math.min(atMs, askedAtMs + RESEND_AFTER_MS)
    return atMs
  }

  /** An answer that nobody waits for, or of another kind than was asked for, is passed by. */
  replied(answer: Extract<ServerFrame, BrokerReplyTo<BrokerRequestType>>): void {
    const open = this.#open.get(answer.ref)
    if (!open || REPLIES[open.frame.type] !== answer.type) return
    this.#open.delete(answer.ref)
    open.handler.replied(answer)
  }

  /** The session ended, and what was asked in it. */
  disconnected(): void {
    for (const open of this.#open.values()) open.sentAtMs = Infinity
  }

  close(error: SealpostError): void {
    for (const { handler } of this.#open.values()) handler.refused(error)
    this.#open.clear()
  }
}
