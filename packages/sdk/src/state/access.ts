/**
 * Sends a peer's requests to the broker with a token, which is requested when it is missing or expired. Retryable
 * failures are retried for a limited time; others are thrown with the broker's code.
 */
import type { Millis } from '@sealpost/std'
import { certificateErrorCode, certificateUntrusted } from '../connection/certificate-errors.ts'
import { backoffMs } from '../connection/timing.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'
import {
  answerMalformed,
  answerTo,
  type FetchLike,
  GIVE_BACK_WITHIN_MS,
  type HttpAddress,
  HttpAddresses,
  type Limits,
  type PeerCredentials,
  requestToken,
  TOKEN_SECONDS,
  TokenRefused,
} from '../http/access.ts'

export interface AccessPorts {
  readonly fetch: FetchLike
  /** Resolves after `ms`, or rejects when the signal fires. */
  readonly wait: (ms: Millis, signal: AbortSignal | undefined) => Promise<void>
  readonly random: () => number
}

export interface Ask {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly body?: unknown
  /** Whether the response must not be compressed, because it is urgent or sealed. Browsers ignore this. */
  readonly isAsItIs?: boolean
  /** The preferred media type. Default: JSON. */
  readonly accept?: string
  /** The maximum time between two reads. For responses that pause longer than the default. */
  readonly stallMs?: Millis
  readonly signal?: AbortSignal | undefined
}

export interface AccessOptions {
  /** How long a request is repeated while no address replies. */
  readonly patienceMs?: Millis | undefined
  readonly signal?: AbortSignal | undefined
}

/** The maximum number of attempts. At an average pause of 2.5 s, they last as long as a restart. */
const TRIES_MAX = 12
const RENEW_BEFORE_MS = 60_000
const PATIENCE_MS = 60_000
/** The minimum time for an attempt that begins shortly before the time limit. */
const ATTEMPT_MIN_MS = 1_000
/** Codes of failures that may be specific to one address. */
const OF_AN_ADDRESS: readonly string[] = ['connection_lost', 'restarting', 'wrong_broker', 'certificate_untrusted']

interface Token {
  readonly token: string
  readonly untilMs: Millis
}

export class Access {
  readonly #addresses: HttpAddresses<Token>
  readonly #ports: AccessPorts
  readonly #patienceMs: Millis
  readonly #signal: AbortSignal | undefined

  constructor(place: PeerCredentials, ports: AccessPorts, { patienceMs = PATIENCE_MS, signal }: AccessOptions = {}) {
    this.#addresses = new HttpAddresses(place)
    this.#ports = ports
    this.#patienceMs = patienceMs
    this.#signal = signal
  }

  /**
   * Sends a request. Returns the response with its body unread.
   * @throws SealpostError with the broker's code; `connection_lost` if no address replies; `aborted`
   */
  ask(asked: Ask): Promise<Response> {
    return this.#repeat(asked, async (answer) => answer)
  }

  async json(asked: Ask): Promise<Record<string, unknown>> {
    const said = parsed(await this.#repeat(asked, (answer) => answer.text()))
    if (typeof said === 'object' && said !== null) return said as Record<string, unknown>
    throw answerMalformed()
  }

  async #repeat<T>(given: Ask, read: (answer: Response) => Promise<T>): Promise<T> {
    const asked = { ...given, signal: this.#either(given.signal) }
    const untilMs = performance.now() + this.#patienceMs
    for (let tries = 1; ; tries++) {
      const outcome = await this.#once(asked, { untilMs, read })
      if ('value' in outcome) return outcome.value
      const { error, retryAfterMs, isElsewhere } = outcome
      const waitMs = isElsewhere ? 0 : Math.max(retryAfterMs, backoffMs(tries, this.#ports.random))
      const isOver = tries >= TRIES_MAX || performance.now() + waitMs > untilMs
      if (isOver || !(error.isRetryable || isElsewhere)) throw error
      if (!isElsewhere) await this.#ports.wait(waitMs, asked.signal)
    }
  }

  /** Waits as `ask` does between two attempts. */
  pause(tries: number, signal?: AbortSignal): Promise<void> {
    return this.#ports.wait(backoffMs(tries, this.#ports.random), this.#either(signal))
  }

  /** Revokes the tokens, because a peer can only have a limited number at a time. */
  async close(): Promise<void> {
    const given = await this.#addresses.takeTokens()
    const back = { method: 'DELETE', path: '/v1/token' } as const
    await Promise.allSettled(
      given.map(({ address, token: { token } }) => this.#send(address, back, { token, withinMs: GIVE_BACK_WITHIN_MS })),
    )
  }

  #either(signal: AbortSignal | undefined): AbortSignal | undefined {
    if (!this.#signal || !signal || signal === this.#signal) return signal ?? this.#signal
    return AbortSignal.any([this.#signal, signal])
  }

  async #once<T>(
    asked: Ask,
    { untilMs, read }: { untilMs: Millis; read: (answer: Response) => Promise<T> },
  ): Promise<{ value: T } | Refusal> {
    const address = this.#addresses.current
    const withinMs = Math.max(untilMs - performance.now(), ATTEMPT_MIN_MS)
    try {
      const { token } = await this.#current(address, { withinMs, signal: asked.signal })
      const answer = await this.#send(address, asked, { token, withinMs })
      const value = answer.ok ? await read(answer) : null
      this.#addresses.answered(address)
      if (answer.ok) return { value: value as T }
      if (answer.status === 401) address.token = null // the token has expired or was revoked: request another
      return this.#turned(address, await refusalOf(answer))
    } catch (cause) {
      if (asked.signal?.aborted) throw new SealpostError('aborted', 'The request was aborted.', { cause })
      return this.#turned(address, refusalIn(cause))
    }
  }

  #turned(address: HttpAddress<Token>, refusal: Refusal): Refusal {
    return OF_AN_ADDRESS.includes(refusal.error.code)
      ? { ...refusal, isElsewhere: this.#addresses.failed(address) }
      : refusal
  }

  #send(
    { base }: HttpAddress<Token>,
    { method, path, query = {}, body, isAsItIs, accept, stallMs, signal }: Ask,
    { token, withinMs }: Pick<Limits, 'withinMs'> & { token?: string },
  ): Promise<Response> {
    const url = new URL(`${base}${path}`)
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value))
    const text = body === undefined ? null : JSON.stringify(body)
    return answerTo(this.#ports.fetch, url.href, {
      method,
      headers: {
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
        ...(text !== null && { 'Content-Type': 'application/json' }),
        ...(isAsItIs && { 'Accept-Encoding': 'identity' }),
        ...(accept !== undefined && { Accept: accept }),
      },
      ...(text !== null && { body: text, bytes: text.length }),
      ...(stallMs !== undefined && { stallMs }),
      ...(withinMs !== undefined && { withinMs }),
      signal,
    })
  }

  /** Returns the token. Concurrent callers share one request. */
  async #current(address: HttpAddress<Token>, limits: Limits): Promise<Token> {
    address.token ??= this.#renew(address, limits)
    const asked = address.token
    const token = await asked.catch((error) => {
      if (address.token === asked) address.token = null
      throw error
    })
    if (Date.now() < token.untilMs - RENEW_BEFORE_MS) return token
    if (address.token === asked) address.token = null
    return this.#current(address, limits)
  }

  async #renew(address: HttpAddress<Token>, { signal, ...limits }: Limits): Promise<Token> {
    const token = await requestToken(address.place, async ({ method, path, json }) => {
      const answer = await this.#send(address, { method, path, body: json, signal }, limits)
      if (!answer.ok) throw await tokenRefused(answer)
      return (await answer.json()) as Record<string, unknown>
    })
    return { token, untilMs: Date.now() + TOKEN_SECONDS * 1000 }
  }
}

interface Refusal {
  readonly error: SealpostError
  readonly retryAfterMs: Millis
  /** Whether the next address can be tried immediately. */
  readonly isElsewhere?: boolean
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function refusalIn(cause: unknown): Refusal {
  if (cause instanceof TokenRefused) return { error: cause.refusal, retryAfterMs: cause.retryAfterMs ?? 0 }
  if (cause instanceof SealpostError) return { error: cause, retryAfterMs: 0 }
  const trouble = certificateErrorCode(cause)
  const lost = () => new SealpostError('connection_lost', 'The broker did not respond.', { isRetryable: true, cause })
  return { error: trouble === null ? lost() : certificateUntrusted(trouble), retryAfterMs: 0 }
}

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
  const error = new SealpostError(code as SealpostCode, `The broker refused the request (${code}).`, { isRetryable })
  return { error, retryAfterMs: typeof said.retryAfterMs === 'number' ? said.retryAfterMs : 0 }
}
