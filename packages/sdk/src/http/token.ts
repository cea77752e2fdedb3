/** A token for requests over HTTP in a peer's name, from a broker that proves the pinned key. */
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
import { fromBase64url, type MeshId, type Millis, type PeerKey, toBase64url } from '@sealpost/std'
import { wrongBroker } from '../connection/connection.ts'
import { judgeKey } from '../connection/shard-keys.ts'
import { SealpostError } from '../errors.ts'

export interface PeerCredentials {
  /** As for `connect`: `wss://host[:port]`. Of several the next one is asked when one does not answer. */
  readonly url: string | readonly string[]
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
}

/** One address of it. */
export type TokenTarget = PeerCredentials & { readonly url: string }

/** A question of who has no token yet. @throws TokenRefused when it is refused */
export type UnauthenticatedRequest = (ask: {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly json?: object
}) => Promise<Record<string, unknown>>

/** What `UnauthenticatedRequest` throws for a refusal of the broker: the time that it names is as binding as that of any other. */
export class TokenRefused extends Error {
  readonly refusal: SealpostError
  /** Null: the broker named none. */
  readonly retryAfterMs: Millis | null

  constructor(refusal: SealpostError, retryAfterMs: Millis | null) {
    super(refusal.message)
    this.refusal = refusal
    this.retryAfterMs = retryAfterMs
  }
}

export const TOKEN_SECONDS = 900

/** @throws SealpostError `wrong_broker`, `version_unsupported`, `answer_malformed`; or what the asking throws */
export async function requestToken(place: TokenTarget, ask: UnauthenticatedRequest): Promise<string> {
  await ready()
  const hello = await ask({ method: 'POST', path: '/v1/token/challenge', json: {} })
  const transcript = await transcriptOf(place, hello, ask)
  const signature = signTokenRequest(place.identity.signing, transcript, TOKEN_SECONDS)
  const { version, meshId, peerKey, connectionId, clientNonce } = transcript
  const said = await ask({
    method: 'POST',
    path: '/v1/token',
    json: {
      ...{ version, meshId, peerKey, ttlSeconds: TOKEN_SECONDS },
      connectionId: toBase64url(connectionId),
      clientNonce: toBase64url(clientNonce),
      signature: toBase64url(signature),
    },
  })
  if (!verifyBroker(transcript, signature, bytesOf(said.proof))) throw wrongBroker()
  return String(said.token)
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
  if (version === undefined) throw new SealpostError('version_unsupported', 'The broker speaks no version of ours.')
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

/** The pinned key, or that of a shard for which it vouches. */
async function believed(
  { brokerKey: pinned }: PeerCredentials,
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
