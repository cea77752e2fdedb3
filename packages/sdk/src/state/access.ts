/**
 * Requests to the broker as this peer: each shows a token, which is asked for when there is none or it is over. What is
 * worth trying again is, for a bounded time; the rest is thrown with the broker's code.
 */
import type { Millis } from '@sealpost/std'
import { backoffMs } from '../backoff.ts'
import { certificateTrouble, certificateUntrusted } from '../certificate.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'
import { answerMalformed, type HttpPlace, requestToken, TOKEN_SECONDS, TokenRefused } from '../http/http-token.ts'

/** The platform's `fetch`, as far as it is used. */
export type FetchLike = (url: string, init: RequestInit) => Promise<Response>

export interface AccessPorts {
  readonly fetch: FetchLike
  /** Resolves after so long, or rejects when the signal fires. */
  readonly wait: (ms: Millis, signal: AbortSignal | undefined) => Promise<void>
  readonly random: () => number
}

export interface Ask {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly body?: unknown
  /** Not compressed: it is wanted at once, or sealed, so that there is nothing to gain. A page in a browser has no say in it. */
  readonly isAsItIs?: boolean
  /** The form that is preferred; JSON if not said. */
  readonly accept?: string
  readonly signal?: AbortSignal | undefined
}

/** With waits of 2.5 s on average at most, what a restart takes. */
const TRIES_MAX = 12
const RENEW_BEFORE_MS = 60_000

interface Token {
  readonly token: string
  readonly untilMs: Millis
}

export class Access {
  readonly #place: HttpPlace
  readonly #ports: AccessPorts
  readonly #base: string
  #token: Promise<Token> | null = null

  constructor(place: HttpPlace, ports: AccessPorts) {
    this.#place = place
    this.#ports = ports
    this.#base = place.url
      .replace(/^ws/, 'http')
      .replace(/\/v1\/ws\/?$/, '')
      .replace(/\/$/, '')
  }

  /** The answer, whose body is not read yet. @throws SealpostError with the code of the broker, or `connection_lost` */
  async ask(asked: Ask): Promise<Response> {
    for (let tries = 1; ; tries++) {
      const refused = await this.#once(asked)
      if (refused instanceof Response) return refused
      const { error, retryAfterMs } = refused
      if (!error.isRetryable || tries >= TRIES_MAX) throw error
      await this.#ports.wait(Math.max(retryAfterMs, backoffMs(tries, this.#ports.random)), asked.signal)
    }
  }

  async json(asked: Ask): Promise<Record<string, unknown>> {
    const answer = await this.ask(asked)
    const said: unknown = await answer.json().catch(() => null)
    if (typeof said === 'object' && said !== null) return said as Record<string, unknown>
    throw answerMalformed()
  }

  /** Resolves after a pause between two attempts, as `ask` makes them. */
  pause(tries: number, signal?: AbortSignal): Promise<void> {
    return this.#ports.wait(backoffMs(tries, this.#ports.random), signal)
  }

  /** A peer has only so many tokens at a time. */
  async close(): Promise<void> {
    const token = await this.#token?.catch(() => null)
    this.#token = null
    if (!token) return
    const headers = { Authorization: `Bearer ${token.token}` }
    await this.#send({ method: 'DELETE', path: '/v1/token' }, headers).catch(() => undefined) // it ends by itself, too
  }

  async #once(asked: Ask): Promise<Response | Refusal> {
    try {
      const { token } = await this.#current()
      const answer = await this.#send(asked, { Authorization: `Bearer ${token}` })
      if (answer.ok) return answer
      if (answer.status === 401) this.#token = null // over, or revoked meanwhile: the next one tells which
      return await refusalOf(answer)
    } catch (cause) {
      if (cause instanceof TokenRefused) return { error: cause.refusal, retryAfterMs: cause.retryAfterMs ?? 0 }
      if (cause instanceof SealpostError) return { error: cause, retryAfterMs: 0 }
      if (asked.signal?.aborted) throw new SealpostError('aborted', 'The request was called off.', { cause })
      const trouble = certificateTrouble(cause)
      if (trouble !== null) throw certificateUntrusted(trouble)
      const error = new SealpostError('connection_lost', 'The broker did not answer.', { isRetryable: true, cause })
      return { error, retryAfterMs: 0 }
    }
  }

  #send(
    { method, path, query = {}, body, isAsItIs, accept, signal }: Ask,
    headers: Record<string, string>,
  ): Promise<Response> {
    const url = new URL(`${this.#base}${path}`)
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value))
    const isJson = body !== undefined
    return this.#ports.fetch(url.href, {
      method,
      headers: {
        ...headers,
        ...(isJson && { 'Content-Type': 'application/json' }),
        ...(isAsItIs && { 'Accept-Encoding': 'identity' }),
        ...(accept !== undefined && { Accept: accept }),
      },
      ...(isJson && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    })
  }

  /** One question for a token at a time, however many wait for it. */
  async #current(): Promise<Token> {
    this.#token ??= this.#renew()
    const asked = this.#token
    const token = await asked.catch((error) => {
      if (this.#token === asked) this.#token = null
      throw error
    })
    if (Date.now() < token.untilMs - RENEW_BEFORE_MS) return token
    if (this.#token === asked) this.#token = null
    return this.#current()
  }

  async #renew(): Promise<Token> {
    const token = await requestToken(this.#place, async ({ method, path, json }) => {
      const answer = await this.#send({ method, path, body: json }, {})
      if (!answer.ok) throw await tokenRefused(answer)
      return (await answer.json()) as Record<string, unknown>
    })
    return { token, untilMs: Date.now() + TOKEN_SECONDS * 1000 }
  }
}

interface Refusal {
  readonly error: SealpostError
  readonly retryAfterMs: Millis
}

/** Of the broker's refusals, those that may be none the next time. */
const AGAIN: ReadonlySet<string> = new Set([
  'token_invalid',
  'challenge_invalid',
  'rate_limited',
  'too_many_requests',
  'replay_busy',
  'restarting',
  'try_later',
])

async function tokenRefused(answer: Response): Promise<TokenRefused> {
  const { error, retryAfterMs } = await refusalOf(answer)
  return new TokenRefused(error, retryAfterMs)
}

async function refusalOf(answer: Response): Promise<Refusal> {
  const said = (await answer.json().catch(() => ({}))) as { code?: unknown; retryAfterMs?: unknown }
  const code = typeof said.code === 'string' ? said.code : `http_${answer.status}`
  const isRetryable = AGAIN.has(code) || answer.status === 502 || answer.status === 503 || answer.status === 504
  const error = new SealpostError(code as SealpostCode, `The broker refused (${code}).`, { isRetryable })
  return { error, retryAfterMs: typeof said.retryAfterMs === 'number' ? said.retryAfterMs : 0 }
}
