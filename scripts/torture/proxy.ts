/**
 * A TCP proxy that can be told to do what networks do: delay, go silent, cut, not read, and lose an answer. It stands
 * between peers and broker, and between broker and Postgres.
 */
import { once } from 'node:events'
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net'

export type Network =
  | { readonly is: 'up' }
  /** New connections are refused as soon as they come. */
  | { readonly is: 'down' }
  /** Nothing passes and nothing is said: a cable that was pulled. */
  | { readonly is: 'silent' }
  /** Each piece takes this long, drawn anew for each; pieces keep their order. */
  | { readonly is: 'slow'; readonly delayMs: () => number }
  /** What the server sends is not read, as by a client that hangs. */
  | { readonly is: 'never reading' }

const UP: Network = { is: 'up' }

export class TcpProxy {
  /** Where new connections go. */
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

  /** On a port of its own, which stays. */
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

  /** For connections that are there, and for new ones. Going up, what had been silent stays so: its bytes are lost. */
  set(network: Network): void {
    this.#network = network
    for (const link of this.#links) link.set(network)
  }

  /** Resets every connection. */
  cut(): void {
    for (const link of this.#links) link.destroy()
  }

  /**
   * Silences the connections that are there, for good; new ones are served. Resolves when the client of each gave up; its
   * server is told then, as keepalive probes would tell it in the end.
   */
  async forget(): Promise<void> {
    const forgotten = [...this.#links]
    for (const link of forgotten) link.set({ is: 'silent' })
    await Promise.all(forgotten.map((link) => link.clientGone))
    for (const link of forgotten) link.destroy()
  }

  /** The next request of at least `bytes` arrives, and its answer does not: the connection is reset instead. */
  async loseAnswer(bytes: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#losing = resolve
    for (const link of this.#links) link.loseAnswerOver(bytes, () => this.#lost())
    await promise
  }

  async close(): Promise<void> {
    this.cut()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #lost(): void {
    for (const link of this.#links) link.loseAnswerOver(Infinity, () => undefined)
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

/** One connection: two sockets, and what is on its way between them. */
class Link {
  readonly clientGone: Promise<void>
  readonly ended: Promise<unknown>
  readonly #client: Socket
  readonly #server: Socket
  #network: Network = UP
  #isDeaf = false
  #requestBytes = Infinity
  #onRequest: () => void = () => undefined

  constructor(client: Socket, targetPort: number) {
    this.#client = client
    this.#server = tcpConnect({ port: targetPort, host: '127.0.0.1', noDelay: true })
    this.clientGone = closeOf(client)
    this.ended = Promise.all([this.clientGone, closeOf(this.#server)])
    this.#pump(client, this.#server, (piece) => this.#asked(piece))
    this.#pump(this.#server, client, () => !this.#isDeaf)
  }

  set(network: Network): void {
    if (this.#network.is === 'silent' && network.is !== 'silent') return // it has lost bytes: nothing sensible can follow
    this.#network = network
    if (network.is === 'never reading') this.#server.pause()
    else this.#server.resume()
    if (network.is === 'silent') this.#isDeaf = true
  }

  loseAnswerOver(bytes: number, lost: () => void): void {
    this.#requestBytes = bytes
    this.#onRequest = lost
  }

  destroy(): void {
    this.#client.resetAndDestroy()
    this.#server.resetAndDestroy()
  }

  /** @returns whether the piece goes on */
  #asked(piece: Uint8Array): boolean {
    if (this.#isDeaf) return false
    if (piece.length < this.#requestBytes) return true
    this.#isDeaf = true
    this.#onRequest()
    // The server has it, and will have done it by the time its answer would have come.
    this.#server.once('data', () => this.destroy())
    return true
  }

  #pump(from: Socket, to: Socket, passes: (piece: Uint8Array) => boolean): void {
    let before: Promise<unknown> | null = null
    from.on('data', (piece) => {
      if (!passes(piece as Uint8Array)) return
      if (this.#network.is !== 'slow' && !before) return this.#write(from, to, piece)
      const delayMs = this.#network.is === 'slow' ? this.#network.delayMs() : 0
      const own = Promise.all([before, Bun.sleep(delayMs)]).then(() => {
        if (before === own) before = null
        this.#write(from, to, piece)
      })
      before = own
    })
    from.on('error', () => undefined) // `close` follows
    // An end that the network does not carry is not heard of at the other side; each side must find out by itself.
    from.on('end', () => void Promise.resolve(before).then(() => this.#network.is !== 'silent' && to.end()))
    from.on('close', (hadError) => hadError && this.#network.is !== 'silent' && to.destroy())
  }

  #write(from: Socket, to: Socket, piece: string | Uint8Array): void {
    if (to.writable && !to.write(piece)) this.#waitFor(from, to)
  }

  #waitFor(from: Socket, to: Socket): void {
    from.pause()
    to.once('drain', () => this.#network.is !== 'never reading' && from.resume())
  }
}

const closeOf = (socket: Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))
