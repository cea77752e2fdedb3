/** Acting at a steady rate. */
import { clockMs } from '@sealpost/sdk'

export interface SteadyRate {
  /** Default: now. */
  readonly startMs?: number
  readonly perSecond: number
  /** For how long, in seconds; or until this returns true. */
  readonly until: number | (() => boolean)
}

/**
 * Acts at a steady rate, whatever becomes of earlier acts: it makes up for late ones and leaves none out.
 * @param act - gets the number of earlier acts and when this one was due
 * @returns how many acts there were, when all of them have ended. Rejects as the first one does
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
      ended?.catch(() => undefined) // reported below
      acts.push(ended)
    }
    if (turn < total) await Bun.sleep(Math.max(1, dueAt(turn) - clockMs()))
  }
  await Promise.all(acts)
  return acts.length
}
