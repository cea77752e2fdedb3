/**
 * Sends a peer's requests over HTTP. A token is requested when it is needed, from a broker that proves the pinned key,
 * and renewed when it has expired. A request that fails temporarily is repeated at the next address, if there is one,
 * so every request must be idempotent.
 */
import {
  checkShardCertificate,
  type Identity,
  normalizeAuthority,
  ready,
  signTokenRequest,
  type Transcript,
  verifyBroker,
} from '@sealpost/identity'
import { PROTOCOL_VERSIONS } from '@sealpost/protocol'
import { fromBase64url, type MeshId, type Millis, type PeerKey, toBase64url, withResolvers } from '@sealpost/std'
import { judgeKey } from '../connection/addresses.ts'
import { certificateErrorCode, certificateUntrusted } from '../connection/certificate-errors.ts'
import { wrongBroker } from '../connection/connection.ts'
import { backoffMs } from '../connection/timing.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'

/** Identifies a peer to a broker that proves the pinned key. */
export interface PeerCredentials {
  /** `wss://host[:port]`, as for `connect`. If one address does not reply, the next one is tried. */
  readonly url: string | readonly string[]
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
}

/** Requests are signed, but nothing is sealed. */
export type HttpSigner = Omit<PeerCredentials, 'identity'> & { readonly identity: Pick<Identity, 'signing'> }
type TokenTarget = HttpSigner & { readonly url: string }

/** Sends a request without a token. @throws TokenRefused if it is refused */
type UnauthenticatedRequest = (ask: {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly json?: object
}) => Promise<Record<string, unknown>>

/** A refused `UnauthenticatedRequest`. */
export class TokenRefused extends Error {
  readonly refusal: SealpostError
  /** The broker's retry-after; null if it sent none. */
  readonly retryAfterMs: Millis | null

  constructor(refusal: SealpostError, retryAfterMs: Millis | null) {
    super(refusal.message)
    this.refusal = refusal
    this.retryAfterMs = retryAfterMs
  }
}

export const TOKEN_SECONDS = 900

/**
 * Requests a token. @throws SealpostError `wrong_broker`, `version_unsupported`, `answer_malformed`, and the errors of
 * `ask`
 */
export async function requestToken(place: TokenTarget, ask: UnauthenticatedRequest): Promise<string> {
  await ready()
  const hello = await ask({ method: 'POST', path: '/v1/token/challenge', json: {} })
  const transcript = await transcriptOf(place, hello, ask)
  const signature = signTokenRequest(place.identity.signing, transcript, TOKEN_SECONDS)
  const { version, meshId, peerKey, connectionId, clientNonce } = transcript
  const reply = await ask({
    method: 'POST',
    path: '/v1/token',
    json: {
      ...{ version, meshId, peerKey, ttlSeconds: TOKEN_SECONDS },
      connectionId: toBase64url(connectionId),
      clientNonce: toBase64url(clientNonce),
      signature: toBase64url(signature),
    },
  })
  if (!verifyBroker(transcript, signature, bytesOf(reply.proof))) throw wrongBroker()
  return String(reply.token)
}

async function transcriptOf(
  place: TokenTarget,
  hello: Record<string, unknown>,
  ask: UnauthenticatedRequest,
): Promise<Transcript> {
  const { meshId, identity, url } = place
  const authority = normalizeAuthority(url)
  const versions = hello.versions as number[]
  const version = PROTOCOL_VERSIONS.find((own) => versions.includes(own))
  if (version === undefined)
    throw new SealpostError('version_unsupported', "The broker supports none of this client's protocol versions.")
  return {
    version,
    versionsOffered: versions,
    authority,
    brokerKey: await believed(place, hello.brokerKey as PeerKey, { authority, ask }),
    meshId,
    peerKey: identity.signing.publicKey,
    serverNonce: bytesOf(hello.nonce),
    clientNonce: crypto.getRandomValues(new Uint8Array(32)),
    connectionId: bytesOf(hello.connectionId),
    issuedAtMs: hello.issuedAtMs as number,
    capabilities: [],
  }
}

/** Returns the pinned key, or a shard's key that the pinned key certifies. */
async function believed(
  { brokerKey: pinned }: HttpSigner,
  brokerKey: PeerKey,
  { authority, ask }: { authority: string; ask: UnauthenticatedRequest },
): Promise<PeerKey> {
  if (brokerKey === pinned) return brokerKey
  const { certificate } = await ask({ method: 'GET', path: '/.well-known/sealpost' })
  const claim = { pinned, brokerKey, authority, certificate: certificate ? bytesOf(certificate) : null }
  if (judgeKey({ ...claim, nowMs: Date.now() }, checkShardCertificate) !== 'ok') throw wrongBroker()
  return brokerKey
}

export const answerMalformed = (): SealpostError =>
  new SealpostError('answer_malformed', 'The broker sent a malformed response.')

/**
 * Decodes base64 in either alphabet, with or without padding, on one or several lines. @throws SealpostError
 * `answer_malformed`
 */
export function bytesOf(text: unknown): Uint8Array {
  if (typeof text !== 'string') throw answerMalformed()
  try {
    return fromBase64url(text.replaceAll('+', '-').replaceAll('/', '_').replace(/[\n=]/g, ''))
  } catch {
    throw answerMalformed()
  }
}

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

/**
 * The addresses of a mesh over HTTP. Requests go to one until it fails. Each has its own token, because a token is only
 * sent to a broker that has proven the pinned key at that address.
 */
export class HttpAddresses<Token> {
  readonly #all: readonly HttpAddress<Token>[]
  #at = 0
  /** The number of consecutive failures over all addresses. */
  #failures = 0

  constructor({ url, ...place }: HttpSigner) {
    const urls = typeof url === 'string' ? [url] : [...new Set(url)]
    this.#all = urls.map((each) => new HttpAddress({ ...place, url: each }))
  }

  get current(): HttpAddress<Token> {
    return this.#all[this.#at]!
  }

  answered(address: HttpAddress<Token>): void {
    if (address === this.current) this.#failures = 0
  }

  /**
   * Records a failure. Returns whether to try the next address immediately, because it has not failed since the last
   * reply.
   */
  failed(address: HttpAddress<Token>): boolean {
    if (address !== this.current) return true // another request has already switched to the next address
    this.#failures += 1
    this.#at = (this.#at + 1) % this.#all.length
    return this.#failures % this.#all.length !== 0
  }

  /** Removes and returns all tokens except those for an unreachable address, which expire by themselves. */
  async takeTokens(): Promise<{ readonly address: HttpAddress<Token>; readonly token: Token }[]> {
    const given = this.#all.map(async (address) => ({ address, token: await address.token?.catch(() => null) }))
    const found = await Promise.all(given)
    for (const { address } of found) address.token = null
    const isSilent = (address: HttpAddress<Token>) => address === this.current && this.#failures > 0
    return found.flatMap(({ address, token }) => (token && !isSilent(address) ? [{ address, token }] : []))
  }
}

/** The time limit for a reply. A running broker replies much sooner; a suspended one must not use up `patienceMs`. */
const ANSWER_WITHIN_MS = 8_000
/** The speed of a slow line, on which a chunk of 256 KiB takes 16 s. */
const BYTES_PER_MS = 16
/** The maximum time between two reads of a response. */
const STALL_MS = 20_000
/** The time limit for revoking the tokens in `close`. */
export const GIVE_BACK_WITHIN_MS = 1_000

interface Answering extends Omit<RequestInit, 'signal'>, Limits {}

export interface Limits {
  readonly signal?: AbortSignal | undefined
  readonly bytes?: number
  /** The time limit for the first byte of the response. Shorter than the default if the caller has less time. */
  readonly withinMs?: Millis
  readonly stallMs?: Millis
}

/**
 * Sends a request whose response must begin in time and must not stall. The response as a whole has no time limit.
 * @throws the signal's reason, an `Error` if the broker is silent, and the errors of `fetch`
 */
export async function answerTo(
  call: FetchLike,
  url: string,
  { signal, bytes = 0, withinMs = Infinity, stallMs = STALL_MS, ...init }: Answering,
): Promise<Response> {
  signal?.throwIfAborted()
  const cut = new AbortController()
  const timer = setTimeout(
    () => cut.abort(new Error('The broker did not respond in time.')),
    Math.min(ANSWER_WITHIN_MS + bytes / BYTES_PER_MS, withinMs),
  )
  try {
    const whole = signal ? AbortSignal.any([signal, cut.signal]) : cut.signal
    return unstalled(await call(url, { ...init, signal: whole }), { cut, stallMs })
  } finally {
    clearTimeout(timer)
  }
}

/** Limits only the time spent waiting for the broker, so that a slow reader does not cause a timeout. */
function unstalled(answer: Response, { cut, stallMs }: { cut: AbortController; stallMs: Millis }): Response {
  if (!answer.body || answer.status === 204) return answer // Chromium gives a 204 response a body, with which it can't be copied
  const reader = answer.body.getReader()
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const stalled = withResolvers<never>()
        const timer = setTimeout(() => stalled.reject(new Error('The response stalled.')), stallMs)
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

export interface HttpOptions {
  /** How long a request is repeated while no address replies or the broker is busy. Default: 5 minutes. */
  readonly patienceMs?: Millis
  /** Default: the platform's implementation. */
  readonly fetch?: FetchLike
}

export interface HttpAsk {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  readonly json?: object
  readonly bytes?: Uint8Array
  /** Whether the request is not repeated, because the caller checks the outcome if the reply is lost. */
  readonly isOnce?: boolean
  readonly signal?: AbortSignal | undefined
}

export interface HttpAnswer {
  readonly bytes: Uint8Array
  json<T>(): T
}

/**
 * Sends the requests of one peer in one mesh. Close it after use; otherwise, its token stays valid for a quarter of an
 * hour.
 */
export class HttpAccess {
  readonly meshId: MeshId
  readonly #addresses: HttpAddresses<Token>
  readonly #patienceMs: Millis
  readonly #call: FetchLike

  constructor(place: HttpSigner, { patienceMs = PATIENCE_MS, fetch: call = fetch }: HttpOptions = {}) {
    this.meshId = place.meshId
    this.#addresses = new HttpAddresses(place)
    this.#patienceMs = patienceMs
    this.#call = call
  }

  /**
   * Sends a request. @throws SealpostError with the broker's code; `connection_lost` if no address answered within
   * `patienceMs`; `wrong_broker`, `certificate_untrusted`; the signal's own reason
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

  /** Revokes the tokens. Never throws. */
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
      address.token = null // the token has expired, or the database was restored and has lost it
      return { error: asRetryable(failure.error), afterMs: 0 }
    } catch (error) {
      ask.signal?.throwIfAborted()
      return this.#turned(address, failureIn(error))
    }
  }

  /**
   * Switches to the next address, even if the current one has an untrusted certificate. The last failure is reported.
   */
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
/** The minimum time for an attempt that begins shortly before the time limit. */
const ATTEMPT_MIN_MS = 1_000
/** Codes of failures that may be specific to one address. */
const OF_AN_ADDRESS: readonly string[] = ['connection_lost', 'restarting', 'wrong_broker', 'certificate_untrusted']

interface Failure {
  readonly error: SealpostError
  readonly afterMs: Millis | null
}

interface Token {
  readonly text: string
  /** Returns whether the token was issued so recently that requesting another would not help. */
  isFresh(): boolean
}

const FRESH_MS = 5000

function answerOf(bytes: Uint8Array): HttpAnswer {
  return { bytes, json: <T>() => JSON.parse(new TextDecoder().decode(bytes)) as T }
}

/** Refusal codes that are worth retrying. */
const PASSING: readonly string[] = ['rate_limited', 'too_many_requests', 'try_later', 'restarting', 'challenge_invalid']

function failureOf(bytes: Uint8Array): Failure {
  const reply = refusalIn(bytes)
  const code = (reply?.code ?? 'internal') as SealpostCode
  const isRetryable = PASSING.includes(code)
  const error = new SealpostError(code, `The broker refused the request (${code}).`, { isRetryable })
  return { error, afterMs: reply?.retryAfterMs ?? null }
}

function tokenRefused(bytes: Uint8Array): TokenRefused {
  const { error, afterMs } = failureOf(bytes)
  return new TokenRefused(error, afterMs)
}

function refusalIn(bytes: Uint8Array): { code: string; retryAfterMs?: number } | null {
  try {
    const reply = answerOf(bytes).json<{ code?: unknown; retryAfterMs?: unknown }>()
    if (typeof reply.code !== 'string' || !/^[a-z_]{1,40}$/.test(reply.code)) return null
    const { code, retryAfterMs } = reply
    return { code, ...(typeof retryAfterMs === 'number' && { retryAfterMs }) }
  } catch {
    return null
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
  new SealpostError('connection_lost', 'The broker does not respond over HTTP.', { isRetryable: true, cause })

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
