/** Produces the body of a long response at the reader's speed. */
import type { Millis } from '@sealpost/std'
import type { TransferPace } from '../server/connection.ts'

/** In order of preference. `br` takes too much CPU. */
const ENCODINGS = ['zstd', 'gzip'] as const
export type Encoding = (typeof ENCODINGS)[number]

/** Returns the encoding for an `Accept-Encoding` header; null for none. */
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
  /** Aborted when the reader disconnects, or to end the body. */
  readonly end: AbortController
  /** The minimum rate, below which the response is cut off. */
  readonly pace: TransferPace
  readonly encoding: Encoding | null
  /** Called after a failure, which the reader detects by the missing end. */
  readonly broken: (error: unknown) => void
}

/**
 * Returns a response body. Always ends `parts`, which must have begun or be empty. Each part is valid until the next is
 * requested, by when the server has copied it; a compressor receives a copy.
 */
export function bodyOf(parts: AsyncGenerator<Uint8Array>, options: BodyOptions): ReadableStream<Uint8Array> {
  const { end, pace, encoding, broken } = options
  const reader = new ReaderPace(pace)
  const over = () => {
    reader.stop()
    void parts.return(undefined).catch(() => undefined) // the reader has already been cut off
  }
  end.signal.addEventListener('abort', over, { once: true })
  if (end.signal.aborted) over()
  const cutFrom = (controller: ReadableStreamDefaultController<Uint8Array>) => () => {
    end.abort()
    controller.close()
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        if (!end.signal.aborted) reader.given(0, cutFrom(controller)) // the first part is available immediately
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

/** Measures how far a reader is behind the minimum rate, only while data is available. */
class ReaderPace {
  readonly #pace: TransferPace
  #leftMs: Millis
  #givenAtMs: Millis | null = null
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(pace: TransferPace) {
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
 * Waits for the first part, so that an earlier failure has its own response. Not a generator: if never read, it would
 * not run its `finally`, and `parts` would continue.
 * @throws the errors of `parts`
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
