/** The two ways to send: all at once, or by the clock whatever the answers do. */
import { clockMs } from '@sealpost/sdk'
import type { Metronome } from './metronome.ts'
import { dueMs, holds, type Plan, type Share, senderOf, sendersOf } from './plan.ts'

/** Makes one call of `send`; resolves when it was answered, well or badly. */
export type Call = (number: number) => Promise<void>

/**
 * The most calls a peer has open. The window admits far fewer: the others wait in the SDK, as the burst of an application
 * would. That wait is the difference between the two clocks of the report. The bound limits the memory of long runs.
 */
export const CALLS_OPEN_MAX = 1000

/** Each peer makes all its calls at once, the peers one after the other, each in a turn of its own. */
export async function sendBurst(plan: Plan, share: Share, call: Call): Promise<void> {
  const senders = sendersOf(plan)
  for (let peer = share.first; peer < Math.min(share.end, senders); peer++) {
    let number = peer
    const callNext = (): void => {
      if (number >= plan.total) return
      const current = number
      number += senders
      const answered = call(current)
      if (number < plan.total) void answered.then(callNext)
    }
    for (let open = 0; open < CALLS_OPEN_MAX && number < plan.total; open++) callNext()
    await new Promise<void>((resolve) => setImmediate(resolve))
  }
}

/**
 * Open loop: every message is called when it is due, or as soon after as this program gets to it, and its latency counts
 * from when it was due. A slow broker is thus not spared the messages that came due meanwhile.
 */
export function sendPaced(plan: Plan, rate: number, run: { share: Share; atMs: number }, call: Call): Promise<void> {
  const { share, atMs } = run
  const ticking = new Worker(new URL('./metronome.ts', import.meta.url))
  let number = 0
  return new Promise((resolve, reject) => {
    ticking.onerror = ({ message }) => reject(new Error(`The metronome stopped: ${message}`))
    ticking.onmessage = () => {
      const nowMs = clockMs()
      for (; number < plan.total && atMs + dueMs(rate, number) <= nowMs; number++) {
        if (holds(share, senderOf(plan, number))) void call(number)
      }
      if (number < plan.total) return
      ticking.terminate()
      resolve()
    }
    ticking.postMessage({ atMs, rate, total: plan.total } satisfies Metronome)
  })
}
