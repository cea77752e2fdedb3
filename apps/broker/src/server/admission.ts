/**
 * Refuses connections and requests before any work is done for them: by origin, rate per address and total load, in the
 * order of docs/PROTOCOL.md.
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
  readonly upgrades: Rate
  readonly requests: Rate
  /** The maximum rate of attachment chunks from an address, counted separately. */
  readonly chunks: Rate
}

export interface AdmissionOptions {
  readonly host: string
  readonly authorities: readonly string[]
  readonly origins: readonly string[]
  /** Whether the demo is on, in which case the broker's own pages may connect. */
  readonly isDemoOn: boolean
  readonly proxies: Proxies
  /** `null` disables the limits. */
  readonly limits: AdmissionLimits | null
}

interface AdmissionParts {
  readonly isOverloaded: () => boolean
  /** Returns whether descriptors are too few for new connections, but not for requests. */
  readonly hasNoRoom: () => boolean
  readonly refused: (code: string) => void
}

export interface Evictable {
  evict(): void
}

interface AddressCounts {
  sockets: number
  unproven: number
}

const FORGET_EVERY_MS = 10_000
/** The rate of bytes parsed for an address without a proven key. An `auth` has 300 bytes, an `enrol` 2,000. */
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

  /** Returns the address for limits: IPv4, or the /64 of an IPv6 address. */
  clientAddressOf(request: Request, connection: string): string {
    return this.addresses.clientOf(request.headers, connection)
  }

  /** Returns the authority that the client used; undefined unless it is the broker's (DNS rebinding). */
  authorityOf(request: Request): string | undefined {
    const host = request.headers.get('host')?.toLowerCase() ?? ''
    return [host, `${host}:443`, `${host}:80`].find((name) => this.authorities.has(name))
  }

  upgradeRefusal(request: Request, clientAddress: string): Response | null {
    return this.malformed(request) ?? this.crowded(clientAddress)
  }

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

  /** Charges bytes before an unauthenticated client's frame is parsed. Returns the milliseconds until a retry, or 0. */
  chargeUnproven(clientAddress: string, bytes: number): Millis {
    return this.unprovenBytes?.take(clientAddress, performance.now(), bytes) ?? 0
  }

  /** Charges bytes that were read, even beyond the budget, which refuses the address until it has refilled. */
  oweUnproven(clientAddress: string, bytes: number): void {
    this.unprovenBytes?.charge(clientAddress, performance.now(), bytes)
  }

  /** Counts a connection. If too many are unauthenticated, closes the one to make room. */
  entered(clientAddress: string, connection: Evictable): void {
    const counts = this.addressCounts.get(clientAddress) ?? { sockets: 0, unproven: 0 }
    counts.sockets += 1
    counts.unproven += 1
    this.addressCounts.set(clientAddress, counts)
    if (this.isFull) this.makeRoomFor(clientAddress)
    this.unproven.add(connection, clientAddress, performance.now())
  }

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

  /** Other clients than browsers send no origin. The broker's pages have the origin that their request was sent to. */
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
