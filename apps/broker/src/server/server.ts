/**
 * The servers: the only file that knows a socket. What a browser or an unknown client may not do is refused before the upgrade;
 * after it, every callback is guarded, because a throw in one of Bun's handlers ends the process.
 */
import { type SendOutcome, type SocketId, TokenBucket } from '@sealpost/core'
import type { Connection, Driver } from '@sealpost/driver'
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
import type { Server, ServerWebSocket, WebSocketHandler } from 'bun'
import type { Caller } from '../http/context.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import { AdmissionControl, type AdmissionOptions, authorityWith, type Evictable, offeredBy } from './admission.ts'
import { type Port, watchDescriptors } from './descriptors.ts'
import { endpointSettings } from './endpoint.ts'
import type { Intake, Intakes } from './intake.ts'
import type { Tls } from './tls-files.ts'

export interface ServerOptions extends AdmissionOptions {
  readonly port: number
  /** `null`: plain text. */
  readonly tls: Tls | null
  readonly brokerKey: PeerKey
  /** Of that key, by that of the cluster. */
  readonly certificate: Uint8Array | null
  readonly authWithinMs: Millis
  readonly backpressureBytes: number
  /** Bytes that each member may have parsed; `null`: any number. */
  readonly intakes: Intakes | null
}

export interface RunningServer {
  /** host:port */
  readonly authority: string
  readonly port: number
  /** Serves another certificate to new connections; open ones stay. @throws OperatingError as `serve` */
  renew(tls: Tls): void
  /** For want of descriptors. */
  isPortClosed(): boolean
  /** Upgrades no more sockets. */
  refuseNewcomers(): void
  stop(): Promise<void>
}

export interface ServerParts {
  readonly driver: Driver
  readonly log: Log
  readonly isOverloaded: () => boolean
  /** A request, or an upgrade, was answered with this code before anything was done for it. */
  readonly refused: (code: string) => void
  readonly fetch: (request: Request, caller: Caller) => Response | Promise<Response>
  /** A session is open, or was refused with a code; how long after `hello`. */
  readonly handshake: (tookMs: Millis, refused: CloseCode | null) => void
}

interface SocketState extends Evictable {
  readonly form: Form
  readonly authority: string
  readonly clientAddress: string
  socket: SocketId
  connection: BunConnection | null
  isProven: boolean
  /** From the proof of its key on, unless limits are off. */
  intake: Intake | null
  readonly startedAtMs: Millis
  /** Pings and pongs it may still say. */
  readonly controls: TokenBucket
}
type Socket = ServerWebSocket<SocketState>

export const WEBSOCKET_PATH = '/v1/ws'
const API_PATHS = '/v1/'
const ADMIN_BODY_BYTES_MAX = 64 * 1024
/** Ten a second are a client's own business; more for 5 seconds are a flood. */
const CONTROLS = { perSecond: 10, burst: 50 }

export function serve(parts: ServerParts, options: ServerOptions): RunningServer {
  const admission = new AdmissionControl(options, {
    isOverloaded: parts.isOverloaded,
    hasNoRoom: () => descriptors.areFew,
    refused: parts.refused,
  })

  const listener = new Listener<SocketState>({
    hostname: options.host,
    port: options.port,
    maxRequestBodySize: FRAME_BYTES_MAX, // the same envelopes, by whichever way
    idleTimeout: 30,
    fetch: (request, server) => {
      // Bun takes whatever stands in `Host`, and without a usable one leaves the URL a bare path.
      if (!URL.canParse(request.url)) return admission.refuse(400, 'bad_host')
      const { pathname } = new URL(request.url)
      const clientAddress = admission.clientAddressOf(request, server.requestIP(request)?.address ?? '')
      if (pathname === WEBSOCKET_PATH)
        return (
          admission.upgradeRefusal(request, clientAddress) ?? upgrade({ request, server, admission, clientAddress })
        )
      const refusal =
        admission.requestRefusal(clientAddress, pathname) ??
        (pathname.startsWith(API_PATHS) ? admission.apiRefusal(request) : null)
      return refusal ?? parts.fetch(request, callerOf({ request, server, admission, clientAddress }))
    },
    error: () => new Response('internal', { status: 500 }),
    websocket: socketHandlers(parts, options, admission),
  })
  const port = listener.open(options.tls)

  admission.open(port)
  const descriptors = watchDescriptors(listener, parts.log)
  return {
    authority: authorityWith(options.host, port),
    port,
    renew: (tls) => void listener.open(tls),
    isPortClosed: () => descriptors.isPortClosed,
    refuseNewcomers: () => {
      admission.isClosed = true
    },
    stop: () => {
      descriptors.stop()
      return listener.stop()
    },
  }
}

/** What the types of Bun do not name yet. */
interface Idling {
  closeIdleConnections(): number
}

type Serving<T> = Bun.Serve.Options<T> & { readonly port: number }

/**
 * Bun keeps the certificate of a server as long as it listens. For another one a second server takes the port over: the
 * first stops to listen, and keeps its sockets and requests until they end by themselves. In between, for half a millisecond,
 * nobody listens.
 */
class Listener<T> implements Port {
  readonly #options: Serving<T>
  #server: Server<T> | null = null
  #tls: Tls | null = null
  #isPaused = false
  /** A server that has stopped does not know its port. */
  #pausedPort = 0
  readonly #former = new Set<Server<T>>()

  constructor(options: Serving<T>) {
    this.#options = options
  }

  /** @throws OperatingError `port_taken`, `address_unusable` */
  open(tls: Tls | null): number {
    if (this.#isPaused) {
      this.#tls = tls
      return this.#pausedPort
    }
    const former = this.#server
    const port = former?.port ?? this.#options.port
    if (former) this.#retire(former)
    try {
      this.#server = this.#listen(port, tls)
    } catch (error) {
      if (former) this.#server = this.#listen(port, this.#tls)
      throw error
    }
    this.#tls = tls
    return this.#server.port!
  }

  pause(): void {
    this.#isPaused = true
    this.#pausedPort = this.#server!.port!
    this.#retire(this.#server!)
  }

  /** @throws OperatingError as `open` */
  resume(): void {
    this.#server = this.#listen(this.#pausedPort, this.#tls)
    this.#isPaused = false
  }

  closeIdle(): void {
    for (const server of [...this.#former, this.#server]) (server as Idling | null)?.closeIdleConnections()
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#former, this.#server].map((server) => server?.stop(true)))
  }

  #retire(server: Server<T>): void {
    this.#former.add(server)
    void server.stop().finally(() => this.#former.delete(server))
  }

  #listen(port: number, tls: Tls | null): Server<T> {
    const security = tls ? { tls: { cert: tls.cert, key: tls.key } } : {}
    return listen('PORT', { ...this.#options, ...security, port })
  }
}

function socketHandlers({ driver, log, handshake }: ServerParts, options: ServerOptions, admission: AdmissionControl) {
  const guard = (socket: Socket, act: () => void): void => {
    try {
      act()
    } catch (error) {
      log.error('socket.fault', { ...errorFields(error), socket: socket.data.socket })
      driver.step(() => driver.engine.refused(socket.data.socket, 'internal'))
    }
  }

  const receive = (socket: Socket, wire: string | Uint8Array): void => {
    const { form, isProven, clientAddress, connection } = socket.data
    if (isProven) connection?.parsing(wire.length)
    else admission.heard(socket.data)
    if (!isProven && admission.chargeUnproven(clientAddress, wire.length) > 0)
      return driver.step(() => driver.engine.refused(socket.data.socket, 'rate_exceeded'))
    const decoded = decodeClientFrame(form, wire, isProven ? 'proven' : 'unproven')
    if (!decoded.ok) socket.data.intake?.refuse(wire.length)
    driver.step(() => {
      if (decoded.ok) driver.engine.received(socket.data.socket, decoded.frame)
      else driver.engine.refused(socket.data.socket, decoded.code)
    })
  }

  return {
    ...endpointSettings(options.backpressureBytes),
    open: (socket) =>
      guard(socket, () => {
        socket.binaryType = 'uint8array'
        const connection = new BunConnection(socket, { admission, handshake, driver, intakes: options.intakes })
        socket.data.connection = connection
        if (options.certificate) connection.send([{ type: 'certificate', certificate: options.certificate }])
        socket.data.socket = driver.connected(connection, helloOf(options))
      }),
    message: (socket, wire) => guard(socket, () => receive(socket, wire)),
    ping: (socket) => guard(socket, () => countControl(socket, driver)),
    pong: (socket) => {
      guard(socket, () => {
        driver.step(() => driver.engine.ponged(socket.data.socket))
        countControl(socket, driver)
      })
    },
    drain: (socket) => guard(socket, () => driver.step(() => driver.engine.drained(socket.data.socket))),
    close: (socket) => {
      admission.left(socket.data.clientAddress, socket.data, socket.data.isProven)
      socket.data.connection?.over()
      guard(socket, () => driver.disconnected(socket.data.socket))
    },
  } satisfies WebSocketHandler<SocketState>
}

/** The private server, for operators. It never has TLS. */
export function serveAdmin(options: {
  host: string
  port: number
  fetch: (request: Request) => Response | Promise<Response>
}): { readonly authority: string; stop(): Promise<void> } {
  const server = listen('ADMIN_PORT', {
    hostname: options.host,
    port: options.port,
    maxRequestBodySize: ADMIN_BODY_BYTES_MAX,
    fetch: options.fetch,
  })
  return { authority: authorityWith(options.host, server.port!), stop: () => server.stop(true) }
}

/** Bun answers each ping by itself, so a flood of them costs us and is no frame that the engine sees. */
function countControl({ data }: Socket, driver: Driver): void {
  if (data.controls.take(performance.now()) > 0) driver.step(() => driver.engine.refused(data.socket, 'rate_exceeded'))
}

interface Arrival {
  readonly request: Request
  readonly server: Server<SocketState>
  readonly admission: AdmissionControl
  readonly clientAddress: string
}

function upgrade({ request, server, admission, clientAddress }: Arrival): Response | undefined {
  const subprotocol = chooseSubprotocol(offeredBy(request))!
  const data: SocketState = {
    form: SUBPROTOCOLS[subprotocol],
    authority: admission.authorityOf(request)!,
    clientAddress,
    socket: 0,
    connection: null,
    isProven: false,
    intake: null,
    startedAtMs: performance.now(),
    controls: new TokenBucket(CONTROLS, performance.now()),
    evict: () => data.connection?.evict(),
  }
  // The subprotocol is always named: left to itself Bun answers with the first one offered, ours or not.
  const isUpgraded = server.upgrade(request, { headers: { 'Sec-WebSocket-Protocol': subprotocol }, data })
  if (!isUpgraded) return admission.refuse(400, 'bad_upgrade')
  admission.entered(clientAddress, data)
  return undefined
}

function callerOf({ request, server, admission, clientAddress }: Arrival): Caller {
  return {
    ip: clientAddress,
    chargeUnproven: (bytes) => admission.chargeUnproven(clientAddress, bytes),
    oweUnproven: (bytes) => admission.oweUnproven(clientAddress, bytes),
    authority: admission.authorityOf(request) ?? '',
    staysSilent: (seconds) => server.timeout(request, seconds),
  }
}

interface ConnectionParts extends Pick<ServerParts, 'handshake' | 'driver'>, Pick<ServerOptions, 'intakes'> {
  readonly admission: AdmissionControl
}

class BunConnection implements Connection {
  readonly authority: string
  private readonly socket: Socket
  private readonly parts: ConnectionParts
  /** Its member, from the proof of its key on. */
  private member: string | undefined
  private isPaused = false
  private heldBack: ReturnType<typeof setTimeout> | undefined

  constructor(socket: Socket, parts: ConnectionParts) {
    this.socket = socket
    this.parts = parts
    this.authority = socket.data.authority
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    const { data } = this.socket
    if (!data.isProven && frames.some(({ type }) => type === 'welcome')) this.proven()
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
    const { isProven, startedAtMs, form } = this.socket.data
    if (!isProven) this.parts.handshake(performance.now() - startedAtMs, code)
    this.socket.send(encodeToSend(form, refused))
    this.socket.close(closeNumber(code), code)
  }

  hangUp(): void {
    this.socket.close(1000)
  }

  ping(): void {
    this.socket.ping()
  }
  pause(): void {
    this.isPaused = true
    this.socket.pause()
  }
  resume(): void {
    this.isPaused = false
    if (!this.heldBack) this.socket.resume()
  }

  /** A frame of so many bytes is about to be parsed. Over its member's rate the socket is not read for a while. */
  parsing(bytes: number): void {
    const { intake } = this.socket.data
    const owedMs = intake ? intake.parse(bytes) : 0
    if (owedMs > 0) this.holdBack(owedMs)
  }

  /** Makes room for another connection. */
  evict(): void {
    const { driver } = this.parts
    driver.step(() => driver.engine.refused(this.socket.data.socket, 'try_later'))
  }

  /** The socket is closed. */
  over(): void {
    clearTimeout(this.heldBack)
    if (this.member !== undefined) this.parts.intakes?.leave(this.member)
  }

  private proven(): void {
    const { data } = this.socket
    const { admission, handshake, driver, intakes } = this.parts
    data.isProven = true
    admission.proven(data.clientAddress, data)
    handshake(performance.now() - data.startedAtMs, null)
    this.member = intakes ? driver.engine.limitNameOf(data.socket) : undefined
    if (this.member === undefined) return
    data.intake = intakes!.enter(this.member)
    const owedMs = data.intake.owed()
    if (owedMs > 0) this.holdBack(owedMs)
  }

  private holdBack(ms: Millis): void {
    if (this.heldBack) return
    this.socket.pause()
    this.heldBack = setTimeout(() => {
      this.heldBack = undefined
      const owedMs = this.socket.data.intake!.owed()
      if (owedMs > 0) this.holdBack(owedMs)
      else if (!this.isPaused) this.socket.resume()
    }, ms)
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

/**
 * Without `reusePort: false`, `development: false` sets SO_REUSEPORT, and the kernel deals new connections to two brokers on one port.
 * @throws OperatingError `port_taken`, `address_unusable`
 */
function listen<T>(setting: 'PORT' | 'ADMIN_PORT', options: Bun.Serve.Options<T>): Server<T> {
  try {
    return Bun.serve<T>({ ...options, development: false, reusePort: false } as Bun.Serve.Options<T>)
  } catch (error) {
    const { code } = error as { code?: string }
    const place = `${options.hostname}:${options.port}`
    if (code === 'EADDRINUSE')
      throw new OperatingError(
        'port_taken',
        `Something else listens on ${place} already: set ${setting} to another port.`,
      )
    throw new OperatingError('address_unusable', `Can't listen on ${place} (${code ?? 'unknown error'}).`)
  }
}
