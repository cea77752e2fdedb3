/** Simulates network failures with a TCP proxy: delays, silence, cut connections, stalled reads, lost replies. */
import { once } from 'node:events'
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net'

export type Network =
  | { readonly is: 'up' }
  /** New connections are reset. */
  | { readonly is: 'down' }
  /** No bytes pass, as with an unplugged cable. */
  | { readonly is: 'silent' }
  /** Chunks are delayed, in order. */
  | { readonly is: 'slow'; readonly delayMs: () => number }
  /** The proxy reads nothing from the server, like a client that hangs. */
  | { readonly is: 'never reading' }

const UP: Network = { is: 'up' }

export class TcpProxy {
  /** The server's port for new connections. */
  targetPort: number
  readonly #server: Server
  readonly #links = new Set<Link>()
  #network: Network = UP
  #losing: (() => void) | null = null

  private constructor(server: Server, targetPort: number) {
    this.#server = server
    this.targetPort = targetPort
    server.on('connection', (client: Socket) => this.#opened(client))
  }

  /** Listens on a free port, which never changes. */
  static async open(targetPort: number): Promise<TcpProxy> {
    const server = createServer({ noDelay: true })
    const proxy = new TcpProxy(server, targetPort)
    server.listen({ port: 0, host: '127.0.0.1' })
    await once(server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port
  }

  get linkCount(): number {
    return this.#links.size
  }

  /** Sets the state of open and new connections. A silent connection stays silent, because it has lost bytes. */
  set(network: Network): void {
    this.#network = network
    for (const link of this.#links) link.set(network)
  }

  cut(): void {
    for (const link of this.#links) link.destroy()
  }

  /**
   * Silences open connections for good. Resolves once clients have given them up; servers then see a reset, as from
   * keepalive probes.
   */
  async forget(): Promise<void> {
    const forgotten = [...this.#links]
    for (const link of forgotten) link.set({ is: 'silent' })
    await Promise.all(forgotten.map((link) => link.clientGone))
    for (const link of forgotten) link.destroy()
  }

  /** Delivers the next request of at least `bytes`, and resets its connection instead of replying. */
  async loseReply(bytes: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#losing = resolve
    for (const link of this.#links) link.loseReplyOver(bytes, () => this.#lost())
    await promise
  }

  async close(): Promise<void> {
    this.cut()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #lost(): void {
    for (const link of this.#links) link.loseReplyOver(Infinity, () => undefined)
    this.#losing?.()
    this.#losing = null
  }

  #opened(client: Socket): void {
    if (this.#network.is === 'down') return void client.resetAndDestroy()
    const link = new Link(client, this.targetPort)
    this.#links.add(link)
    link.set(this.#network)
    void link.ended.then(() => this.#links.delete(link))
  }
}

/** A proxied connection. */
class Link {
  readonly clientGone: Promise<void>
  readonly ended: Promise<unknown>
  readonly #client: Socket
  readonly #server: Socket
  #network: Network = UP
  #dropsRequests = false
  #requestBytes = Infinity
  #onRequest: () => void = () => undefined

  constructor(client: Socket, targetPort: number) {
    this.#client = client
    this.#server = tcpConnect({ port: targetPort, host: '127.0.0.1', noDelay: true })
    this.clientGone = closeOf(client)
    this.ended = Promise.all([this.clientGone, closeOf(this.#server)])
    this.#pump(client, this.#server, (chunk) => this.#requested(chunk))
    this.#pump(this.#server, client, () => !this.#dropsRequests)
  }

  set(network: Network): void {
    if (this.#network.is === 'silent' && network.is !== 'silent') return // it has lost bytes, so it stays silent
    this.#network = network
    if (network.is === 'never reading') this.#server.pause()
    else this.#server.resume()
    if (network.is === 'silent') this.#dropsRequests = true
  }

  loseReplyOver(bytes: number, lost: () => void): void {
    this.#requestBytes = bytes
    this.#onRequest = lost
  }

  destroy(): void {
    this.#client.resetAndDestroy()
    this.#server.resetAndDestroy()
  }

  /** @returns whether to forward the chunk */
  #requested(chunk: Uint8Array): boolean {
    if (this.#dropsRequests) return false
    if (chunk.length < this.#requestBytes) return true
    this.#dropsRequests = true
    this.#onRequest()
    // The first byte of the reply proves that the server has executed the request.
    this.#server.once('data', () => this.destroy())
    return true
  }

  #pump(from: Socket, to: Socket, passes: (chunk: Uint8Array) => boolean): void {
    let before: Promise<unknown> | null = null
    from.on('data', (chunk) => {
      if (!passes(chunk as Uint8Array)) return
      if (this.#network.is !== 'slow' && !before) return this.#write(from, to, chunk)
      const delayMs = this.#network.is === 'slow' ? this.#network.delayMs() : 0
      const own = Promise.all([before, Bun.sleep(delayMs)]).then(() => {
        if (before === own) before = null
        this.#write(from, to, chunk)
      })
      before = own
    })
    from.on('error', () => undefined) // the close event follows
    // A silent network does not forward the end of a connection either.
    from.on('end', () => void Promise.resolve(before).then(() => this.#network.is !== 'silent' && to.end()))
    from.on('close', (hadError) => hadError && this.#network.is !== 'silent' && to.destroy())
  }

  #write(from: Socket, to: Socket, chunk: string | Uint8Array): void {
    if (to.writable && !to.write(chunk)) this.#waitFor(from, to)
  }

  #waitFor(from: Socket, to: Socket): void {
    from.pause()
    to.once('drain', () => this.#network.is !== 'never reading' && from.resume())
  }
}

const closeOf = (socket: Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))
