/**
 * The servers: the only file that knows a socket. What a browser or a stranger may not do is refused before the upgrade;
 * after it, every callback is guarded, because a throw in one of Bun's handlers ends the process.
 */
import type { SendOutcome, SocketId } from '@sealpost/core'
import { normalizeAuthority } from '@sealpost/identity'
import {
  type CloseCode,
  chooseSubprotocol,
  closeNumber,
  decodeClientFrame,
  encodeToSend,
  type Form,
  FRAME_BYTES_MAX,
  type FrameOf,
  PROTOCOL_VERSIONS,
  type ServerFrame,
  SUBPROTOCOLS,
} from '@sealpost/protocol'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import type { Server, ServerWebSocket } from 'bun'
import type { Connection, Driver } from './driver.ts'
import type { Caller } from './http-api.ts'
import { errorFields, type Log } from './log.ts'

export interface ServerOptions {
  readonly host: string
  readonly port: number
  readonly authorities: readonly string[]
  readonly origins: readonly string[]
  /** Pages of the broker's own origins may connect, too. */
  readonly isDemoOn: boolean
  readonly brokerKey: PeerKey
  readonly authWithinMs: Millis
  readonly backpressureBytes: number
  /** `null` switches the limits of connections off. */
  readonly limits: { readonly socketsPerIp: number; readonly unauthenticatedMax: number } | null
}

export interface RunningServer {
  /** host:port */
  readonly authority: string
  /** Upgrades no more sockets. */
  refuseNewcomers(): void
  stop(): Promise<void>
}

export interface ServerParts {
  readonly driver: Driver
  readonly log: Log
  readonly fetch: (request: Request, caller: Caller) => Response | Promise<Response>
}

interface SocketState {
  readonly form: Form
  readonly authority: string
  readonly ip: string
  socket: SocketId
}
type Socket = ServerWebSocket<SocketState>

export const WEBSOCKET_PATH = '/v1/ws'
const API_PATHS = '/v1/'
const ADMIN_BODY_BYTES_MAX = 64 * 1024
const IDLE_SECONDS = 120 // a second net under the engine's own heartbeat

export function serve(parts: ServerParts, options: ServerOptions): RunningServer {
  const { driver, log } = parts
  const door = new Door(options, () => driver.connectionCount - driver.engine.sessionCount)

  const guard = (socket: Socket, act: () => void): void => {
    try {
      act()
    } catch (error) {
      log.error('socket.fault', { ...errorFields(error), socket: socket.data.socket })
      driver.step(() => driver.engine.refused(socket.data.socket, 'internal'))
    }
  }

  const receive = (socket: Socket, wire: string | Uint8Array): void => {
    const decoded = decodeClientFrame(socket.data.form, wire)
    driver.step(() => {
      if (decoded.ok) driver.engine.received(socket.data.socket, decoded.frame)
      else driver.engine.refused(socket.data.socket, decoded.code)
    })
  }

  const server = listen<SocketState>({
    hostname: options.host,
    port: options.port,
    development: false,
    maxRequestBodySize: FRAME_BYTES_MAX, // the same envelopes, by whichever way
    idleTimeout: 30,
    fetch: (request, server) => {
      // Bun takes whatever stands in `Host`, and without a usable one leaves the URL a bare path.
      if (!URL.canParse(request.url)) return refused(400, 'bad_host')
      const { pathname } = new URL(request.url)
      const address = server.requestIP(request)?.address ?? ''
      if (pathname === WEBSOCKET_PATH) return door.refusalOf(request, address) ?? upgrade(request, server, door)
      const refusal = pathname.startsWith(API_PATHS) ? door.apiRefusalOf(request) : null
      return refusal ?? parts.fetch(request, callerOf(request, server, door))
    },
    error: () => new Response('internal', { status: 500 }),
    websocket: {
      perMessageDeflate: false,
      maxPayloadLength: FRAME_BYTES_MAX,
      backpressureLimit: options.backpressureBytes,
      closeOnBackpressureLimit: true,
      idleTimeout: IDLE_SECONDS,
      sendPings: false,
      open: (socket) =>
        guard(socket, () => {
          socket.binaryType = 'uint8array'
          socket.data.socket = driver.connected(new BunConnection(socket), helloOf(options))
        }),
      message: (socket, wire) => guard(socket, () => receive(socket, wire)),
      pong: (socket) => guard(socket, () => driver.step(() => driver.engine.heard(socket.data.socket))),
      drain: (socket) => guard(socket, () => driver.step(() => driver.engine.drained(socket.data.socket))),
      close: (socket) => {
        door.left(socket.data.ip)
        guard(socket, () => driver.disconnected(socket.data.socket))
      },
    },
  })

  door.open(server.port!)
  return {
    authority: authorityWith(options.host, server.port!),
    refuseNewcomers: () => {
      door.isClosed = true
    },
    stop: () => server.stop(true),
  }
}

/** The private server, for operators. */
export function serveAdmin(options: {
  host: string
  port: number
  fetch: (request: Request) => Response | Promise<Response>
}): { readonly authority: string; stop(): Promise<void> } {
  const server = listen({
    hostname: options.host,
    port: options.port,
    development: false,
    maxRequestBodySize: ADMIN_BODY_BYTES_MAX,
    fetch: options.fetch,
  })
  return { authority: authorityWith(options.host, server.port!), stop: () => server.stop(true) }
}

/** Who may come in. */
class Door {
  isClosed = false
  private authorities: ReadonlySet<string> = new Set()
  private readonly options: ServerOptions
  private readonly unauthenticated: () => number
  private readonly socketsByIp = new Map<string, number>()

  constructor(options: ServerOptions, unauthenticated: () => number) {
    this.options = options
    this.unauthenticated = unauthenticated
  }

  open(port: number): void {
    const own = ['localhost', '127.0.0.1', '[::1]'].map((host) => `${host}:${port}`)
    this.authorities = new Set([...own, authorityWith(this.options.host, port), ...this.options.authorities])
  }

  /** The name under which the client reached us, with its port; none of ours when it is a page's rebound name. */
  authorityOf(request: Request): string | undefined {
    const host = request.headers.get('host')?.toLowerCase() ?? ''
    return [host, `${host}:443`, `${host}:80`].find((name) => this.authorities.has(name))
  }

  /** A client that is no browser names none. A page of ours names the very authority that its request went to. */
  private isOriginAllowed(request: Request): boolean {
    const origin = request.headers.get('origin')
    if (origin === null || this.options.origins.includes(origin)) return true
    if (!this.options.isDemoOn || !/^https?:/.test(origin) || !URL.canParse(origin)) return false
    return new URL(origin).origin === origin && normalizeAuthority(origin) === this.authorityOf(request)
  }

  refusalOf(request: Request, address: string): Response | null {
    const { headers } = request
    if (this.isClosed) return refused(503, 'restarting', { 'Retry-After': '1' })
    if (request.method !== 'GET' || headers.has('content-length') || headers.has('transfer-encoding'))
      return refused(400, 'bad_upgrade')
    if (headers.get('upgrade')?.toLowerCase() !== 'websocket')
      return refused(426, 'upgrade_required', { Upgrade: 'websocket' })
    if (new URL(request.url).search !== '' || headers.has('cookie')) return refused(400, 'credentials_in_upgrade')
    if (!this.authorityOf(request)) return refused(421, 'wrong_authority')
    if (!this.isOriginAllowed(request)) return refused(403, 'origin_not_allowed')
    if (!chooseSubprotocol(offeredBy(request))) return refused(400, 'no_common_subprotocol')
    const { limits } = this.options
    if (limits && (this.socketsByIp.get(prefixOf(address)) ?? 0) >= limits.socketsPerIp)
      return refused(429, 'too_many_connections', { 'Retry-After': '5' })
    if (limits && this.unauthenticated() >= limits.unauthenticatedMax)
      return refused(503, 'try_later', { 'Retry-After': '2' })
    return null
  }

  apiRefusalOf(request: Request): Response | null {
    if (this.isClosed) return refused(503, 'restarting', { 'Retry-After': '1' })
    if (!this.authorityOf(request)) return refused(421, 'wrong_authority')
    if (!this.isOriginAllowed(request)) return refused(403, 'origin_not_allowed')
    return null
  }

  entered(address: string): string {
    const ip = prefixOf(address)
    this.socketsByIp.set(ip, (this.socketsByIp.get(ip) ?? 0) + 1)
    return ip
  }

  left(ip: string): void {
    const count = (this.socketsByIp.get(ip) ?? 1) - 1
    if (count > 0) this.socketsByIp.set(ip, count)
    else this.socketsByIp.delete(ip)
  }
}

function upgrade(request: Request, server: Server<SocketState>, door: Door): Response | undefined {
  const subprotocol = chooseSubprotocol(offeredBy(request))!
  const ip = door.entered(server.requestIP(request)?.address ?? '')
  const isUpgraded = server.upgrade(request, {
    // Always named: left to itself Bun answers with the first protocol offered, ours or not.
    headers: { 'Sec-WebSocket-Protocol': subprotocol },
    data: { form: SUBPROTOCOLS[subprotocol], authority: door.authorityOf(request)!, ip, socket: 0 },
  })
  if (isUpgraded) return undefined
  door.left(ip)
  return refused(400, 'bad_upgrade')
}

function callerOf(request: Request, server: Server<SocketState>, door: Door): Caller {
  return {
    ip: prefixOf(server.requestIP(request)?.address ?? ''),
    authority: door.authorityOf(request) ?? '',
    staysSilent: (seconds) => server.timeout(request, seconds),
  }
}

class BunConnection implements Connection {
  readonly authority: string
  private readonly socket: Socket

  constructor(socket: Socket) {
    this.socket = socket
    this.authority = socket.data.authority
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    let outcome: SendOutcome = 'sent'
    this.socket.cork(() => {
      for (const frame of frames) {
        const status = this.socket.send(encodeToSend(this.socket.data.form, frame))
        if (status === 0) outcome = 'dropped'
        else if (status === -1 && outcome === 'sent') outcome = 'buffered'
      }
    })
    return outcome
  }

  close(code: CloseCode, retryAfterMs: Millis): void {
    const refused = { type: 'refused', code, retryAfterMs: Math.ceil(retryAfterMs), reason: '' } as const
    this.socket.send(encodeToSend(this.socket.data.form, refused))
    this.socket.close(closeNumber(code), code)
  }

  hangUp(): void {
    this.socket.close(1000)
  }

  ping(): void {
    this.socket.ping()
  }
  pause(): void {
    this.socket.pause()
  }
  resume(): void {
    this.socket.resume()
  }
}

export function helloOf(options: Pick<ServerOptions, 'brokerKey' | 'authWithinMs'>): FrameOf<'hello'> {
  return {
    type: 'hello',
    versions: [...PROTOCOL_VERSIONS],
    brokerKey: options.brokerKey,
    connectionId: crypto.getRandomValues(new Uint8Array(16)),
    nonce: crypto.getRandomValues(new Uint8Array(32)),
    issuedAtMs: Date.now(),
    authWithinMs: options.authWithinMs,
  }
}

const refused = (status: number, code: string, headers: Record<string, string> = {}): Response =>
  Response.json({ code }, { status, headers })

const authorityWith = (host: string, port: number): string => `${host.includes(':') ? `[${host}]` : host}:${port}`

/** @throws OperatingError `port_taken`, `address_unusable` */
function listen<T>(options: Bun.Serve.Options<T>): Server<T> {
  try {
    return Bun.serve<T>(options)
  } catch (error) {
    const { code } = error as { code?: string }
    const place = `${options.hostname}:${options.port}`
    if (code === 'EADDRINUSE') throw new OperatingError('port_taken', `Something else listens on ${place} already.`)
    throw new OperatingError('address_unusable', `Can't listen on ${place} (${code ?? 'unknown error'}).`)
  }
}

const offeredBy = (request: Request): string[] =>
  (request.headers.get('sec-websocket-protocol') ?? '').split(',').map((name) => name.trim())

/** An address, or the /64 of an IPv6 one: whoever has one of those has all of it. */
const prefixOf = (address: string): string =>
  address.includes(':') && !address.includes('.') ? address.split(':').slice(0, 4).join(':') : address
