/** Provides tests with a peer that uses plain HTTP. */
import { signTokenRequest, type Transcript } from '@sealpost/identity'
import { fromHex, type MeshId } from '@sealpost/std'
import type { envelopeTo } from './wire.ts'
import type { Place } from './world.ts'

export interface Answer {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: a test asserts the shape that it expects
  readonly body: any
}

export interface HttpDelivery {
  readonly id: number
  readonly envelopeId: string
  readonly sender: string
  readonly attempt: number
  readonly envelope: string
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
export const httpUrl = (place: Pick<Place, 'url'>): string => `http://${new URL(place.url).host}`

export async function ask(url: string, init: RequestInit = {}): Promise<Answer> {
  const answer = await fetch(url, init)
  const said = await answer.text()
  return { status: answer.status, headers: answer.headers, body: said ? JSON.parse(said) : null }
}

export const post = (url: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  ask(url, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) })

/** Returns a valid token request, except for changes in `signed`. */
export async function tokenRequest(
  { identity, meshId, url, brokerKey }: Place,
  { ttlSeconds = 3600, signed = {} }: { ttlSeconds?: number; signed?: Partial<Transcript> } = {},
): Promise<Record<string, unknown>> {
  const { body: challenge } = await ask(`${httpUrl({ url })}/v1/token/challenge`, { method: 'POST' })
  const transcript: Transcript = {
    version: 1,
    versionsOffered: challenge.versions,
    authority: new URL(url).host,
    brokerKey,
    meshId,
    peerKey: identity.signing.publicKey,
    serverNonce: new Uint8Array(Buffer.from(challenge.nonce, 'base64url')),
    clientNonce: crypto.getRandomValues(new Uint8Array(32)),
    connectionId: new Uint8Array(Buffer.from(challenge.connectionId, 'base64url')),
    issuedAtMs: challenge.issuedAtMs,
    capabilities: [],
    ...signed,
  }
  return {
    version: transcript.version,
    meshId,
    peerKey: identity.signing.publicKey,
    connectionId: challenge.connectionId,
    clientNonce: text(transcript.clientNonce),
    ttlSeconds,
    signature: text(signTokenRequest(identity.signing, transcript, ttlSeconds)),
  }
}

type SendItem = ReturnType<typeof envelopeTo>

export const envelopeJson = ({ envelopeId, recipient, priority, ttlSeconds, envelope }: SendItem) => ({
  envelopeId,
  recipient,
  priority,
  ttlSeconds,
  envelope: text(envelope),
})

export class HttpPeer {
  readonly token: string
  private readonly url: string

  private constructor(url: string, token: string) {
    this.url = url
    this.token = token
  }

  static async enter(place: Place, ttlSeconds = 3600): Promise<HttpPeer> {
    const { status, body } = await post(`${httpUrl(place)}/v1/token`, await tokenRequest(place, { ttlSeconds }))
    if (status !== 200) throw new Error(`no token: ${status} ${JSON.stringify(body)}`)
    return new HttpPeer(httpUrl(place), body.token)
  }

  /** Returns a peer with the same token at a restarted broker. */
  at(place: Place): HttpPeer {
    return new HttpPeer(httpUrl(place), this.token)
  }

  get headers(): Record<string, string> {
    return { Authorization: `Bearer ${this.token}` }
  }

  send(...items: SendItem[]): Promise<Answer> {
    return this.post('/v1/send', { envelopes: items.map(envelopeJson) })
  }

  inbox(query = 'waitSeconds=10', signal?: AbortSignal): Promise<Answer> {
    return ask(`${this.url}/v1/inbox?${query}`, { headers: this.headers, ...(signal && { signal }) })
  }

  /** Polls until `count` deliveries have arrived. */
  async deliveries(count: number, query = 'waitSeconds=10'): Promise<HttpDelivery[]> {
    const found: HttpDelivery[] = []
    while (found.length < count) {
      const { status, body } = await this.inbox(query)
      if (status !== 200) throw new Error(`inbox: ${status} ${JSON.stringify(body)}`)
      found.push(...body.deliveries)
    }
    return found
  }

  settle(...deliveries: readonly Pick<HttpDelivery, 'id'>[]): Promise<Answer> {
    return this.post('/v1/settle', { settle: deliveries.map(({ id }) => id) })
  }

  post(path: string, body: unknown): Promise<Answer> {
    return post(this.url + path, body, this.headers)
  }

  revoke(): Promise<Answer> {
    return ask(`${this.url}/v1/token`, { method: 'DELETE', headers: this.headers })
  }
}

/** Returns the token with another mesh id. */
export function tokenInMesh(token: string, meshId: MeshId): string {
  const bytes = Buffer.from(token.slice(4), 'base64url')
  bytes.set(fromHex(meshId))
  return `spt_${bytes.toString('base64url')}`
}
