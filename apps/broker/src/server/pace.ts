/** A minimum rate for clients that hold a scarce resource: space for a chunk, a turn to read. */
import type { Millis } from '@sealpost/std'

export interface TransferPace {
  readonly bytesPerSecond: number
  /** A peer may be so far behind its pace. */
  readonly startMs: Millis
}

/** Calls `tooSlow` once when what has passed is less than the pace asks for. */
export class PaceWatch {
  readonly #pace: TransferPace
  readonly #tooSlow: () => void
  #timer: ReturnType<typeof setTimeout> | undefined
  /** Until then what has passed is enough. */
  #untilMs: Millis

  constructor(pace: TransferPace, tooSlow: () => void) {
    this.#pace = pace
    this.#tooSlow = tooSlow
    this.#untilMs = performance.now() + pace.startMs
    this.#wait()
  }

  /** So many bytes more. A burst gives no more time than the start did, beside that of its own bytes. */
  passed(bytes: number): void {
    const nowMs = performance.now()
    const { bytesPerSecond, startMs } = this.#pace
    this.#untilMs = Math.min(this.#untilMs, nowMs + startMs) + (bytes * 1000) / bytesPerSecond
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  #wait(): void {
    this.#timer = setTimeout(() => {
      if (performance.now() < this.#untilMs) this.#wait()
      else this.#tooSlow()
    }, this.#untilMs - performance.now())
    this.#timer.unref()
  }
}

/** The whole body; null when it came too slowly, and the rest of it is not read. @throws what the body throws */
export async function readAtPace(body: Request, pace: TransferPace): Promise<Uint8Array | null> {
  if (!body.body) return new Uint8Array()
  const reader = body.body.getReader()
  let isLate = false
  const watch = new PaceWatch(pace, () => {
    isLate = true
    void reader.cancel().catch(() => undefined) // it has failed already
  })
  const pieces: Uint8Array[] = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (isLate) return null
      if (done) return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
      watch.passed(value.length)
      pieces.push(value)
    }
  } finally {
    watch.stop()
  }
}
