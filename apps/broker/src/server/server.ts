/** Opens the ports, and refuses requests and upgrades that browsers or unauthenticated clients may not make. */

import { CONSOLE_PATH, type Console } from '@sealpost/console'
import { DEMO_PATH, type Demo } from '@sealpost/demo'
import { chooseSubprotocol, FRAME_BYTES_MAX, SUBPROTOCOLS } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import type { Server } from 'bun'
import { type Context, Hono } from 'hono'
import type { Caller } from '../http/route-parts.ts'
import { AdmissionControl, type AdmissionOptions, authorityWith, offeredBy } from './admission.ts'
import { type SocketOptions, type SocketPorts, type SocketState, socketHandlers, socketState } from './connection.ts'
import { type Port, watchDescriptors } from './overload.ts'
import type { Tls } from './tls-files.ts'

export interface ServerOptions extends AdmissionOptions, SocketOptions {
  readonly port: number
  readonly tls: Tls | null
}

export interface RunningServer {
  readonly authority: string
  readonly port: number
  /** Uses a new certificate for new connections. @throws the errors of `serve` */
  renew(tls: Tls): void
  /** Whether the port is closed for lack of descriptors. */
  isPortClosed(): boolean
  /** Stops accepting WebSocket upgrades. */
  refuseNewClients(): void
  stop(): Promise<void>
}

export interface ServerParts extends SocketPorts {
  readonly isOverloaded: () => boolean
  /** Counts a request or upgrade refused with this code before other work. */
  readonly refused: (code: string) => void
  readonly fetch: (request: Request, caller: Caller) => Response | Promise<Response>
}

export const WEBSOCKET_PATH = '/v1/ws'
const API_PATHS = '/v1/'
const ADMIN_BODY_BYTES_MAX = 64 * 1024
export function serve(parts: ServerParts, options: ServerOptions): RunningServer {
  const admission = new AdmissionControl(options, {
    isOverloaded: parts.isOverloaded,
    hasNoRoom: () => descriptors.areFew,
    refused: parts.refused,
  })

  const listener = new Listener<SocketState>({
    hostname: options.host,
    port: options.port,
    maxRequestBodySize: FRAME_BYTES_MAX, // requests contain the same envelopes as frames
    idleTimeout: 30,
    fetch: (request, server) => {
      // Bun accepts any `Host`; with an unusable one, `request.url` is a bare path.
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
    refuseNewClients: () => {
      admission.isClosed = true
    },
    stop: () => {
      descriptors.stop()
      return listener.stop()
    },
  }
}

interface Idling {
  closeIdleConnections(): number
}

type Serving<T> = Bun.Serve.Options<T> & { readonly port: number }

/**
 * A port whose certificate can change: a second server takes over, and the first ends with its sockets. For half a
 * millisecond, none listens.
 */
class Listener<T> implements Port {
  readonly #options: Serving<T>
  #server: Server<T> | null = null
  #tls: Tls | null = null
  #isPaused = false
  /** The port of a paused server, which a stopped one has forgotten. */
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

  /** Listens again. @throws the errors of `open` */
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

/** Opens the operators' private server, always without TLS. */
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

interface Arrival {
  readonly request: Request
  readonly server: Server<SocketState>
  readonly admission: AdmissionControl
  readonly clientAddress: string
}

function upgrade({ request, server, admission, clientAddress }: Arrival): Response | undefined {
  const subprotocol = chooseSubprotocol(offeredBy(request))!
  const data = socketState(SUBPROTOCOLS[subprotocol], admission.authorityOf(request)!, clientAddress)
  // Always set the subprotocol, because Bun picks the first one offered.
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

/**
 * Listens, without SO_REUSEPORT, which Bun sets by default and with which two brokers could share a port.
 * @throws OperatingError `port_taken`, `address_unusable`
 */
function listen<T>(setting: 'PORT' | 'ADMIN_PORT', options: Bun.Serve.Options<T>): Server<T> {
  try {
    return Bun.serve<T>({ ...options, development: false, reusePort: false } as Bun.Serve.Options<T>)
  } catch (error) {
    const { code } = error as { code?: string }
    const place = `${options.hostname}:${options.port}`
    if (code === 'EADDRINUSE')
      throw new OperatingError('port_taken', `Another program listens on ${place}. Set ${setting} to another port.`)
    throw new OperatingError('address_unusable', `Can't listen on ${place} (${code ?? 'unknown error'}).`)
  }
}

const DISCOVERY_PATH = '/.well-known/sealpost'

export interface VersionFacts {
  readonly version: string
  readonly gitSha: string
  readonly protocolVersions: readonly number[]
  readonly subprotocols: readonly string[]
  readonly brokerKey: string
  readonly shard: string
  readonly limits: 'on' | 'off'
  readonly durability: 'fsync' | 'degraded'
  readonly postgres: string
}

export interface HttpParts {
  readonly facts: VersionFacts
  /** The response of `/.well-known/sealpost`. */
  readonly discovery: object
  /** Resolves if the database responds and sessions are accepted; otherwise rejects. */
  readonly isReady: () => Promise<void>
  readonly scrape: () => Promise<string>
  /** Warnings for the operator, one per line. */
  readonly warnings: () => readonly string[]
}

export function publicRoutes(parts: HttpParts): Hono {
  return routes(parts, () => 'ok')
}

/** Returns the plain HTTP routes. `/readyz` queries Postgres, `/livez` does not. Only the private port has metrics. */
function routes(parts: HttpParts, ready: () => string): Hono {
  const app = new Hono()
  // Hide versions from unauthenticated clients, because they reveal known vulnerabilities.
  const { gitSha: _, postgres: __, ...publicFacts } = parts.facts
  app.get('/livez', (c) => c.text('ok'))
  app.get('/readyz', async (c) => {
    try {
      await parts.isReady()
      return c.text(ready())
    } catch {
      return c.text('not ready', 503) // logged; not disclosed to unauthenticated clients
    }
  })
  app.get('/version', (c) => c.json(publicFacts))
  app.get(DISCOVERY_PATH, (c) => c.json(parts.discovery))
  for (const path of ['/livez', '/readyz', '/version', DISCOVERY_PATH]) app.all(path, methodNotAllowed)
  app.notFound((c) => c.json({ code: 'not_found' }, 404))
  app.onError((_, c) => c.json({ code: 'internal' }, 500))
  return app
}

/** Returns a function from path to route or `other`, so that metrics and traces quote no client. */
export function routesOf({
  routes,
}: {
  readonly routes: readonly { readonly path: string }[]
}): (pathname: string) => string {
  const named = [...new Set(routes.map(({ path }) => path).filter((path) => !path.includes('*')))].map((path) => {
    const pattern = path.replace(/[.+?]/g, '\\$&').replace(/:\w+(\{[^}]*\})?/g, '[^/]+')
    return [path, new RegExp(`^${pattern}$`)] as const
  })
  const plain = new Set(named.map(([path]) => path).filter((path) => !path.includes(':')))
  return (pathname) =>
    (plain.has(pathname) ? pathname : undefined) ?? named.find(([, pattern]) => pattern.test(pathname))?.[0] ?? 'other'
}

export function withDemo(app: Hono, demo: Demo): Hono {
  for (const path of [DEMO_PATH, `${DEMO_PATH}/*`]) {
    app.get(path, (c) => demo.answer(c.req.raw))
    app.all(path, methodNotAllowed)
  }
  return app
}

export function withConsole(app: Hono, console: Console): Hono {
  for (const path of [CONSOLE_PATH, `${CONSOLE_PATH}/*`]) {
    app.get(path, (c) => console.answer(c.req.raw))
    app.all(path, methodNotAllowed)
  }
  return app
}

export function adminRoutes(parts: HttpParts): Hono {
  const app = routes(parts, () => ['ok', ...parts.warnings()].join('\n'))
  app.get('/metrics', async (c) => c.text(await parts.scrape(), 200, { 'Content-Type': 'text/plain; version=0.0.4' }))
  app.all('/metrics', methodNotAllowed)
  return app
}

const methodNotAllowed = (c: Context) => c.json({ code: 'method_not_allowed' }, 405, { Allow: 'GET, HEAD' })
