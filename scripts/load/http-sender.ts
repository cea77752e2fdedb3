/** A peer that only sends, by HTTP: with a token it asked for, and envelopes that it seals itself. */
import {
  type Identity,
  type KeyBinding,
  Sealer,
  sealEnvelope,
  signTokenRequest,
  type Transcript,
} from '@sealpost/identity'
import { type MeshId, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import type { Place, SecretKeys } from './orders.ts'
import { type PutOffs, patiently, type Refusable } from './patience.ts'
import { identityOf } from './seed.ts'

export interface HttpPlace extends Place {
  readonly meshId: MeshId
}

/** As a request names it. Sent twice it is the same message. */
export interface SealedItem {
  readonly envelopeId: string
  readonly recipient: PeerKey
  readonly envelope: string
}

/** What became of a send: `stored` now, known from before, or the code of a refusal. */
export type Outcome = 'stored' | 'duplicate' | (string & {})

interface Challenge {
  readonly versions: readonly number[]
  readonly connectionId: string
  readonly nonce: string
  readonly issuedAtMs: number
}

export interface Sent extends Refusable {
  readonly results?: readonly (Refusable & { readonly status: string })[]
}

interface Answered extends Refusable {
  readonly outcome: Outcome
}

const TOKEN_SECONDS = 3600
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const bytesOf = (base64url: string): Uint8Array => new Uint8Array(Buffer.from(base64url, 'base64url'))

export class HttpSender {
  readonly url: string
  readonly token: string
  readonly sealer: Sealer

  private constructor(url: string, token: string, sealer: Sealer) {
    this.url = url
    this.token = token
    this.sealer = sealer
  }

  /** As often as it is put off. @throws OperatingError `no_token` */
  static async enter(place: HttpPlace, keys: SecretKeys, putOffs: PutOffs = { count: 0 }): Promise<HttpSender> {
    const url = new URL(place.url.replace(/^ws/, 'http')).origin
    const identity = identityOf(keys)
    const enter = () => requestToken({ url, place, identity, putOffs })
    let { token, code } = await enter()
    if (code === 'challenge_invalid') ({ token, code } = await enter()) // it waited until its challenge was over
    if (!token) throw new OperatingError('no_token', `The broker gave no token for HTTP: ${code ?? 'no code'}.`)
    return new HttpSender(url, token, new Sealer({ identity, meshId: place.meshId }))
  }

  seal(to: KeyBinding, body: Uint8Array): SealedItem {
    const envelopeId = toHex(crypto.getRandomValues(new Uint8Array(16))) as Parameters<
      typeof sealEnvelope
    >[1]['envelopeId']
    const envelope = sealEnvelope(this.sealer, { to, envelopeId, stream: null, sentAtMs: Date.now(), body })
    return { envelopeId, recipient: to.peerKey, envelope: text(envelope) }
  }

  /** Never rejects: a connection that breaks is an outcome, too. */
  async post(item: SealedItem): Promise<Outcome> {
    const { outcome } = await this.#post(item)
    return outcome
  }

  /** As a client that keeps to the broker's limits: it comes again when it is put off. Never rejects. */
  async postPatiently(item: SealedItem, putOffs: PutOffs): Promise<Outcome> {
    const { outcome } = await patiently(() => this.#post(item), putOffs)
    return outcome
  }

  async #post(item: SealedItem): Promise<Answered> {
    try {
      const headers = { authorization: `Bearer ${this.token}` }
      const sent = (await ask(`${this.url}/v1/send`, { envelopes: [item] }, headers)) as Sent
      const [result = sent] = sent.results ?? []
      const status = 'status' in result && result.status !== 'refused' ? result.status : undefined
      const { code, retryAfterMs } = result
      return { outcome: status ?? code ?? 'no_answer', ...(status === undefined && { code, retryAfterMs }) }
    } catch {
      return { outcome: 'connection_lost' }
    }
  }
}

interface Entering {
  readonly url: string
  readonly place: HttpPlace
  readonly identity: Identity
  readonly putOffs: PutOffs
}

/** Each step is repeated by itself: a crowd whose members begin with a new challenge each time would never end. */
async function requestToken({ url, place, identity, putOffs }: Entering): Promise<Granted> {
  const asking = () => ask(`${url}/v1/token/challenge`, {}) as Promise<Challenge & Refusable>
  const challenge = await patiently(asking, putOffs)
  if (challenge.code !== undefined) return challenge
  const transcript: Transcript = {
    version: challenge.versions[0]!,
    versionsOffered: challenge.versions,
    authority: new URL(place.url).host,
    brokerKey: place.brokerKey,
    meshId: place.meshId,
    peerKey: identity.signing.publicKey,
    serverNonce: bytesOf(challenge.nonce),
    clientNonce: crypto.getRandomValues(new Uint8Array(32)),
    connectionId: bytesOf(challenge.connectionId),
    issuedAtMs: challenge.issuedAtMs,
    capabilities: [],
  }
  const { version, meshId, peerKey, clientNonce } = transcript
  const signature = text(signTokenRequest(identity.signing, transcript, TOKEN_SECONDS))
  const whose = { version, meshId, peerKey, connectionId: challenge.connectionId, clientNonce: text(clientNonce) }
  const request = { ...whose, ttlSeconds: TOKEN_SECONDS, signature }
  return patiently(() => ask(`${url}/v1/token`, request) as Promise<Granted>, putOffs)
}

interface Granted extends Refusable {
  readonly token?: string
}

export async function ask(url: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const given = { 'content-type': 'application/json', ...headers }
  const answer = await fetch(url, { method: 'POST', headers: given, body: JSON.stringify(body) })
  return answer.json()
}
