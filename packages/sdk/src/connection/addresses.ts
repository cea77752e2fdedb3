/**
 * Chooses the address to dial next: among those that the application gave, the home to which a shard redirected, and
 * the fallback shards that were announced. No address is trusted just because it was announced: each server must prove
 * the pinned key.
 *
 * A mesh may move to another cell, and the old cell may later be gone. So the addresses that the new cell announces,
 * and the broker that served the peer last, outlive the session, and with a store also the process. Certificates don't:
 * a shard with its own key sends a current one before its greeting.
 */
import {
  type checkShardCertificate,
  isDialable,
  normalizeAuthority,
  type ShardCertificateVerdict,
} from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'

export interface ShardAddress {
  /** The dialled URL without its path. */
  readonly url: string
  /** The authority that both sides sign. */
  readonly authority: string
  /**
   * `given`: by the application. `cell`: announced by the cell. `told`: announced by a shard as a fallback. `home`: a
   * shard redirected to it.
   */
  readonly from: 'given' | 'cell' | 'told' | 'home'
  /** The certificate for the shard's key, from the redirect. */
  readonly certificate: Uint8Array | null
}

/** The location of the mesh, as learned in earlier sessions. */
export interface KnownAddresses {
  /**
   * The public addresses of the mesh's cell, which are dialled first. Empty if the cell is at the application's
   * addresses, like a single cell.
   */
  readonly cell: readonly string[]
  /**
   * The broker that served this peer last, unless it is among the addresses above. It is dialled if no other broker
   * replies.
   */
  readonly home: string | null
}

const NOTHING_KNOWN: KnownAddresses = { cell: [], home: null }

/** Maximum number of redirects in a row. More would mean that the shards disagree. */
const HOPS_MAX = 3
/** Maximum number of remembered shards that served this peer. */
const SERVED_MAX = 4
/** Shards that did not reply are not dialled for this long, even if a shard redirects to them. */
const DOWN_FOR_MS: Millis = 10_000

export class ShardAddresses {
  readonly #given: readonly ShardAddress[]
  #cell: readonly ShardAddress[] = []
  #fallbacks: readonly ShardAddress[] = []
  #home: ShardAddress | null = null
  /**
   * The shards that served this process, most recent first: the alternatives when the last running shard announces
   * none.
   */
  #served: readonly ShardAddress[] = []
  #dialled: ShardAddress
  /** The shard that redirected to the home that is being dialled. */
  #sender: ShardAddress | null = null
  /** The shard that served us last. Other shards would redirect to it. */
  #servedBy: string | null = null
  #hops = 0
  readonly #downUntilMs = new Map<string, Millis>()
  /** Whether the next shard must serve us itself, because the home of our mesh is unreachable. */
  asksToStay = false

  /** `urls` has at least one item. @throws OperatingError `authority_malformed` */
  constructor(urls: readonly string[], { cell, home }: KnownAddresses = NOTHING_KNOWN) {
    this.#given = urls.map((url) => addressOf(url, 'given'))
    this.#cell = this.#fit(cell, 'cell')
    this.#home = home !== null && this.#isFit(home) ? addressOf(home, 'home') : null
    this.#dialled = this.#first
  }

  get known(): KnownAddresses {
    return { cell: this.#cell.map(({ url }) => url), home: this.#home?.url ?? null }
  }

  get publicUrl(): string {
    return this.#first.url
  }

  get current(): ShardAddress {
    return this.#dialled
  }

  /** Returns whether another address may be dialled immediately. */
  hasOther(nowMs: Millis): boolean {
    return this.#others(nowMs).length > 0
  }

  /**
   * Follows a redirect from an authenticated shard. Returns false if it can't be followed and that shard must serve us.
   */
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
   * Records fallback shards, best first, and the addresses of the cell.
   * @returns whether `known` has changed
   */
  learn({ urls, cell }: Pick<FrameOf<'shards'>, 'urls' | 'cell'>): boolean {
    const announced = this.#fit(cell, 'cell')
    const isMoved = !this.#isGiven(this.#dialled)
    this.#fallbacks = isMoved ? this.#fit(urls, 'told') : [...this.#fit(urls, 'told'), ...announced]
    if (!isMoved || announced.length === 0 || isSame(announced, this.#cell)) return false
    this.#cell = announced
    return true
  }

  /** Leaves the dialled shard, which is shutting down and will not redirect peers back. Returns the same as `next`. */
  leave(nowMs: Millis): boolean {
    this.#servedBy = null
    return this.next(nowMs)
  }

  /**
   * Leaves the dialled shard, which does not reply. Returns false if all shards were tried, in which case the next dial
   * starts again with the first.
   */
  next(nowMs: Millis): boolean {
    const { authority } = this.#dialled
    this.#downUntilMs.set(authority, nowMs + DOWN_FOR_MS)
    this.#hops = 0
    const sender = this.#sender
    this.#sender = null
    const next = sender && !this.#isDown(sender, nowMs) ? sender : this.#others(nowMs)[0]
    // Other shards may still redirect us to the crashed one, so ask the next shard to serve us itself.
    this.asksToStay = next !== undefined && (next === sender || authority === this.#servedBy)
    if (!next) this.#downUntilMs.clear()
    this.#dialled = next ?? this.#first
    return next !== undefined
  }

  /**
   * Records that a session began here, which ends the series of redirects. If the application gave this address,
   * nothing more is remembered.
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
    return [...this.#fallbacks, ...this.#cell, ...this.#given, ...home, ...this.#served].filter(
      (other) => other.authority !== authority && !this.#isDown(other, nowMs),
    )
  }

  #isDown({ authority }: ShardAddress, nowMs: Millis): boolean {
    return nowMs < (this.#downUntilMs.get(authority) ?? 0)
  }

  #fit(urls: readonly string[], from: ShardAddress['from']): ShardAddress[] {
    return urls.filter((url) => this.#isFit(url)).map((url) => addressOf(url, from))
  }

  /**
   * Returns whether a redirect to this URL may be followed: never from an encrypted connection to an unencrypted one.
   */
  #isFit(url: string): boolean {
    return isDialable(url) && (url.startsWith('wss:') || this.#given.some((own) => /^(ws|http):/i.test(own.url)))
  }
}

function addressOf(url: string, from: ShardAddress['from'], certificate?: Uint8Array): ShardAddress {
  return { url, authority: normalizeAuthority(url), from, certificate: certificate?.length ? certificate : null }
}

const isSame = (some: readonly ShardAddress[], others: readonly ShardAddress[]): boolean =>
  some.length === others.length && some.every(({ url }, i) => url === others[i]!.url)

/** The close code for a failed TLS handshake (RFC 6455). No broker can send this number. */
export const TLS_FAILED = 1015

/**
 * `wrong_key`: the server has another key and no certificate. `proof_forged`: the server does not have the key in its
 * greeting.
 */
export type ShardRefusal = Exclude<ShardCertificateVerdict, 'ok'> | 'wrong_key' | 'proof_forged'

interface Claimant {
  readonly pinned: PeerKey
  readonly brokerKey: PeerKey
  readonly authority: string
  /** The certificate that preceded the greeting, if any. */
  readonly certificate: Uint8Array | null
  readonly nowMs: Millis
}

/** Checks the key that signs a greeting: the pinned key, or a shard's key that the pinned key certifies. */
export function judgeKey(
  { pinned, brokerKey, authority, certificate, nowMs }: Claimant,
  check: typeof checkShardCertificate,
): ShardRefusal | 'ok' {
  if (brokerKey === pinned) return 'ok'
  if (certificate === null) return 'wrong_key'
  return check(certificate, { clusterKey: pinned, shardKey: brokerKey, authority, nowMs })
}

const PATH = '/v1/ws'

/**
 * Returns the URL to dial. Query and fragment are dropped, because proxies log them; `normalizeAuthority` refuses
 * credentials.
 */
export function socketUrl(address: string): string {
  const url = new URL(address)
  const scheme = url.protocol === 'https:' || url.protocol === 'wss:' ? 'wss:' : 'ws:'
  return `${scheme}//${url.host}${url.pathname === '/' ? PATH : url.pathname}`
}
