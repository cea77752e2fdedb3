/** Runs acts at a steady rate, and waits for conditions with a time limit. */
import { setTimeout as delay } from 'node:timers/promises'
import { clockMs } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'

export interface SteadyRate {
  readonly startMs?: number
  readonly perSecond: number
  /** The duration in seconds, or a function that ends the acts. */
  readonly until: number | (() => boolean)
}

/**
 * Acts at a steady rate without waiting for earlier acts. Runs late acts as soon as possible.
 * @param act - receives the number of earlier acts, and when this one was due
 * @returns the number of acts, once all have ended. Rejects with an act's first error
 */
export async function atRate(
  { startMs = clockMs(), perSecond, until }: SteadyRate,
  act: (turn: number, dueAtMs: number) => Promise<unknown> | undefined,
): Promise<number> {
  const acts: (Promise<unknown> | undefined)[] = []
  const dueAt = (turn: number): number => startMs + (turn * 1000) / perSecond
  const total = typeof until === 'number' ? Math.round(perSecond * until) : Infinity
  const isOver = typeof until === 'number' ? () => false : until
  for (let turn = 0; turn < total && !isOver(); ) {
    const nowMs = clockMs()
    for (; turn < total && dueAt(turn) <= nowMs; turn++) {
      const ended = act(turn, dueAt(turn))
      ended?.catch(() => undefined) // prevents an unhandled rejection
      acts.push(ended)
    }
    if (turn < total) await Bun.sleep(Math.max(1, dueAt(turn) - clockMs()))
  }
  await Promise.all(acts)
  return acts.length
}

/**
 * Settles like the promise of a step, but rejects if it takes too long, so that a step that hangs is named.
 * @throws OperatingError `step_timed_out`
 */
export async function step<T>(name: string, done: Promise<T>, withinMs = WITHIN_MS): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timedOut = () =>
    late.reject(new OperatingError('step_timed_out', `The step did not end within ${withinMs / 1000} s: ${name}.`))
  const timer = setTimeout(timedOut, withinMs)
  try {
    return await Promise.race([done, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

const LOOK_MS: Millis = 20
const WITHIN_MS: Millis = 120_000

/**
 * Resolves once the condition holds.
 * @param claim - the condition, for the error
 * @throws OperatingError `wait_timed_out`
 */
export async function waitUntil(
  claim: string,
  condition: () => boolean | Promise<boolean>,
  withinMs = WITHIN_MS,
): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new OperatingError('wait_timed_out', `Not reached within ${withinMs / 1000} s: ${claim}.`)
    await delay(LOOK_MS)
  }
}
