/**
 * Tokens: who shows one is the peer that signed for it, without a handshake for each request. A token is a prefix and 48
 * bytes in base64url, the id of its mesh and 32 random ones; the database keeps its hash.
 */

import { hash256 } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import type { FrameOf } from '@sealpost/protocol'
import { fromHex, type MeshId, type Millis, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import {
  type AccessTokenHolder,
  type AccessTokenRef,
  addAccessToken,
  findAccessToken,
  revokeAccessToken,
} from '@sealpost/store'
import type { Authenticator } from '../directory/authenticator.ts'
import type { Challenges } from './challenges.ts'
import type { Refused } from './refusals.ts'

/** The peer that a token stands for. */
export interface TokenHolder {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly user: PeerNo
  readonly peerKey: PeerKey
}

export const nameOf = ({ meshId, peer }: TokenHolder): string => `${meshId}/${peer}`
/** In what has a share for each user: its devices have it together, in session and by HTTP. */
export const shareNameOf = ({ meshId, user }: TokenHolder): string => `${meshId}/${user}`

export interface TokenRequest {
  /** Of the challenge. */
  readonly connectionId: Uint8Array
  readonly auth: FrameOf<'auth'>
  readonly ttlSeconds: number
}

export interface IssuedToken {
  readonly token: string
  readonly expiresAtMs: Millis
  /** The broker's, as in `welcome`. */
  readonly proof: Uint8Array
}

export const TTL_SECONDS_MAX = 24 * 3600
const PREFIX = 'spt_'
const MESH_BYTES = 16
const SECRET_BYTES = 32
const PER_PEER_MAX = 32
/** A revocation is believed after so long at most. */
const BELIEVED_MS = 3000
const BELIEVED_MAX = 10_000
/** Each question takes a connection of the database: strangers with made-up tokens must not fill them all. */
const QUESTIONS_MAX = 200

export class Tokens {
  private readonly db: Database
  private readonly authenticator: Authenticator
  private readonly challenges: Challenges
  /** By hash: whom a token was found to stand for lately. */
  private readonly believed = new Map<string, { holder: TokenHolder; untilMs: Millis }>()
  private questions = 0

  constructor(parts: { db: Database; authenticator: Authenticator; challenges: Challenges }) {
    this.db = parts.db
    this.authenticator = parts.authenticator
    this.challenges = parts.challenges
  }

  /** @throws OperatingError when the database does not answer */
  async issue({ connectionId, auth, ttlSeconds }: TokenRequest, authority: string): Promise<IssuedToken | Refused> {
    const greeting = this.challenges.take(connectionId)
    if (!greeting) return { code: 'challenge_invalid' }
    if (!greeting.versions.includes(auth.version)) return { code: 'version_unsupported' }
    const found = await this.authenticator.authenticateForToken(authority, greeting, auth, ttlSeconds)
    if (!found) return { code: 'try_later', retryAfterMs: 2000 }
    if (!found.member || !found.isSignatureGood) return { code: 'auth_failed' }
    if (found.member.isRevoked) return { code: 'revoked' }
    const { meshId, peer } = found.member
    const bytes = new Uint8Array(MESH_BYTES + SECRET_BYTES)
    bytes.set(fromHex(meshId))
    crypto.getRandomValues(bytes.subarray(MESH_BYTES))
    const terms = { meshId, hash: hash256(bytes), peer, ttlSeconds, countMax: PER_PEER_MAX }
    const expiresAtMs = await addAccessToken(this.db, terms)
    if (expiresAtMs === null) return { code: 'too_many_tokens' }
    return { token: PREFIX + Buffer.from(bytes).toString('base64url'), expiresAtMs, proof: found.proof }
  }

  /** Whose request this is, by its `Authorization`. @throws OperatingError when the database does not answer */
  async holderOf(header: string | undefined): Promise<TokenHolder | Refused> {
    const token = readTokenHeader(header)
    if (!token) return { code: 'token_invalid' }
    const name = toHex(token.hash)
    const known = this.believed.get(name)
    if (known && performance.now() < known.untilMs) return known.holder
    if (this.questions >= QUESTIONS_MAX) return { code: 'try_later', retryAfterMs: 1000 }
    const found = await this.find(token)
    if (!found) return { code: 'token_invalid' }
    const { peer, person: user, peerKey, remainingMs } = found
    const holder = { meshId: token.meshId, peer, user, peerKey }
    this.believe(name, holder, Math.min(remainingMs, BELIEVED_MS))
    return holder
  }

  /** @throws OperatingError when the database does not answer */
  async revoke(header: string | undefined): Promise<void> {
    const token = readTokenHeader(header)
    if (!token) return
    await revokeAccessToken(this.db, token)
    this.believed.delete(toHex(token.hash))
  }

  private async find(token: AccessTokenRef): Promise<AccessTokenHolder | undefined> {
    this.questions += 1
    try {
      return await findAccessToken(this.db, token)
    } finally {
      this.questions -= 1
    }
  }

  private believe(name: string, holder: TokenHolder, forMs: Millis): void {
    this.believed.delete(name) // to the end
    this.believed.set(name, { holder, untilMs: performance.now() + forMs })
    if (this.believed.size > BELIEVED_MAX) this.believed.delete(this.believed.keys().next().value!)
  }
}

const HEADER = /^Bearer spt_([A-Za-z0-9_-]{64})$/

/** The token that an `Authorization` shows, if it shows one and nothing else. Never throws. */
export function readTokenHeader(header: string | undefined): AccessTokenRef | undefined {
  const text = HEADER.exec(header ?? '')?.[1]
  if (!text) return undefined
  const bytes = new Uint8Array(Buffer.from(text, 'base64url'))
  return { meshId: toHex(bytes.subarray(0, MESH_BYTES)) as MeshId, hash: hash256(bytes) }
}
