/**
 * Requests to the broker as this peer: each shows a token, which is asked for when there is none or it is over. What is
 * worth trying again is, for a bounded time; the rest is thrown with the broker's code.
 */
import {
  checkShardCertificate,
  type Identity,
  normalizeAuthority,
  signTokenRequest,
  type Transcript,
  verifyBroker,
} from '@sealpost/identity'
import { PROTOCOL_VERSIONS } from '@sealpost/protocol'
import { fromBase64url, type MeshId, type Millis, type PeerKey, toBase64url } from '@sealpost/std'
import { backoffMs } from '../backoff.ts'
import { wrongBroker } from '../connection.ts'
import { type SealpostCode, SealpostError } from '../errors.ts'
import { judgeKey } from '../shard-keys.ts'

/** The platform's `fetch`, as far as it is used. */
export type FetchLike = (url: string, init: RequestInit) => Promise<Response>

export interface AccessOptions {
  /** As of `connect`: `wss://host[:port]`. */
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
}

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
  /** What comes is wanted at once: not gathered to be compressed. A page in a browser has no say in it. */
  readonly isLive?: boolean
  readonly signal?: AbortSignal | undefined
}

/** With waits of 2.5 s on average at most, what a restart takes. */
const TRIES_MAX = 12
const TTL_SECONDS = 900
const RENEW_BEFORE_MS = 60_000

interface Token {
  readonly token: string
  readonly untilMs: Millis
}

export class Access {
  readonly #options: AccessOptions
  readonly #ports: AccessPorts
  readonly #base: string
  #token: Promise<Token> | null = null

  constructor(options: AccessOptions, ports: AccessPorts) {
    this.#options = options
    this.#ports = ports
    this.#base = options.url
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
      if (cause instanceof SealpostError) return { error: cause, retryAfterMs: 0 }
      if (asked.signal?.aborted) throw new SealpostError('aborted', 'The request was called off.', { cause })
      const error = new SealpostError('connection_lost', 'The broker did not answer.', { isRetryable: true, cause })
      return { error, retryAfterMs: 0 }
    }
  }

  #send({ method, path, query = {}, body, isLive, signal }: Ask, headers: Record<string, string>): Promise<Response> {
    const url = new URL(`${this.#base}${path}`)
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value))
    const isJson = body !== undefined
    return this.#ports.fetch(url.href, {
      method,
      headers: {
        ...headers,
        ...(isJson && { 'Content-Type': 'application/json' }),
        ...(isLive && { 'Accept-Encoding': 'identity' }),
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
    const { meshId, identity } = this.#options
    const challenge = await this.#plain('/v1/token/challenge', {})
    const transcript = await this.#transcript(challenge)
    const signature = signTokenRequest(identity.signing, transcript, TTL_SECONDS)
    const said = await this.#plain('/v1/token', {
      version: transcript.version,
      meshId,
      peerKey: identity.signing.publicKey,
      connectionId: toBase64url(transcript.connectionId),
      clientNonce: toBase64url(transcript.clientNonce),
      ttlSeconds: TTL_SECONDS,
      signature: toBase64url(signature),
    })
    if (!verifyBroker(transcript, signature, bytesOf(said.proof))) throw wrongBroker()
    return { token: String(said.token), untilMs: Date.now() + TTL_SECONDS * 1000 }
  }

  async #plain(path: string, body: unknown): Promise<Record<string, unknown>> {
    const answer = await this.#send({ method: 'POST', path, body }, {})
    if (!answer.ok) throw (await refusalOf(answer)).error
    return (await answer.json()) as Record<string, unknown>
  }

  async #transcript(hello: Record<string, unknown>): Promise<Transcript> {
    const { meshId, identity, url } = this.#options
    const authority = normalizeAuthority(url)
    const versions = hello.versions as number[]
    const version = PROTOCOL_VERSIONS.find((own) => versions.includes(own))
    if (version === undefined) throw new SealpostError('version_unsupported', 'The broker speaks no version of ours.')
    return {
      version,
      versionsOffered: versions,
      authority,
      brokerKey: await this.#believed(hello.brokerKey as PeerKey, authority),
      meshId,
      peerKey: identity.signing.publicKey,
      serverNonce: bytesOf(hello.nonce),
      clientNonce: crypto.getRandomValues(new Uint8Array(32)),
      connectionId: bytesOf(hello.connectionId),
      issuedAtMs: hello.issuedAtMs as number,
      capabilities: [],
    }
  }

  /** The pinned key, or that of a shard for which it vouches. */
  async #believed(brokerKey: PeerKey, authority: string): Promise<PeerKey> {
    const pinned = this.#options.brokerKey
    if (brokerKey === pinned) return brokerKey
    const about = await this.#send({ method: 'GET', path: '/.well-known/sealpost' }, {})
    const { certificate } = (await about.json()) as { certificate?: string }
    const claim = { pinned, brokerKey, authority, certificate: certificate ? bytesOf(certificate) : null }
    if (judgeKey({ ...claim, nowMs: Date.now() }, checkShardCertificate) !== 'ok') throw wrongBroker()
    return brokerKey
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

async function refusalOf(answer: Response): Promise<Refusal> {
  const said = (await answer.json().catch(() => ({}))) as { code?: unknown; retryAfterMs?: unknown }
  const code = typeof said.code === 'string' ? said.code : `http_${answer.status}`
  const isRetryable = AGAIN.has(code) || answer.status === 502 || answer.status === 503 || answer.status === 504
  const error = new SealpostError(code as SealpostCode, `The broker refused (${code}).`, { isRetryable })
  return { error, retryAfterMs: typeof said.retryAfterMs === 'number' ? said.retryAfterMs : 0 }
}

export const answerMalformed = (): SealpostError =>
  new SealpostError('answer_malformed', 'The broker answered what no version of it says.')

/** Either alphabet of base64, padded or not, on one line or several; anything else is no bytes at all. */
export function bytesOf(text: unknown): Uint8Array {
  if (typeof text !== 'string') throw answerMalformed()
  try {
    return fromBase64url(text.replaceAll('+', '-').replaceAll('/', '_').replace(/[\n=]/g, ''))
  } catch {
    throw answerMalformed()
  }
}
