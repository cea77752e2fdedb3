/** A peer that only sends, by HTTP: with a token it asked for, and envelopes that it seals itself. */
import { type KeyBinding, Sealer, sealEnvelope, signTokenRequest, type Transcript } from '@sealpost/identity'
import { type MeshId, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import type { Place, SecretKeys } from './orders.ts'
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

/** `stored` now, known from before, or the code of a refusal. */
export type Outcome = 'stored' | 'duplicate' | (string & {})

interface Challenge {
  readonly versions: readonly number[]
  readonly connectionId: string
  readonly nonce: string
  readonly issuedAtMs: number
}

interface Sent {
  readonly results?: readonly { readonly status: string; readonly code?: string }[]
  readonly code?: string
}

const TOKEN_SECONDS = 3600
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const bytesOf = (base64url: string): Uint8Array => new Uint8Array(Buffer.from(base64url, 'base64url'))

export class HttpSender {
  readonly #url: string
  readonly token: string
  readonly #sealer: Sealer

  private constructor(url: string, token: string, sealer: Sealer) {
    this.#url = url
    this.token = token
    this.#sealer = sealer
  }

  /** @throws OperatingError `no_token` */
  static async enter(place: HttpPlace, keys: SecretKeys): Promise<HttpSender> {
    const url = new URL(place.url.replace(/^ws/, 'http')).origin
    const identity = identityOf(keys)
    const challenge = (await ask(`${url}/v1/token/challenge`, {})) as Challenge
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
    const { token, code } = (await ask(`${url}/v1/token`, request)) as Granted
    if (!token) throw new OperatingError('no_token', `The broker gave no token for HTTP: ${code ?? 'no code'}.`)
    return new HttpSender(url, token, new Sealer({ identity, meshId }))
  }

  seal(to: KeyBinding, body: Uint8Array): SealedItem {
    const envelopeId = toHex(crypto.getRandomValues(new Uint8Array(16))) as Parameters<
      typeof sealEnvelope
    >[1]['envelopeId']
    const envelope = sealEnvelope(this.#sealer, { to, envelopeId, stream: null, sentAtMs: Date.now(), body })
    return { envelopeId, recipient: to.peerKey, envelope: text(envelope) }
  }

  /** Never rejects: a connection that breaks is an outcome, too. */
  async post(item: SealedItem): Promise<Outcome> {
    try {
      const headers = { authorization: `Bearer ${this.token}` }
      const { results, code } = (await ask(`${this.#url}/v1/send`, { envelopes: [item] }, headers)) as Sent
      const [result] = results ?? []
      return (result?.status === 'refused' ? result.code : result?.status) ?? code ?? 'no_answer'
    } catch {
      return 'connection_lost'
    }
  }
}

interface Granted {
  readonly token?: string
  readonly code?: string
}

async function ask(url: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const given = { 'content-type': 'application/json', ...headers }
  const answer = await fetch(url, { method: 'POST', headers: given, body: JSON.stringify(body) })
  return answer.json()
}
