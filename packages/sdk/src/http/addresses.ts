/**
 * The addresses of one mesh for requests over HTTP. Requests go to one address until it fails, then to the next one. Each
 * address has a token of its own, because a token is shown only to a broker that proved the pinned key there.
 */
import type { Millis } from '@sealpost/std'
import type { PeerCredentials, TokenTarget } from './token.ts'

/** The platform's `fetch`, as far as it is used. */
export type FetchLike = (url: string, init: RequestInit) => Promise<Response>

export class HttpAddress<Token> {
  readonly place: TokenTarget
  /** `https://host[:port]` */
  readonly base: string
  token: Promise<Token> | null = null

  constructor(place: TokenTarget) {
    const { protocol, host } = new URL(place.url)
    this.place = place
    this.base = `${protocol === 'wss:' || protocol === 'https:' ? 'https' : 'http'}://${host}`
  }
}

export class HttpAddresses<Token> {
  readonly #all: readonly HttpAddress<Token>[]
  #at = 0
  /** In a row, of all addresses. */
  #failures = 0

  constructor({ url, ...place }: PeerCredentials) {
    const urls = typeof url === 'string' ? [url] : [...new Set(url)]
    this.#all = urls.map((each) => new HttpAddress({ ...place, url: each }))
  }

  get current(): HttpAddress<Token> {
    return this.#all[this.#at]!
  }

  answered(address: HttpAddress<Token>): void {
    if (address === this.current) this.#failures = 0
  }

  /** @returns whether the next address has not failed since the last answer, so that there is no reason to wait */
  failed(address: HttpAddress<Token>): boolean {
    if (address !== this.current) return true // another request turned already
    this.#failures += 1
    this.#at = (this.#at + 1) % this.#all.length
    return this.#failures % this.#all.length !== 0
  }

  /** Takes the tokens away. Those of an address that does not answer end by themselves. */
  async takeTokens(): Promise<{ readonly address: HttpAddress<Token>; readonly token: Token }[]> {
    const given = this.#all.map(async (address) => ({ address, token: await address.token?.catch(() => null) }))
    const found = await Promise.all(given)
    for (const { address } of found) address.token = null
    const isSilent = (address: HttpAddress<Token>) => address === this.current && this.#failures > 0
    return found.flatMap(({ address, token }) => (token && !isSilent(address) ? [{ address, token }] : []))
  }
}

/** A broker that runs answers in far less: a stopped one must not use up the patience of whoever waits. */
const ANSWER_WITHIN_MS = 8_000
/** A chunk of 256 KiB takes so long over a slow line, before the broker can answer. */
const BYTES_PER_MS = 16
/** Between two reads of an answer. */
const STALL_MS = 20_000
/** A broker takes the token back at once, or it ends by itself. */
export const GIVE_BACK_WITHIN_MS = 1_000

export interface Answering extends Omit<RequestInit, 'signal'>, Limits {}

export interface Limits {
  /** The caller's own. */
  readonly signal?: AbortSignal | undefined
  /** Of the request. */
  readonly bytes?: number
  /** To the first byte of the answer; less than the default if the caller has less time. */
  readonly withinMs?: Millis
  /** Between two reads of the answer, at most. */
  readonly stallMs?: Millis
}

/**
 * A request whose answer must begin in time, and then must not stall. There is no limit for the whole of an answer.
 * @throws the signal's reason; an `Error` when the broker is silent; what `fetch` throws
 */
export async function answerTo(
  call: FetchLike,
  url: string,
  { signal, bytes = 0, withinMs = Infinity, stallMs = STALL_MS, ...init }: Answering,
): Promise<Response> {
  signal?.throwIfAborted()
  const cut = new AbortController()
  const timer = setTimeout(
    () => cut.abort(new Error('The broker did not answer in time.')),
    Math.min(ANSWER_WITHIN_MS + bytes / BYTES_PER_MS, withinMs),
  )
  try {
    const whole = signal ? AbortSignal.any([signal, cut.signal]) : cut.signal
    return unstalled(await call(url, { ...init, signal: whole }), { cut, stallMs })
  } finally {
    clearTimeout(timer)
  }
}

/** Only waiting for the broker counts: a reader that is slow stalls nothing. */
function unstalled(answer: Response, { cut, stallMs }: { cut: AbortController; stallMs: Millis }): Response {
  if (!answer.body) return answer
  const reader = answer.body.getReader()
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const stalled = Promise.withResolvers<never>()
        const timer = setTimeout(() => stalled.reject(new Error('The answer stalled.')), stallMs)
        try {
          const { value, done } = await Promise.race([reader.read(), stalled.promise])
          if (done) controller.close()
          else controller.enqueue(value)
        } catch (error) {
          controller.error(error)
          cut.abort(error)
        } finally {
          clearTimeout(timer)
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
  const { status, statusText, headers } = answer
  return new Response(body, { status, statusText, headers })
}
