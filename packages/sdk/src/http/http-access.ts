/**
 * Requests over HTTP in a peer's name: a token is asked for when it is needed, from a broker that proves the pinned key, and
 * asked for anew when it is over. What can't be had now is asked for again, so every request must bear being said twice.
 */
import type { MeshId, Millis } from '@sealpost/std'
import { backoffMs } from '../backoff.ts'
import { certificateTrouble, certificateUntrusted } from '../certificate.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'
import { type HttpPlace, requestToken, TokenRefused } from './http-token.ts'

export interface HttpOptions {
  /** For so long a request is said again to a broker that is not there, or has no time. Default 5 minutes. */
  readonly patienceMs?: Millis
  /** Default: the platform's. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
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
  readonly #place: HttpPlace
  readonly #patienceMs: Millis
  readonly #send: Send
  #token: Promise<Token> | null = null

  constructor(place: HttpPlace, { patienceMs = PATIENCE_MS, fetch: call = fetch }: HttpOptions = {}) {
    const url = new URL(place.url)
    const base = `${url.protocol === 'wss:' || url.protocol === 'https:' ? 'https' : 'http'}://${url.host}`
    this.#place = place
    this.#patienceMs = patienceMs
    this.#send = (ask, token) => send(call, base, ask, token)
  }

  get meshId(): MeshId {
    return this.#place.meshId
  }

  /**
   * @throws SealpostError with the broker's code; `connection_lost` when it was away for longer than this has patience;
   *   `wrong_broker`, `certificate_untrusted`; the signal's own reason
   */
  async ask(ask: HttpAsk): Promise<HttpAnswer> {
    const untilMs = performance.now() + this.#patienceMs
    for (let failures = 0; ; failures++) {
      ask.signal?.throwIfAborted()
      const outcome = await this.#try(ask)
      if ('answer' in outcome) return outcome.answer
      const { error, afterMs } = outcome
      const waitMs = afterMs ?? backoffMs(failures, Math.random)
      const isOver = !error.isRetryable || (ask.isOnce && error.code === 'connection_lost')
      if (isOver || performance.now() + waitMs > untilMs) throw error
      await pause(waitMs, ask.signal)
    }
  }

  /** Gives the token back. Never throws. */
  async close(): Promise<void> {
    const token = await this.#token?.catch(() => null)
    this.#token = null
    if (token) await this.#send({ method: 'DELETE', path: '/v1/token' }, token.text).catch(() => undefined)
  }

  async #try(ask: HttpAsk): Promise<{ answer: HttpAnswer } | Failure> {
    try {
      const token = await this.#current(ask.signal)
      const { status, bytes } = await this.#send(ask, token.text)
      if (status < 300) return { answer: answerOf(bytes) }
      const failure = failureOf(bytes)
      if (failure.error.code !== 'token_invalid' || token.isFresh()) return failure
      this.#token = null // over, or of a database that was restored
      return { error: asRetryable(failure.error), afterMs: 0 }
    } catch (error) {
      const refusal = error instanceof TokenRefused ? error.refusal : error
      if (refusal instanceof SealpostError && !refusal.isRetryable) throw refusal
      ask.signal?.throwIfAborted()
      if (error instanceof TokenRefused) return { error: error.refusal, afterMs: error.retryAfterMs }
      const trouble = certificateTrouble(error)
      if (trouble !== null) throw certificateUntrusted(trouble)
      return { error: error instanceof SealpostError ? error : lost(error), afterMs: null }
    }
  }

  #current(signal: AbortSignal | undefined): Promise<Token> {
    this.#token ??= this.#request(signal).catch((error) => {
      this.#token = null
      throw error
    })
    return this.#token
  }

  async #request(signal: AbortSignal | undefined): Promise<Token> {
    const text = await requestToken(this.#place, async (ask) => {
      const { status, bytes } = await this.#send({ ...ask, signal })
      if (status >= 300) throw tokenRefused(bytes)
      return answerOf(bytes).json()
    })
    const sinceMs = performance.now()
    return { text, isFresh: () => performance.now() - sinceMs < FRESH_MS }
  }
}

const PATIENCE_MS = 300_000
const ANSWER_WITHIN_MS = 60_000

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

type Fetch = NonNullable<HttpOptions['fetch']>
type Send = (ask: HttpAsk, token?: string) => Promise<{ status: number; bytes: Uint8Array }>

async function send(call: Fetch, base: string, ask: HttpAsk, token?: string): ReturnType<Send> {
  const { method, path, json, bytes, signal } = ask
  const limit = AbortSignal.timeout(ANSWER_WITHIN_MS)
  const headers = {
    ...(token !== undefined && { Authorization: `Bearer ${token}` }),
    ...(json && { 'Content-Type': 'application/json' }),
    ...(bytes && { 'Content-Type': 'application/octet-stream' }),
  }
  const answer = await call(base + path, {
    ...{ method, headers, redirect: 'error', credentials: 'omit' },
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    body: json ? JSON.stringify(json) : ((bytes as Uint8Array<ArrayBuffer> | undefined) ?? null),
  })
  return { status: answer.status, bytes: new Uint8Array(await answer.arrayBuffer()) }
}

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
