/**
 * Who may come in: what a browser, a stranger or a crowd may not do is refused before anything is spent on it. The order
 * of the checks is part of docs/PROTOCOL.md.
 */
import { Rates } from '@sealpost/core'
import { normalizeAuthority } from '@sealpost/identity'
import { chooseSubprotocol } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { Addresses, type Proxies } from './addresses.ts'
import type { Rate } from './http-limits.ts'

export interface DoorLimits {
  readonly socketsPerIp: number
  readonly unprovenPerIp: number
  readonly unprovenMax: number
  /** New connections of one address. */
  readonly upgrades: Rate
  /** Its requests by HTTP. */
  readonly requests: Rate
  /** Beside them its chunks of attachments. */
  readonly chunks: Rate
}

export interface DoorOptions {
  readonly host: string
  readonly authorities: readonly string[]
  readonly origins: readonly string[]
  /** Pages of the broker's own origins may connect, too. */
  readonly isDemoOn: boolean
  readonly proxies: Proxies
  /** `null` switches them off. */
  readonly limits: DoorLimits | null
}

interface DoorParts {
  /** Of all connections, how many have not proven a key. */
  readonly unproven: () => number
  /** The broker has more to do than it can. */
  readonly isOverloaded: () => boolean
  readonly refused: (code: string) => void
}

/** What one address has open. */
interface Guest {
  sockets: number
  unproven: number
}

const FORGET_EVERY_MS = 10_000
const CHUNK_PATH = /^\/v1\/meshes\/[^/]+\/attachments\/[^/]+\/chunks\/[^/]+$/

export class Door {
  isClosed = false
  private authorities: ReadonlySet<string> = new Set()
  private readonly options: DoorOptions
  private readonly parts: DoorParts
  private readonly addresses: Addresses
  private readonly guests = new Map<string, Guest>()
  private readonly upgrades: Rates | null
  private readonly requests: Rates | null
  private readonly chunks: Rates | null

  constructor(options: DoorOptions, parts: DoorParts) {
    this.options = options
    this.parts = parts
    this.addresses = new Addresses(options.proxies)
    const { limits } = options
    this.upgrades = limits && new Rates(limits.upgrades)
    this.requests = limits && new Rates(limits.requests)
    this.chunks = limits && new Rates(limits.chunks)
    if (limits) setInterval(() => this.forget(), FORGET_EVERY_MS).unref()
  }

  open(port: number): void {
    const own = ['localhost', '127.0.0.1', '[::1]'].map((host) => `${host}:${port}`)
    this.authorities = new Set([...own, authorityWith(this.options.host, port), ...this.options.authorities])
  }

  /** What stands for whoever it is in every limit. */
  guestOf(request: Request, connection: string): string {
    return this.addresses.clientOf(request.headers, connection)
  }

  /** The name under which the client reached us, with its port; none of ours when it is a page's rebound name. */
  authorityOf(request: Request): string | undefined {
    const host = request.headers.get('host')?.toLowerCase() ?? ''
    return [host, `${host}:443`, `${host}:80`].find((name) => this.authorities.has(name))
  }

  upgradeRefusal(request: Request, guest: string): Response | null {
    return this.malformed(request) ?? this.crowded(guest)
  }

  /** Of any request by HTTP. */
  requestRefusal(guest: string, pathname: string): Response | null {
    return this.tooFast(CHUNK_PATH.test(pathname) ? this.chunks : this.requests, guest)
  }

  apiRefusal(request: Request): Response | null {
    if (this.isClosed) return this.refuse(503, 'restarting', 1000)
    if (!this.authorityOf(request)) return this.refuse(421, 'wrong_authority')
    if (!this.isOriginAllowed(request)) return this.refuse(403, 'origin_not_allowed')
    if (this.parts.isOverloaded()) return this.refuse(503, 'try_later', 2000)
    return null
  }

  entered(name: string): void {
    const guest = this.guests.get(name) ?? { sockets: 0, unproven: 0 }
    guest.sockets += 1
    guest.unproven += 1
    this.guests.set(name, guest)
  }

  proven(name: string): void {
    const guest = this.guests.get(name)
    if (guest) guest.unproven -= 1
  }

  left(name: string, wasProven: boolean): void {
    const guest = this.guests.get(name)
    if (!guest) return
    guest.sockets -= 1
    if (!wasProven) guest.unproven -= 1
    if (guest.sockets === 0) this.guests.delete(name)
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

  private crowded(name: string): Response | null {
    const { limits } = this.options
    if (!limits) return null
    const guest = this.guests.get(name)
    if (guest && guest.sockets >= limits.socketsPerIp) return this.refuse(429, 'too_many_connections', 5000)
    if (guest && guest.unproven >= limits.unprovenPerIp) return this.refuse(429, 'too_many_unproven', 1000)
    const tooFast = this.tooFast(this.upgrades, name)
    if (tooFast) return tooFast
    if (this.parts.isOverloaded() || this.parts.unproven() >= limits.unprovenMax)
      return this.refuse(503, 'try_later', 2000)
    return null
  }

  private tooFast(rates: Rates | null, guest: string): Response | null {
    const retryAfterMs = rates?.take(guest, performance.now()) ?? 0
    return retryAfterMs > 0 ? this.refuse(429, 'rate_limited', retryAfterMs) : null
  }

  /** A client that is no browser names none. A page of ours names the very authority that its request went to. */
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
  }
}

export const authorityWith = (host: string, port: number): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`

export const offeredBy = (request: Request): string[] =>
  (request.headers.get('sec-websocket-protocol') ?? '').split(',').map((name) => name.trim())
