/**
 * Refuses connections and requests before the broker does any work for them. Checks browser origins, rates per address,
 * and total load. docs/PROTOCOL.md specifies the order of the checks.
 */
import { type Rate, Rates } from '@sealpost/core'
import { normalizeAuthority } from '@sealpost/identity'
import { chooseSubprotocol } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { Addresses, type Proxies, UnprovenConnections } from './unproven-connections.ts'

export interface AdmissionLimits {
  readonly socketsPerIp: number
  readonly unprovenPerIp: number
  readonly unprovenMax: number
  /** The maximum rate of new connections from one address. */
  readonly upgrades: Rate
  /** The maximum rate of HTTP requests from one address. */
  readonly requests: Rate
  /** The maximum rate of attachment chunks from one address. They are counted separately from other requests. */
  readonly chunks: Rate
}

export interface AdmissionOptions {
  readonly host: string
  readonly authorities: readonly string[]
  readonly origins: readonly string[]
  /** Whether the demo is on. If so, pages from the broker's own origins may connect. */
  readonly isDemoOn: boolean
  readonly proxies: Proxies
  /** `null` disables the limits. */
  readonly limits: AdmissionLimits | null
}

interface AdmissionParts {
  readonly isOverloaded: () => boolean
  /** Returns whether too few descriptors are free for new connections. HTTP requests are still served. */
  readonly hasNoRoom: () => boolean
  readonly refused: (code: string) => void
}

export interface Evictable {
  /** Closes this connection to make room for another one. */
  evict(): void
}

/** The open connections from one client address. */
interface AddressCounts {
  sockets: number
  unproven: number
}

const FORGET_EVERY_MS = 10_000
/**
 * The bytes that the broker parses for an address that has not proven a key. An `auth` has about 300 bytes, an `enrol`
 * 2,000.
 */
const UNPROVEN_BYTE_RATE: Rate = { perSecond: 64 * 1024, burst: 1024 * 1024 }
const CHUNK_PATH = /^\/v1\/meshes\/[^/]+\/attachments\/[^/]+\/chunks\/[^/]+$/

export class AdmissionControl {
  isClosed = false
  private authorities: ReadonlySet<string> = new Set()
  private readonly options: AdmissionOptions
  private readonly parts: AdmissionParts
  private readonly addresses: Addresses
  private readonly addressCounts = new Map<string, AddressCounts>()
  private readonly unproven = new UnprovenConnections<Evictable>()
  private readonly upgrades: Rates | null
  private readonly requests: Rates | null
  private readonly chunks: Rates | null
  private readonly unprovenBytes: Rates | null

  constructor(options: AdmissionOptions, parts: AdmissionParts) {
    this.options = options
    this.parts = parts
    this.addresses = new Addresses(options.proxies)
    const { limits } = options
    this.upgrades = limits && new Rates(limits.upgrades)
    this.requests = limits && new Rates(limits.requests)
    this.chunks = limits && new Rates(limits.chunks)
    this.unprovenBytes = limits && new Rates(UNPROVEN_BYTE_RATE)
    if (limits) setInterval(() => this.forget(), FORGET_EVERY_MS).unref()
  }

  open(port: number): void {
    const own = ['localhost', '127.0.0.1', '[::1]'].map((host) => `${host}:${port}`)
    this.authorities = new Set([...own, authorityWith(this.options.host, port), ...this.options.authorities])
  }

  /** Returns the client address to which the limits apply: an IPv4 address, or the /64 of an IPv6 address. */
  clientAddressOf(request: Request, connection: string): string {
    return this.addresses.clientOf(request.headers, connection)
  }

  /**
   * Returns the host and port that the client used to reach the broker; undefined if the name is not the broker's, as
   * in a DNS rebinding attack.
   */
  authorityOf(request: Request): string | undefined {
    const host = request.headers.get('host')?.toLowerCase() ?? ''
    return [host, `${host}:443`, `${host}:80`].find((name) => this.authorities.has(name))
  }

  upgradeRefusal(request: Request, clientAddress: string): Response | null {
    return this.malformed(request) ?? this.crowded(clientAddress)
  }

  /** Returns the refusal of an HTTP request, if there is one. */
  requestRefusal(clientAddress: string, pathname: string): Response | null {
    return this.tooFast(CHUNK_PATH.test(pathname) ? this.chunks : this.requests, clientAddress)
  }

  apiRefusal(request: Request): Response | null {
    if (this.isClosed) return this.refuse(503, 'restarting', 1000)
    if (!this.authorityOf(request)) return this.refuse(421, 'wrong_authority')
    if (!this.isOriginAllowed(request)) return this.refuse(403, 'origin_not_allowed')
    if (this.parts.isOverloaded()) return this.refuse(503, 'try_later', 2000)
    return null
  }

  /**
   * Charges bytes that are to be parsed before the client has proven its key. Returns 0, or the milliseconds until a
   * retry.
   */
  chargeUnproven(clientAddress: string, bytes: number): Millis {
    return this.unprovenBytes?.take(clientAddress, performance.now(), bytes) ?? 0
  }

  /** Charges bytes that were read even though the budget was used up. The address is refused until the debt is paid. */
  oweUnproven(clientAddress: string, bytes: number): void {
    this.unprovenBytes?.charge(clientAddress, performance.now(), bytes)
  }

  /**
   * Counts the connection. If there are too many connections without a proven key, closes the one that must make room.
   */
  entered(clientAddress: string, connection: Evictable): void {
    const counts = this.addressCounts.get(clientAddress) ?? { sockets: 0, unproven: 0 }
    counts.sockets += 1
    counts.unproven += 1
    this.addressCounts.set(clientAddress, counts)
    if (this.isFull) this.makeRoomFor(clientAddress)
    this.unproven.add(connection, clientAddress, performance.now())
  }

  /** Records that the connection's first frame has arrived. */
  heard(connection: Evictable): void {
    this.unproven.heard(connection)
  }

  proven(clientAddress: string, connection: Evictable): void {
    const counts = this.addressCounts.get(clientAddress)
    if (counts) counts.unproven -= 1
    this.unproven.delete(connection)
  }

  left(clientAddress: string, connection: Evictable, wasProven: boolean): void {
    this.unproven.delete(connection)
    const counts = this.addressCounts.get(clientAddress)
    if (!counts) return
    counts.sockets -= 1
    if (!wasProven) counts.unproven -= 1
    if (counts.sockets === 0) this.addressCounts.delete(clientAddress)
  }

  refuse(status: number, code: string, retryAfterMs?: Millis, headers: Record<string, string> = {}): Response {
    this.parts.refused(code)
    if (retryAfterMs === undefined) return Response.json({ code }, { status, headers })
    const later = { 'Retry-After': String(Math.ceil(retryAfterMs / 1000)) }
    return Response.json({ code, retryAfterMs: Math.ceil(retryAfterMs) }, { status, headers: { ...headers, ...later } })
  }

  private malformed(request: Request): Response | null {
    const { headers } = request
    if (this.isClosed) return this.refuse(503, 'restarting', 1000)
    if (request.method !== 'GET' || headers.has('content-length') || headers.has('transfer-encoding'))
      return this.refuse(400, 'bad_upgrade')
    if (headers.get('upgrade')?.toLowerCase() !== 'websocket')
      return this.refuse(426, 'upgrade_required', undefined, { Upgrade: 'websocket' })
    if (new URL(request.url).search !== '' || headers.has('cookie')) return this.refuse(400, 'credentials_in_upgrade')
    if (!this.authorityOf(request)) return this.refuse(421, 'wrong_authority')
    if (!this.isOriginAllowed(request)) return this.refuse(403, 'origin_not_allowed')
    if (!chooseSubprotocol(offeredBy(request))) return this.refuse(400, 'no_common_subprotocol')
    return null
  }

  private crowded(clientAddress: string): Response | null {
    const { limits } = this.options
    if (this.parts.hasNoRoom()) return this.refuse(503, 'try_later', 2000)
    if (!limits) return null
    const counts = this.addressCounts.get(clientAddress)
    if (counts && counts.sockets >= limits.socketsPerIp) return this.refuse(429, 'too_many_connections', 5000)
    if (counts && counts.unproven >= limits.unprovenPerIp) return this.refuse(429, 'too_many_unproven', 1000)
    const tooFast = this.tooFast(this.upgrades, clientAddress)
    if (tooFast) return tooFast
    const hasRoom = !this.isFull || this.unproven.victimFor(clientAddress, performance.now()) !== undefined
    return hasRoom && !this.parts.isOverloaded() ? null : this.refuse(503, 'try_later', 2000)
  }

  private get isFull(): boolean {
    const { limits } = this.options
    return limits !== null && this.unproven.size >= limits.unprovenMax
  }

  private makeRoomFor(clientAddress: string): void {
    const victim = this.unproven.victimFor(clientAddress, performance.now())
    if (!victim) return
    this.unproven.delete(victim)
    victim.evict()
  }

  private tooFast(rates: Rates | null, clientAddress: string): Response | null {
    const retryAfterMs = rates?.take(clientAddress, performance.now()) ?? 0
    return retryAfterMs > 0 ? this.refuse(429, 'rate_limited', retryAfterMs) : null
  }

  /** Clients other than browsers send no origin. A page served by the broker has the origin that its request was sent to. */
  private isOriginAllowed(request: Request): boolean {
    const origin = request.headers.get('origin')
    if (origin === null || this.options.origins.includes(origin)) return true
    if (!this.options.isDemoOn || !/^https?:/.test(origin) || !URL.canParse(origin)) return false
    return new URL(origin).origin === origin && normalizeAuthority(origin) === this.authorityOf(request)
  }

  private forget(): void {
    this.upgrades?.forgetFull(performance.now())
    this.requests?.forgetFull(performance.now())
    this.chunks?.forgetFull(performance.now())
    this.unprovenBytes?.forgetFull(performance.now())
  }
}

export const authorityWith = (host: string, port: number): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`

export const offeredBy = (request: Request): string[] =>
  (request.headers.get('sec-websocket-protocol') ?? '').split(',').map((name) => name.trim())
