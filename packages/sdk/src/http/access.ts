/**
 * Requests over HTTP in a peer's name: a token is asked for when it is needed, from a broker that proves the pinned key, and
 * asked for again when it is over. A request that fails for the moment is repeated, at the next address if there is one, so
 * every request must bear being said twice.
 */
import type { MeshId, Millis } from '@sealpost/std'
import { backoffMs } from '../connection/backoff.ts'
import { certificateErrorCode, certificateUntrusted } from '../connection/certificate.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'
import {
  answerTo,
  type FetchLike,
  GIVE_BACK_WITHIN_MS,
  type HttpAddress,
  HttpAddresses,
  type Limits,
} from './addresses.ts'
import { type PeerCredentials, requestToken, TokenRefused } from './token.ts'

export interface HttpOptions {
  /** How long a request is repeated while no address answers, or the broker has no time. Default 5 minutes. */
  readonly patienceMs?: Millis
  /** Default: the platform's. */
  readonly fetch?: FetchLike
}

export interface HttpAsk {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** With its query. */
  readonly path: string
  readonly json?: object
  readonly bytes?: Uint8Array
  /** It is not said again when no answer came: whoever asks looks first what became of it. */
  readonly isOnce?: boolean
  readonly signal?: AbortSignal | undefined
}

export interface HttpAnswer {
  readonly bytes: Uint8Array
  json<T>(): T
}

/** It is one peer's in one mesh. Close it, or its token lives on for a quarter of an hour. */
export class HttpAccess {
  readonly meshId: MeshId
  readonly #addresses: HttpAddresses<Token>
  readonly #patienceMs: Millis
  readonly #call: FetchLike

  constructor(place: PeerCredentials, { patienceMs = PATIENCE_MS, fetch: call = fetch }: HttpOptions = {}) {
    this.meshId = place.meshId
    this.#addresses = new HttpAddresses(place)
    this.#patienceMs = patienceMs
    this.#call = call
  }

  /**
   * @throws SealpostError with the broker's code; `connection_lost` when no address answered for longer than this has
   *   patience; `wrong_broker`, `certificate_untrusted`; the signal's own reason
   */
  async ask(ask: HttpAsk): Promise<HttpAnswer> {
    const untilMs = performance.now() + this.#patienceMs
    for (let failures = 0; ; failures++) {
      ask.signal?.throwIfAborted()
      const outcome = await this.#try(ask, untilMs)
      if ('answer' in outcome) return outcome.answer
      const { error, afterMs } = outcome
      const waitMs = afterMs ?? backoffMs(failures, Math.random)
      const isOver = !error.isRetryable || (ask.isOnce && error.code === 'connection_lost')
      if (isOver || performance.now() + waitMs > untilMs) throw error
      await pause(waitMs, ask.signal)
    }
  }

  /** Gives the tokens back. Never throws. */
  async close(): Promise<void> {
    const given = await this.#addresses.takeTokens()
    const back = { method: 'DELETE', path: '/v1/token' } as const
    await Promise.allSettled(
      given.map(({ address, token }) =>
        this.#send(address, back, { token: token.text, withinMs: GIVE_BACK_WITHIN_MS }),
      ),
    )
  }

  async #try(ask: HttpAsk, untilMs: Millis): Promise<{ answer: HttpAnswer } | Failure> {
    const address = this.#addresses.current
    const withinMs = Math.max(untilMs - performance.now(), ATTEMPT_MIN_MS)
    try {
      const token = await this.#tokenAt(address, { signal: ask.signal, withinMs })
      const { status, bytes } = await this.#send(address, ask, { token: token.text, withinMs })
      this.#addresses.answered(address)
      if (status < 300) return { answer: answerOf(bytes) }
      const failure = failureOf(bytes)
      if (failure.error.code !== 'token_invalid' || token.isFresh()) return this.#turned(address, failure)
      address.token = null // over, or of a database that was restored
      return { error: asRetryable(failure.error), afterMs: 0 }
    } catch (error) {
      ask.signal?.throwIfAborted()
      return this.#turned(address, failureIn(error))
    }
  }

  /** An address that is not believed is passed over as one that does not answer; the last one that is left is reported. */
  #turned(address: HttpAddress<Token>, { error, afterMs }: Failure): Failure {
    const isOfAddress = OF_AN_ADDRESS.includes(error.code)
    if (!isOfAddress || !this.#addresses.failed(address)) return { error, afterMs }
    return { error: asRetryable(error), afterMs: 0 }
  }

  #tokenAt(address: HttpAddress<Token>, limits: Limits): Promise<Token> {
    address.token ??= this.#request(address, limits).catch((error) => {
      address.token = null
      throw error
    })
    return address.token
  }

  async #request(address: HttpAddress<Token>, limits: Limits): Promise<Token> {
    const text = await requestToken(address.place, async (ask) => {
      const { status, bytes } = await this.#send(address, { ...ask, signal: limits.signal }, limits)
      if (status >= 300) throw tokenRefused(bytes)
      return answerOf(bytes).json()
    })
    const sinceMs = performance.now()
    return { text, isFresh: () => performance.now() - sinceMs < FRESH_MS }
  }

  async #send(
    { base }: HttpAddress<Token>,
    { method, path, json, bytes, signal }: HttpAsk,
    { token, withinMs }: Pick<Limits, 'withinMs'> & { token?: string },
  ): Promise<{ status: number; bytes: Uint8Array }> {
    const headers = {
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(json && { 'Content-Type': 'application/json' }),
      ...(bytes && { 'Content-Type': 'application/octet-stream' }),
    }
    const answer = await answerTo(this.#call, base + path, {
      ...{ method, headers, redirect: 'error', credentials: 'omit', signal },
      ...{ bytes: bytes?.length ?? 0, ...(withinMs !== undefined && { withinMs }) },
      body: json ? JSON.stringify(json) : ((bytes as Uint8Array<ArrayBuffer> | undefined) ?? null),
    })
    return { status: answer.status, bytes: new Uint8Array(await answer.arrayBuffer()) }
  }
}

const PATIENCE_MS = 300_000
/** What an attempt gets that begins when the patience is nearly over. */
const ATTEMPT_MIN_MS = 1_000
/** Another address may do better. */
const OF_AN_ADDRESS: readonly string[] = ['connection_lost', 'restarting', 'wrong_broker', 'certificate_untrusted']

interface Failure {
  readonly error: SealpostError
  /** As the broker names it; null: it does not. */
  readonly afterMs: Millis | null
}

interface Token {
  readonly text: string
  /** Given just now: asking for another one would not help. */
  isFresh(): boolean
}

const FRESH_MS = 5000

function answerOf(bytes: Uint8Array): HttpAnswer {
  return { bytes, json: <T>() => JSON.parse(new TextDecoder().decode(bytes)) as T }
}

/** Codes of those that pass. */
const PASSING: readonly string[] = ['rate_limited', 'too_many_requests', 'try_later', 'restarting', 'challenge_invalid']

function failureOf(bytes: Uint8Array): Failure {
  const said = refusalIn(bytes)
  const code = (said?.code ?? 'internal') as SealpostCode
  const isRetryable = PASSING.includes(code)
  const error = new SealpostError(code, `The broker refused it (${code}).`, { isRetryable })
  return { error, afterMs: said?.retryAfterMs ?? null }
}

function tokenRefused(bytes: Uint8Array): TokenRefused {
  const { error, afterMs } = failureOf(bytes)
  return new TokenRefused(error, afterMs)
}

function refusalIn(bytes: Uint8Array): { code: string; retryAfterMs?: number } | null {
  try {
    const said = answerOf(bytes).json<{ code?: unknown; retryAfterMs?: unknown }>()
    if (typeof said.code !== 'string' || !/^[a-z_]{1,40}$/.test(said.code)) return null
    const { code, retryAfterMs } = said
    return { code, ...(typeof retryAfterMs === 'number' && { retryAfterMs }) }
  } catch {
    return null // of a proxy in between
  }
}

const asRetryable = ({ code, message }: SealpostError) => new SealpostError(code, message, { isRetryable: true })

function failureIn(error: unknown): Failure {
  if (error instanceof TokenRefused) return { error: error.refusal, afterMs: error.retryAfterMs }
  if (error instanceof SealpostError) return { error, afterMs: null }
  const trouble = certificateErrorCode(error)
  return { error: trouble === null ? lost(error) : certificateUntrusted(trouble), afterMs: null }
}

const lost = (cause: unknown) =>
  new SealpostError('connection_lost', 'The broker does not answer by HTTP.', { isRetryable: true, cause })

function pause(ms: Millis, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }, ms)
    signal?.addEventListener('abort', abort, { once: true })
  })
}
