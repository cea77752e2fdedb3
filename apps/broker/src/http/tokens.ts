/**
 * Issues and verifies tokens. Their holder acts for the peer that signed the token request. A token is a prefix and 48
 * bytes in base64url: mesh id and 32 random bytes. The database stores its hash.
 */
import { hash256 } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import type { CloseCode, FrameOf } from '@sealpost/protocol'
import { fromHex, type MeshId, type Millis, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import {
  type AccessTokenHolder,
  type AccessTokenRef,
  addAccessToken,
  findAccessToken,
  revokeAccessToken,
} from '@sealpost/store'
import type { Context } from 'hono'
import type { Authenticator } from '../directory/authenticator.ts'

/** The refusals of whole requests, with HTTP status. Envelopes are refused with `nack` codes. */
export const httpRefusals = {
  body_malformed: { status: 400, meaning: 'the body does not match the schema of this request' },
  query_malformed: { status: 400, meaning: 'the query does not match the schema of this request' },
  chunk_malformed: { status: 400, meaning: 'the chunk has the wrong length or the wrong hash' },
  prekey_forged: { status: 400, meaning: 'the statement is not a prekey that this peer has signed for this mesh' },
  prekey_expired: { status: 400, meaning: 'the signed prekey has expired' },
  moment_in_future: { status: 400, meaning: 'the requested time is in the future' },
  version_unsupported: { status: 400, meaning: 'the protocol version is not one that the challenge offered' },
  binding_refused: { status: 400, meaning: 'the key binding has expired, or this key has not signed it for this mesh' },
  token_invalid: { status: 401, meaning: 'the token is missing, unknown, expired or revoked' },
  challenge_invalid: { status: 401, meaning: 'the challenge is unknown, used or expired: request a new one' },
  auth_failed: { status: 401, meaning: 'unknown mesh, unknown key or bad signature' },
  revoked: { status: 403, meaning: 'this key was revoked' },
  not_owner: {
    status: 403,
    meaning:
      'this peer is not the owner that the statement names, or is neither an admin of the mesh nor the owner of the group',
  },
  not_heir: { status: 403, meaning: 'this peer is not a device that the user has named as an heir' },
  not_admin: { status: 403, meaning: 'this peer is not an admin of the mesh' },
  not_found: { status: 404, meaning: 'no such path' },
  device_unknown: { status: 404, meaning: 'a named key is not an enrolled device of this user' },
  attachment_unknown: { status: 404, meaning: 'no such attachment, or this peer is not allowed to access it' },
  recipient_unknown: {
    status: 404,
    meaning: 'a recipient is not a member, or the group does not exist or does not list this peer',
  },
  space_unknown: { status: 404, meaning: 'no such space, or this peer does not belong to it' },
  method_not_allowed: {
    status: 405,
    meaning: 'this path does not support the method; `Allow` lists the supported methods',
  },
  body_too_slow: { status: 408, meaning: 'the body arrived at less than 16 KiB per second' },
  session_conflict: { status: 409, meaning: 'this key has an open socket: close it, or set `takeover`' },
  session_over: { status: 409, meaning: 'the polling connection has ended; unsettled deliveries will be redelivered' },
  superseded: { status: 409, meaning: 'the same key opened a newer connection' },
  attachment_taken: { status: 409, meaning: 'another attachment has this id' },
  attachment_differs: { status: 409, meaning: 'the hash does not match the uploaded chunks' },
  chunk_differs: { status: 409, meaning: 'a different chunk is stored at this index' },
  chunk_missing: { status: 409, meaning: 'chunks are missing' },
  body_too_large: { status: 413, meaning: 'the body exceeds the limit for this request' },
  attachment_too_large: { status: 413, meaning: "the attachment exceeds the broker's limit" },
  stale_epoch: { status: 409, meaning: 'a later epoch than the one in this request is already stored' },
  log_incomplete: {
    status: 409,
    meaning: 'statements from before the log are still being added to it',
  },
  log_size_unknown: { status: 409, meaning: 'the log of the mesh is shorter than the requested size' },
  recovery_cancelled: {
    status: 409,
    meaning: 'the user has rotated its key or named its heirs again, so this recovery can never take effect',
  },
  recovery_pending: { status: 409, meaning: 'another device of the user has published a recovery' },
  key_taken: { status: 409, meaning: 'the new key belongs or belonged to a member' },
  root_differs: { status: 409, meaning: 'the mesh has a different root' },
  prekey_rolled_back: {
    status: 409,
    meaning: 'a newer signed prekey of this peer, or another one of the same time, is stored',
  },
  too_many_prekeys: { status: 409, meaning: 'more than 256 one-time prekeys would be unclaimed' },
  before_horizon: { status: 410, meaning: 'the stored history begins after this time, or the space stores no history' },
  rate_limited: { status: 429, meaning: 'the request rate exceeds the limit' },
  too_many_requests: { status: 429, meaning: 'too many concurrent requests from this peer' },
  too_many_tokens: { status: 429, meaning: 'this peer has reached its token limit: revoke a token' },
  log_broken: { status: 500, meaning: 'the stored log of the mesh is damaged' },
  internal: { status: 500, meaning: 'an internal error in the broker' },
  restarting: { status: 503, meaning: 'the broker is shutting down; try again later' },
  replay_busy: { status: 503, meaning: 'too many replays are queued' },
  try_later: { status: 503, meaning: "the broker or its database can't process the request now" },
  quota_exceeded: {
    status: 507,
    meaning: 'this user has reached the limit on the number or total size of attachments, across all devices',
  },
  mesh_quota_exceeded: {
    status: 507,
    meaning: 'the mesh has reached its limit on the number or total size of attachments',
  },
} as const satisfies Record<string, { status: number; meaning: string }>

export type HttpCode = keyof typeof httpRefusals

export interface HttpRefusal {
  readonly code: HttpCode
  /** The minimum wait before a retry, for some codes. */
  readonly retryAfterMs?: Millis
}

export const isRefused = (answer: object): answer is HttpRefusal => 'code' in answer

/** Returns the refusal for a request whose session ended with `code`. */
export function refusedBy(code: CloseCode, retryAfterMs: Millis): HttpRefusal {
  return code in httpRefusals ? { code: code as HttpCode, retryAfterMs } : { code: 'internal' }
}

export function refuse(c: Context, { code, retryAfterMs }: HttpRefusal) {
  const { status } = httpRefusals[code]
  if (status === 401) c.header('WWW-Authenticate', 'Bearer')
  if (retryAfterMs !== undefined) c.header('Retry-After', String(Math.ceil(retryAfterMs / 1000)))
  const refusal = retryAfterMs === undefined ? { code } : { code, retryAfterMs: Math.ceil(retryAfterMs) }
  return c.json(refusal, status as Exclude<typeof status, 405>)
}

export interface TokenHolder {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly user: PeerNo
  readonly peerKey: PeerKey
}

export const nameOf = ({ meshId, peer }: TokenHolder): string => `${meshId}/${peer}`
/** Returns the name under which a user's limits are counted, for all devices, over sockets and HTTP. */
export const shareNameOf = ({ meshId, user }: TokenHolder): string => `${meshId}/${user}`

export interface TokenRequest {
  readonly connectionId: Uint8Array
  readonly auth: FrameOf<'auth'>
  readonly ttlSeconds: number
}

export interface IssuedToken {
  readonly token: string
  readonly expiresAtMs: Millis
  readonly proof: Uint8Array
}

export const TTL_SECONDS_MAX = 24 * 3600
const PREFIX = 'spt_'
const MESH_BYTES = 16
const SECRET_BYTES = 32
const PER_PEER_MAX = 32
/** How long a token is cached, and a revocation may have no effect. */
const BELIEVED_MS = 3000
const BELIEVED_MAX = 10_000
/** The maximum number of concurrent lookups. Without it, invalid tokens could exhaust the connection pool. */
const QUESTIONS_MAX = 200

export class Tokens {
  private readonly db: Database
  private readonly authenticator: Authenticator
  private readonly challenges: Challenges
  /** Recently verified holders by hash. */
  private readonly believed = new Map<string, { holder: TokenHolder; untilMs: Millis }>()
  private questions = 0

  constructor(parts: { db: Database; authenticator: Authenticator; challenges: Challenges }) {
    this.db = parts.db
    this.authenticator = parts.authenticator
    this.challenges = parts.challenges
  }

  async issue({ connectionId, auth, ttlSeconds }: TokenRequest, authority: string): Promise<IssuedToken | HttpRefusal> {
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

  /**
   * Returns the peer behind an `Authorization` header, or a refusal. @throws OperatingError if the database does not
   * respond
   */
  async holderOf(header: string | undefined): Promise<TokenHolder | HttpRefusal> {
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
    this.believed.delete(name)
    this.believed.set(name, { holder, untilMs: performance.now() + forMs })
    if (this.believed.size > BELIEVED_MAX) this.believed.delete(this.believed.keys().next().value!)
  }
}

const HEADER = /^Bearer spt_([A-Za-z0-9_-]{64})$/

/** Returns the token in an `Authorization` header; null unless it is exactly one. Never throws. */
export function readTokenHeader(header: string | undefined): AccessTokenRef | undefined {
  const text = HEADER.exec(header ?? '')?.[1]
  if (!text) return undefined
  const bytes = new Uint8Array(Buffer.from(text, 'base64url'))
  return { meshId: toHex(bytes.subarray(0, MESH_BYTES)) as MeshId, hash: hash256(bytes) }
}

type Greeting = FrameOf<'hello'>

/** The maximum number of open challenges, 400 bytes each, above which the oldest is dropped. */
const WAITING_MAX = 10_000

/** Open challenges for token requests, each for a single use. */
export class Challenges {
  private readonly greet: () => Greeting
  private readonly waiting = new Map<string, { greeting: Greeting; untilMs: number }>()

  constructor(greet: () => Greeting) {
    this.greet = greet
  }

  ask(): Greeting {
    const greeting = this.greet()
    this.waiting.set(keyOf(greeting.connectionId), { greeting, untilMs: performance.now() + greeting.authWithinMs })
    if (this.waiting.size > WAITING_MAX) this.waiting.delete(this.waiting.keys().next().value!)
    return greeting
  }

  take(connectionId: Uint8Array): Greeting | undefined {
    const name = keyOf(connectionId)
    const found = this.waiting.get(name)
    this.waiting.delete(name)
    return found && performance.now() < found.untilMs ? found.greeting : undefined
  }
}

const keyOf = (connectionId: Uint8Array): string => Buffer.from(connectionId).toString('base64url')
