/**
 * Where a peer dials next: the addresses its application gave, the home that a shard named, and the shards it was told of
 * for the time when that one is gone. None of them is trusted for being named: each server proves the pinned key.
 *
 * A mesh may move to another cell, and the old one may be gone later. So the addresses that the new cell announces, and the
 * broker that served last, outlive the session, and with a store the process. No certificate does: a shard with a key of its
 * own shows a fresh one before its greeting.
 */
import {
  type checkShardCertificate,
  isDialable,
  normalizeAuthority,
  type ShardCertificateVerdict,
} from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'

export interface ShardAddress {
  /** As it is dialled, but for the path. */
  readonly url: string
  /** As both sides sign it. */
  readonly authority: string
  /** `given` by the application, announced by the `cell`, `told` by a shard for later, or the `home` that one sent us to. */
  readonly from: 'given' | 'cell' | 'told' | 'home'
  /** Its key, as the redirect named it. */
  readonly certificate: Uint8Array | null
}

/** What sessions have taught about where the mesh is served. */
export interface KnownAddresses {
  /**
   * The public addresses of its cell, if that does not serve at the application's addresses: empty with a single cell. They are
   * dialled first.
   */
  readonly cell: readonly string[]
  /** The broker that served this peer last, if that is none of the above. It is dialled when no other one answers. */
  readonly home: string | null
}

const NOTHING_KNOWN: KnownAddresses = { cell: [], home: null }

/** From one shard to the next in a row; more would be shards that don't agree. */
const HOPS_MAX = 3
/** Of those that served us. */
const SERVED_MAX = 4
/** Who did not answer is not asked again by someone else's word for so long. */
const DOWN_FOR_MS: Millis = 10_000

export class ShardAddresses {
  readonly #given: readonly ShardAddress[]
  #cell: readonly ShardAddress[] = []
  #told: readonly ShardAddress[] = []
  #home: ShardAddress | null = null
  /** Those that served us in this life, the last one first: a shard that is alone when our session begins names no other. */
  #served: readonly ShardAddress[] = []
  #dialled: ShardAddress
  /** Who sent us to the home that is dialled now. */
  #sender: ShardAddress | null = null
  /** Who served us last: others would send us there. */
  #servedBy: string | null = null
  #hops = 0
  readonly #downUntilMs = new Map<string, Millis>()
  /** The next shard is asked to serve us itself: the home of our mesh can't be reached. */
  asksToStay = false

  /** At least one. @throws OperatingError `authority_malformed` */
  constructor(urls: readonly string[], { cell, home }: KnownAddresses = NOTHING_KNOWN) {
    this.#given = urls.map((url) => addressOf(url, 'given'))
    this.#cell = this.#fit(cell, 'cell')
    this.#home = home !== null && this.#isFit(home) ? addressOf(home, 'home') : null
    this.#dialled = this.#first
  }

  get known(): KnownAddresses {
    return { cell: this.#cell.map(({ url }) => url), home: this.#home?.url ?? null }
  }

  /** For invites: where others find the mesh. */
  get publicUrl(): string {
    return this.#first.url
  }

  get current(): ShardAddress {
    return this.#dialled
  }

  /** Others that may be tried now. */
  hasOther(nowMs: Millis): boolean {
    return this.#others(nowMs).length > 0
  }

  /** A shard that has proven itself says where our mesh is at home. False: we can't, and ask that shard to serve us. */
  follow({ url, certificate }: Pick<FrameOf<'moved'>, 'url' | 'certificate'>, nowMs: Millis): boolean {
    const home = this.#isFit(url) ? addressOf(url, 'home', certificate) : null
    const isLoop = this.#hops >= HOPS_MAX || home?.authority === this.#dialled.authority
    if (!home || isLoop || this.#isDown(home, nowMs)) {
      this.asksToStay = true
      return false
    }
    this.#hops += 1
    this.#sender = this.#dialled
    this.#dialled = home
    this.asksToStay = false
    return true
  }

  /**
   * Shards that could serve us if the one that does were gone, the best first, and the addresses of the cell.
   * @returns whether `known` has changed
   */
  learn({ urls, cell }: Pick<FrameOf<'shards'>, 'urls' | 'cell'>): boolean {
    const announced = this.#fit(cell, 'cell')
    const isMoved = !this.#isGiven(this.#dialled)
    this.#told = isMoved ? this.#fit(urls, 'told') : [...this.#fit(urls, 'told'), ...announced]
    if (!isMoved || announced.length === 0 || isSame(announced, this.#cell)) return false
    this.#cell = announced
    return true
  }

  /** The one that was dialled goes away, which the others know. Answers as `turn`. */
  leave(nowMs: Millis): boolean {
    this.#servedBy = null
    return this.next(nowMs)
  }

  /**
   * The one that was dialled does not answer. Answers whether another one is dialled next; if not, all were tried, and it
   * starts over with the first.
   */
  next(nowMs: Millis): boolean {
    const { authority } = this.#dialled
    this.#downUntilMs.set(authority, nowMs + DOWN_FOR_MS)
    this.#hops = 0
    const sender = this.#sender
    this.#sender = null
    const next = sender && !this.#isDown(sender, nowMs) ? sender : this.#others(nowMs)[0]
    // Whom we ask first after a crash does not know of it yet, and would send us back: each peer would come twice.
    this.asksToStay = next !== undefined && (next === sender || authority === this.#servedBy)
    if (!next) this.#downUntilMs.clear()
    this.#dialled = next ?? this.#first
    return next !== undefined
  }

  /**
   * A session began here: what led to it is over. At an address of the application's own nothing else needs to be known.
   * @returns whether `known` has changed
   */
  settle(): boolean {
    const dialled = this.#dialled
    const { known } = this
    this.#servedBy = dialled.authority
    this.#hops = 0
    this.#sender = null
    this.asksToStay = false
    const others = this.#served.filter(({ authority }) => authority !== dialled.authority)
    this.#served = [{ ...dialled, from: 'told' as const, certificate: null }, ...others].slice(0, SERVED_MAX)
    if (this.#isGiven(dialled)) this.#cell = []
    this.#home = this.#isPublic(dialled) ? null : { ...dialled, from: 'home', certificate: null }
    return this.#cell.length !== known.cell.length || (this.#home?.url ?? null) !== known.home
  }

  #isGiven({ authority }: ShardAddress): boolean {
    return this.#given.some((own) => own.authority === authority)
  }

  #isPublic(address: ShardAddress): boolean {
    return this.#isGiven(address) || this.#cell.some(({ authority }) => authority === address.authority)
  }

  get #first(): ShardAddress {
    return this.#cell[0] ?? this.#given[0]!
  }

  #others(nowMs: Millis): ShardAddress[] {
    const { authority } = this.#dialled
    const home = this.#home ? [this.#home] : []
    return [...this.#told, ...this.#cell, ...this.#given, ...home, ...this.#served].filter(
      (other) => other.authority !== authority && !this.#isDown(other, nowMs),
    )
  }

  #isDown({ authority }: ShardAddress, nowMs: Millis): boolean {
    return nowMs < (this.#downUntilMs.get(authority) ?? 0)
  }

  #fit(urls: readonly string[], from: ShardAddress['from']): ShardAddress[] {
    return urls.filter((url) => this.#isFit(url)).map((url) => addressOf(url, from))
  }

  /** A shard sends nobody from an encrypted connection to one that is not. */
  #isFit(url: string): boolean {
    return isDialable(url) && (url.startsWith('wss:') || this.#given.some((own) => /^(ws|http):/i.test(own.url)))
  }
}

function addressOf(url: string, from: ShardAddress['from'], certificate?: Uint8Array): ShardAddress {
  return { url, authority: normalizeAuthority(url), from, certificate: certificate?.length ? certificate : null }
}

const isSame = (some: readonly ShardAddress[], others: readonly ShardAddress[]): boolean =>
  some.length === others.length && some.every(({ url }, i) => url === others[i]!.url)

/** A broker whose TLS certificate the platform does not trust. Browsers don't say so: there it is a lost connection. */

/** RFC 6455: the TLS handshake failed. No broker can send this number. */
export const TLS_FAILED = 1015

/** As OpenSSL, Node and Bun name what is wrong with a certificate. */
const CODES =
  /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(GET|VERIFY|DECODE|DECRYPT)_\w+|CERT_\w+|ERR_TLS_CERT_\w+|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|PATH_LENGTH_EXCEEDED)$/
const DEPTH_MAX = 4

/** The platform's code in what a socket or a request failed with; null for any other failure. */
export function certificateErrorCode(failure: unknown, depth = 0): string | null {
  if (typeof failure !== 'object' || failure === null || depth > DEPTH_MAX) return null
  const { code, error, cause } = failure as { code?: unknown; error?: unknown; cause?: unknown }
  if (typeof code === 'string' && CODES.test(code)) return code
  return certificateErrorCode(error, depth + 1) ?? certificateErrorCode(cause, depth + 1)
}

export const certificateUntrusted = (trouble: string): SealpostError =>
  new SealpostError(
    'certificate_untrusted',
    `This machine does not trust the broker's TLS certificate (${trouble}). NODE_EXTRA_CA_CERTS names a file of further authorities.`,
  )

/** Whose key may stand in a greeting: the pinned one, or one of a shard that the pinned one vouches for. */

/** `wrong_key`: another key without a word for it; `proof_forged`: it does not hold the key it names. */
export type ShardRefusal = Exclude<ShardCertificateVerdict, 'ok'> | 'wrong_key' | 'proof_forged'

interface Claimant {
  readonly pinned: PeerKey
  /** As the greeting names it. */
  readonly brokerKey: PeerKey
  /** As it was dialled. */
  readonly authority: string
  /** What came with it, if anything did. */
  readonly certificate: Uint8Array | null
  readonly nowMs: Millis
}

export function judgeKey(
  { pinned, brokerKey, authority, certificate, nowMs }: Claimant,
  check: typeof checkShardCertificate,
): ShardRefusal | 'ok' {
  if (brokerKey === pinned) return 'ok'
  if (certificate === null) return 'wrong_key'
  return check(certificate, { clusterKey: pinned, shardKey: brokerKey, authority, nowMs })
}

/** Where a broker listens, unless the address names a path itself. */
const PATH = '/v1/ws'

/**
 * The address to dial. Anything that would be logged on the way (a query, a fragment) is left out; credentials are
 * refused by `normalizeAuthority`.
 */
export function socketUrl(address: string): string {
  const url = new URL(address)
  const scheme = url.protocol === 'https:' || url.protocol === 'wss:' ? 'wss:' : 'ws:'
  return `${scheme}//${url.host}${url.pathname === '/' ? PATH : url.pathname}`
}
