/**
 * Signals due messages from a sleeping thread, which is 0.1 ms late and takes a twentieth of a core. The event loop's
 * timers are up to a millisecond late, which would count as latency.
 */
import { dueMs } from './plan.ts'

export interface PaceOrder {
  readonly atMs: number
  readonly rate: number
  readonly total: number
}

declare const self: Worker

const never = new Int32Array(new SharedArrayBuffer(4))
const sleep = (ms: number) => Atomics.wait(never, 0, 0, ms)
const nowMs = () => performance.timeOrigin + performance.now()

self.onmessage = ({ data: { atMs, rate, total } }: MessageEvent<PaceOrder>) => {
  const lastMs = dueMs(rate, total - 1)
  for (let number = 0, ms = 0; ms <= lastMs; ms = dueMs(rate, ++number)) {
    if (number > 0 && ms === dueMs(rate, number - 1)) continue
    const aheadMs = atMs + ms - nowMs()
    if (aheadMs > 0) sleep(aheadMs)
    postMessage(ms)
    if (ms === lastMs) return
  }
}
