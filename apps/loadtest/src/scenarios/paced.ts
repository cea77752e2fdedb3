/** Does something at a steady rate, whatever became of what it did before: late work is done at once, none is left out. */
import { clockMs } from '@sealpost/sdk'

export interface Beat {
  readonly startMs: number
  readonly perSecond: number
  readonly seconds: number
}

/** @param act - is told how many went before and when it was due. Resolves when the last was begun */
export async function paced({ startMs, perSecond, seconds }: Beat, act: (turn: number, dueAtMs: number) => void) {
  const total = Math.round(perSecond * seconds)
  for (let turn = 0; turn < total; ) {
    const nowMs = clockMs()
    for (let dueAtMs = dueOf(turn); turn < total && dueAtMs <= nowMs; dueAtMs = dueOf(++turn)) act(turn, dueAtMs)
    if (turn < total) await Bun.sleep(Math.max(1, dueOf(turn) - clockMs()))
  }
  function dueOf(turn: number): number {
    return startMs + (turn * 1000) / perSecond
  }
}
