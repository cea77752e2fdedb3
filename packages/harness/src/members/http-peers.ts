/** Simulates peers over HTTP, which either seal and send, or read. */
import {
  type Identity,
  type KeyBinding,
  Sealer,
  sealEnvelope,
  signTokenRequest,
  type Transcript,
} from '@sealpost/identity'
import { backoffMs } from '@sealpost/sdk/backoff'
import { type EnvelopeId, type MeshId, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import { type BrokerAddress, identityOf, type SecretKeys } from './mesh.ts'

export interface MeshAddress extends BrokerAddress {
  readonly meshId: MeshId
}

/** An envelope in a request. Sent twice, it is still one message. */
export interface SealedItem {
  readonly envelopeId: EnvelopeId
  readonly recipient: PeerKey
  readonly envelope: string
}

/** The outcome: `stored`, `duplicate`, or a refusal's code. */
export type HttpSendOutcome = 'stored' | 'duplicate' | (string & {})

export interface HttpReply {
  readonly code?: string | undefined
  readonly retryAfterMs?: number | undefined
}

export interface SendReply extends HttpReply {
  readonly results?: readonly (HttpReply & { readonly status: string })[]
}

/** Counts the requests that were repeated. */
export interface RetryCount {
  retries: number
}

interface Challenge {
  readonly versions: readonly number[]
  readonly connectionId: string
  readonly nonce: string
  readonly issuedAtMs: number
}

const TOKEN_SECONDS = 3600
export const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64url'))
export const newEnvelopeId = (): EnvelopeId => toHex(crypto.getRandomValues(new Uint8Array(16))) as EnvelopeId

export class HttpSender {
  readonly url: string
  readonly token: string
  readonly sealer: Sealer

  private constructor(url: string, token: string, sealer: Sealer) {
    this.url = url
    this.token = token
    this.sealer = sealer
  }

  /** Requests a token, with retries. @throws OperatingError `no_token` */
  static async enter(address: MeshAddress, keys: SecretKeys, count: RetryCount = { retries: 0 }): Promise<HttpSender> {
    const url = new URL(address.url.replace(/^ws/, 'http')).origin
    const identity = identityOf(keys)
    const enter = () => requestToken({ url, address, identity, count })
    let { token, code } = await enter()
    if (code === 'challenge_invalid') ({ token, code } = await enter()) // the challenge expired during the retries, so request another
    if (!token) throw new OperatingError('no_token', `The broker issued no HTTP token: ${code ?? 'no code'}.`)
    return new HttpSender(url, token, new Sealer({ identity, meshId: address.meshId }))
  }

  seal(to: KeyBinding, body: Uint8Array): SealedItem {
    const envelopeId = newEnvelopeId()
    const envelope = sealEnvelope(this.sealer, { to, envelopeId, stream: null, sentAtMs: Date.now(), body })
    return { envelopeId, recipient: to.peerKey, envelope: base64url(envelope) }
  }

  /** Sends an envelope. Never rejects: a broken connection is the outcome `connection_lost`. */
  async post(item: SealedItem): Promise<HttpSendOutcome> {
    const { outcome } = await this.#post(item)
    return outcome
  }

  /** Sends an envelope, with retries on request. Never rejects. */
  async postWithRetries(item: SealedItem, count: RetryCount): Promise<HttpSendOutcome> {
    const { outcome } = await withRetries(() => this.#post(item), count)
    return outcome
  }

  async #post(item: SealedItem): Promise<HttpReply & { readonly outcome: HttpSendOutcome }> {
    try {
      const headers = { authorization: `Bearer ${this.token}` }
      const sent = (await postJson(`${this.url}/v1/send`, { envelopes: [item] }, headers)) as SendReply
      const [result = sent] = sent.results ?? []
      const status = 'status' in result && result.status !== 'refused' ? result.status : undefined
      const { code, retryAfterMs } = result
      return { outcome: status ?? code ?? 'no_answer', ...(status === undefined && { code, retryAfterMs }) }
    } catch {
      return { outcome: 'connection_lost' }
    }
  }
}

interface TokenRequest {
  readonly url: string
  readonly address: MeshAddress
  readonly identity: Identity
  readonly count: RetryCount
}

interface TokenReply extends HttpReply {
  readonly token?: string
}

/** Requests a token, and retries each request separately: clients that start over might never obtain one. */
async function requestToken({ url, address, identity, count }: TokenRequest): Promise<TokenReply> {
  const askChallenge = () => postJson(`${url}/v1/token/challenge`, {}) as Promise<Challenge & HttpReply>
  const challenge = await withRetries(askChallenge, count)
  if (challenge.code !== undefined) return challenge
  const transcript: Transcript = {
    version: challenge.versions[0]!,
    versionsOffered: challenge.versions,
    authority: new URL(address.url).host,
    brokerKey: address.brokerKey,
    meshId: address.meshId,
    peerKey: identity.signing.publicKey,
    serverNonce: bytesOf(challenge.nonce),
    clientNonce: crypto.getRandomValues(new Uint8Array(32)),
    connectionId: bytesOf(challenge.connectionId),
    issuedAtMs: challenge.issuedAtMs,
    capabilities: [],
  }
  const { version, meshId, peerKey, clientNonce } = transcript
  const signature = base64url(signTokenRequest(identity.signing, transcript, TOKEN_SECONDS))
  const { connectionId } = challenge
  const client = { version, meshId, peerKey, connectionId, clientNonce: base64url(clientNonce) }
  const request = { ...client, ttlSeconds: TOKEN_SECONDS, signature }
  return withRetries(() => postJson(`${url}/v1/token`, request) as Promise<TokenReply>, count)
}

export async function postJson(url: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const all = { 'content-type': 'application/json', ...headers }
  const response = await fetch(url, { method: 'POST', headers: all, body: JSON.stringify(body) })
  return response.json()
}

/** How long a request is retried, as in the SDK. */
const RETRY_FOR_MS = 300_000
const TEMPORARY: readonly unknown[] = ['rate_limited', 'too_many_requests', 'try_later', 'restarting']

/** Repeats a request after temporary refusals, for five minutes. Returns the last reply. */
export async function withRetries<R extends HttpReply>(request: () => Promise<R>, count: RetryCount): Promise<R> {
  const untilMs = performance.now() + RETRY_FOR_MS
  for (let failures = 0; ; failures++) {
    const reply = await request()
    // Clients at one address receive the same `retryAfterMs`, so add a random time.
    const waitMs = (reply.retryAfterMs ?? 0) + backoffMs(failures, Math.random)
    if (!TEMPORARY.includes(reply.code) || performance.now() + waitMs > untilMs) return reply
    count.retries += 1
    await Bun.sleep(waitMs)
  }
}

export interface Reading {
  readonly status: number
  readonly bytes: number
  /** Whether the response had its end mark. */
  readonly isWhole: boolean
  readonly firstByteMs: number
  readonly ms: number
}

const END = '"end":true'
const END_OF_RECORDS = Buffer.from([0xff, 0xff])

export class HttpReader {
  readonly #url: string
  readonly #token: string

  private constructor(url: string, token: string) {
    this.#url = url
    this.#token = token
  }

  /** Requests a token. @throws OperatingError `no_token` */
  static async enter(address: MeshAddress, keys: SecretKeys): Promise<HttpReader> {
    const { token } = await HttpSender.enter(address, keys)
    return new HttpReader(new URL(address.url.replace(/^ws/, 'http')).origin, token)
  }

  /** Reads a response and discards it. Never rejects: a response that breaks off is not whole. */
  async read(path: string, accept = 'application/x-ndjson'): Promise<Reading> {
    const startMs = performance.now()
    let bytes = 0
    let firstByteMs = 0
    let last: Uint8Array = new Uint8Array()
    let status = 0
    try {
      const headers = { authorization: `Bearer ${this.#token}`, accept, 'accept-encoding': 'identity' }
      const response = await fetch(`${this.#url}${path}`, { headers, signal: AbortSignal.timeout(600_000) })
      status = response.status
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
        firstByteMs ||= performance.now() - startMs
        bytes += chunk.length
        last = chunk.length < 64 ? Buffer.concat([last.subarray(-64), chunk]) : chunk
      }
    } catch {
      // without an end mark, `isWhole` is false
    }
    const end = Buffer.from(last).subarray(-64)
    const isWhole = end.includes(END) || (accept !== 'application/x-ndjson' && end.subarray(-2).equals(END_OF_RECORDS))
    return { status, bytes, isWhole: status === 200 && isWhole, firstByteMs, ms: performance.now() - startMs }
  }
}
