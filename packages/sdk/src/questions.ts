/**
 * What is asked of the broker in a live session and answered by one frame. A question is kept until its answer comes: it
 * is said again in the next session, and after a while without an answer, which a broker gives whose database is away.
 * So only what may be asked twice is asked here.
 */
import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { SealpostError } from './errors.ts'

const ANSWERS = {
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

export type QuestionType = keyof typeof ANSWERS
export type QuestionOf<Type extends QuestionType> = Omit<FrameOf<Type>, 'ref'>
export type AnswerTo<Type extends QuestionType> = FrameOf<(typeof ANSWERS)[Type]>

export interface Asker<Type extends QuestionType = QuestionType> {
  answered(answer: AnswerTo<Type>): void
  refused(error: SealpostError): void
}

interface Open {
  readonly frame: FrameOf<QuestionType>
  readonly asker: Asker
  /** In this session; Infinity: not yet. */
  askedAtMs: Millis
}

const ASK_AGAIN_MS = 5_000

export class Questions {
  readonly #open = new Map<number, Open>()
  #ref = 0

  ask<Type extends QuestionType>(question: QuestionOf<Type>, asker: Asker<Type>): void {
    this.#ref = (this.#ref + 1) >>> 0
    const frame = { ...question, ref: this.#ref } as unknown as FrameOf<QuestionType>
    this.#open.set(this.#ref, { frame, asker: asker as unknown as Asker, askedAtMs: Infinity })
  }

  /** Whether any is without an answer. */
  get isOpen(): boolean {
    return this.#open.size > 0
  }

  takeFrames(nowMs: Millis): FrameOf<QuestionType>[] {
    const due = [...this.#open.values()].filter(
      ({ askedAtMs }) => askedAtMs === Infinity || nowMs - askedAtMs >= ASK_AGAIN_MS,
    )
    for (const open of due) open.askedAtMs = nowMs
    return due.map(({ frame }) => frame)
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { askedAtMs } of this.#open.values()) atMs = Math.min(atMs, askedAtMs + ASK_AGAIN_MS)
    return atMs
  }

  /** An answer that nobody waits for, or of another kind than was asked for, is passed by. */
  answered(answer: Extract<ServerFrame, AnswerTo<QuestionType>>): void {
    const open = this.#open.get(answer.ref)
    if (!open || ANSWERS[open.frame.type] !== answer.type) return
    this.#open.delete(answer.ref)
    open.asker.answered(answer)
  }

  /** The session ended, and what was asked in it. */
  disconnected(): void {
    for (const open of this.#open.values()) open.askedAtMs = Infinity
  }

  close(error: SealpostError): void {
    for (const { asker } of this.#open.values()) asker.refused(error)
    this.#open.clear()
  }
}
