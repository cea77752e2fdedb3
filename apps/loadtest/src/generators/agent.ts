/**
 * A program that runs generators for a load test on another machine: `--agent` starts it there, `--agents` names it to
 * the test. Each WebSocket is one generator, orders and answers go through it as JSON, and its records are fetched by
 * HTTP at the end. Anyone who knows the token can make this machine send messages anywhere, so there is always one.
 */
import { timingSafeEqual } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import type { ServerWebSocket } from 'bun'
import { filesOf, LocalGenerator } from './link.ts'
import type { Answer, Order } from './orders.ts'

export interface AgentOptions {
  readonly host: string
  readonly port: number
  /** Undefined: a new one, which is told. */
  readonly token: string | undefined
}

/** What a test says beside the orders, right after the connection, and what it hears. */
export type AgentQuestion = Order | { readonly do: 'clock' }
export type AgentAnswer = Answer | { readonly did: 'clock'; readonly atMs: number; readonly recordsId: string }

/** Orders name every peer of the run. */
const ORDER_BYTES_MAX = 256 * 1024 * 1024

type Socket = ServerWebSocket<Guest>

/** One generator of someone's test. */
class Guest {
  readonly recordsId = crypto.randomUUID()
  readonly #prefix: string
  #generator: LocalGenerator | undefined

  constructor(folder: string) {
    this.#prefix = join(folder, this.recordsId)
  }

  open(socket: Socket): void {
    const generator = new LocalGenerator('A load generator')
    this.#generator = generator
    generator.onReply((answer) => say(socket, answer))
    generator.died.catch(({ message }) => say(socket, { did: 'fail', reason: message }))
  }

  take(socket: Socket, question: AgentQuestion): void {
    if (question.do === 'clock') return say(socket, { did: 'clock', atMs: clockMs(), recordsId: this.recordsId })
    this.#generator?.send(question.do === 'prepare' ? { ...question, journal: this.#prefix } : question)
  }

  async end(): Promise<void> {
    await this.#generator?.stop()
    await Promise.all(filesOf({ prefix: this.#prefix }).map((file) => rm(file, { force: true })))
  }
}

const say = (socket: Socket, answer: AgentAnswer): void => void socket.send(JSON.stringify(answer))

/** Serves until the script ends. @returns what to print for the user. @throws OperatingError `agent_not_started` */
export async function serveAgent(options: AgentOptions, teardown: Teardown): Promise<string> {
  const { host, port } = options
  const token = options.token ?? crypto.randomUUID()
  const folder = await teardown.starting(mkdtemp(join(tmpdir(), 'sealpost-agent-')), (made) => ({
    end: () => rm(made, { recursive: true, force: true }),
  }))
  const guests = new Set<Guest>()
  const server = listen(options, {
    fetch: (request, upgrade) => {
      if (!isOurs(request, token)) return new Response('another token is wanted', { status: 401 })
      const [, id, kind] = RECORDS.exec(new URL(request.url).pathname) ?? []
      if (id) return new Response(Bun.file(filesOf({ prefix: join(folder, id) })[kind === 'sends' ? 0 : 1]))
      const isUpgraded = upgrade(new Guest(folder))
      return isUpgraded ? undefined : new Response('a WebSocket is wanted', { status: 426 })
    },
    open: (socket) => {
      guests.add(socket.data)
      socket.data.open(socket)
    },
    message: (socket, text) => socket.data.take(socket, JSON.parse(String(text)) as AgentQuestion),
    close: ({ data: guest }) => {
      guests.delete(guest)
      void guest.end()
    },
  })
  teardown.add({
    end: async () => {
      await server.stop(true)
      await Promise.all([...guests].map((guest) => guest.end()))
    },
  })
  return `AGENT_TOKEN=${token}\nlistening: --agents ${host}:${server.port ?? port}\n`
}

const RECORDS = /^\/records\/([0-9a-f-]{36})\.(sends|receipts)$/

interface Listener {
  readonly fetch: (request: Request, upgrade: (guest: Guest) => boolean) => Response | undefined
  readonly open: (socket: Socket) => void
  readonly message: (socket: Socket, text: string | Buffer) => void
  readonly close: (socket: Socket) => void
}

function listen({ host, port }: AgentOptions, { fetch, ...events }: Listener) {
  try {
    return Bun.serve<Guest>({
      hostname: host,
      port,
      reusePort: false,
      fetch: (request, server) => fetch(request, (data) => server.upgrade(request, { data })),
      websocket: { ...events, maxPayloadLength: ORDER_BYTES_MAX, backpressureLimit: ORDER_BYTES_MAX, idleTimeout: 0 },
    })
  } catch (cause) {
    throw new OperatingError('agent_not_started', `The agent can't listen at ${host}:${port}.`, { cause })
  }
}

function isOurs(request: Request, token: string): boolean {
  const given = Buffer.from(request.headers.get('authorization') ?? '')
  const wanted = Buffer.from(`Bearer ${token}`)
  return given.length === wanted.length && timingSafeEqual(given, wanted)
}
