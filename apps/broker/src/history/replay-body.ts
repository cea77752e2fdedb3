/** The body of a long answer: as fast as it is read and no faster, for as long as somebody reads it. */
import type { Millis } from '@sealpost/std'
import type { Pace } from '../server/pace.ts'

/** What a client may have: `br` costs too much time. In the order in which we would rather. */
const ENCODINGS = ['zstd', 'gzip'] as const
export type Encoding = (typeof ENCODINGS)[number]

/** The encoding for an `Accept-Encoding`; null: none. One with a weight of 0 is not wanted. */
export function encodingFor(header: string | undefined): Encoding | null {
  const wanted = new Set(
    (header ?? '')
      .toLowerCase()
      .split(',')
      .map((part) => part.trim().split(/\s*;\s*q=/))
      .filter(([, weight = '1']) => Number(weight) > 0)
      .map(([name]) => name),
  )
  return ENCODINGS.find((encoding) => wanted.has(encoding)) ?? null
}

export interface BodyOptions {
  /** Aborted when the reader is gone; aborting it ends the body. */
  readonly end: AbortController
  /** A reader that takes less is taken for gone; to one that is not, the answer broke off. */
  readonly pace: Pace
  readonly encoding: Encoding | null
  /** It broke off: the reader, who has part of it, is told by the end that is missing. */
  readonly broken: (error: unknown) => void
}

/**
 * `parts` is ended in every case. It has begun, or is a body that holds nothing. Each part is good until the next is asked for:
 * the server has sent it or kept a copy by then, while a compressor may still be at work on it and gets its own.
 */
export function bodyOf(parts: AsyncGenerator<Uint8Array>, options: BodyOptions): ReadableStream<Uint8Array> {
  const { end, pace, encoding, broken } = options
  const reader = new ReaderPace(pace)
  const over = () => {
    reader.stop()
    void parts.return(undefined).catch(() => undefined) // what failed there has failed its reader already
  }
  end.signal.addEventListener('abort', over, { once: true })
  if (end.signal.aborted) over()
  const cutFrom = (controller: ReadableStreamDefaultController<Uint8Array>) => () => {
    end.abort()
    controller.close() // should it come back, it need not wait for more
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        if (!end.signal.aborted) reader.given(0, cutFrom(controller)) // the first part waits already
      },
      pull: async (controller) => {
        reader.takes()
        const next = await parts.next().catch((error) => broken(error))
        if (end.signal.aborted) return
        if (!next || next.done) return controller.close()
        controller.enqueue(encoding === null ? next.value : new Uint8Array(next.value))
        reader.given(next.value.length, cutFrom(controller))
      },
      cancel: () => {
        over()
        end.abort()
      },
    },
    { highWaterMark: 0 },
  )
  if (encoding === null) return body
  return body.pipeThrough(new CompressionStream(encoding) as unknown as ReadableWritablePair<Uint8Array, Uint8Array>)
}

/**
 * How far a reader is behind its pace. Only the time in which it has something to take counts: what the database takes, or
 * a history in which nothing happens, is not its fault.
 */
class ReaderPace {
  readonly #pace: Pace
  #leftMs: Millis
  #givenAtMs: Millis | null = null
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(pace: Pace) {
    this.#pace = pace
    this.#leftMs = pace.startMs
  }

  given(bytes: number, tooSlow: () => void): void {
    const { bytesPerSecond, startMs } = this.#pace
    this.#leftMs = Math.min(this.#leftMs, startMs) + (bytes * 1000) / bytesPerSecond
    this.#givenAtMs = performance.now()
    this.#timer = setTimeout(tooSlow, this.#leftMs)
    this.#timer.unref()
  }

  takes(): void {
    this.stop()
    if (this.#givenAtMs !== null) this.#leftMs -= performance.now() - this.#givenAtMs
    this.#givenAtMs = null
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}

/**
 * Waits for the first part, so that what fails before it is still an answer of its own. The answer is not a generator: one that
 * was never asked for a part does not run its `finally`, and `parts` would go on.
 * @throws what `parts` throws
 */
export async function begun(parts: AsyncGenerator<Uint8Array>): Promise<AsyncGenerator<Uint8Array>> {
  let first: IteratorResult<Uint8Array> | null = await parts.next()
  const rest = {
    next: async () => {
      const kept = first
      first = null
      return kept ?? parts.next()
    },
    return: () => {
      first = null
      return parts.return(undefined)
    },
  }
  const whole: AsyncGenerator<Uint8Array> = {
    ...rest,
    throw: (error: unknown) => parts.throw(error),
    [Symbol.asyncIterator]() {
      return this
    },
    [Symbol.asyncDispose]: async () => void (await rest.return()),
  }
  return whole
}
