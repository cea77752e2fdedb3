/**
 * A program that runs generators for a load test on another machine: `--agent` starts it there, `--agents` passes its
 * address to the test. Each WebSocket is one generator and carries its orders and replies as JSON; the test fetches the
 * records over HTTP at the end. With the token anyone can make this machine send messages anywhere, so it is mandatory.
 */
import { timingSafeEqual } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import type { ServerWebSocket } from 'bun'
import { type AgentQuestion, type AgentReply, LocalGenerator } from './link.ts'
import { recordFiles } from './record-log.ts'

export interface AgentOptions {
  readonly host: string
  readonly port: number
  /** Undefined: the agent generates one and prints it. */
  readonly token: string | undefined
}

/** Orders contain every peer of the run. */
const ORDER_BYTES_MAX = 256 * 1024 * 1024
const RECORDS = /^\/records\/([0-9a-f-]{36})\.(sends|receipts)$/

type Socket = ServerWebSocket<HostedGenerator>

/** One generator of a test elsewhere. */
class HostedGenerator {
  readonly recordsId = crypto.randomUUID()
  readonly #prefix: string
  #generator: LocalGenerator | undefined

  constructor(folder: string) {
    this.#prefix = join(folder, this.recordsId)
  }

  open(socket: Socket): void {
    const generator = new LocalGenerator('A load generator')
    this.#generator = generator
    generator.onReply((reply) => send(socket, reply))
    generator.died.catch(({ message }) => send(socket, { did: 'fail', reason: message }))
  }

  take(socket: Socket, question: AgentQuestion): void {
    if (question.do === 'clock') return send(socket, { did: 'clock', atMs: clockMs(), recordsId: this.recordsId })
    this.#generator?.send(question.do === 'prepare' ? { ...question, records: this.#prefix } : question)
  }

  async end(): Promise<void> {
    await this.#generator?.stop()
    await Promise.all(recordFiles(this.#prefix).map((file) => rm(file, { force: true })))
  }
}

const send = (socket: Socket, reply: AgentReply): void => void socket.send(JSON.stringify(reply))

/** Serves until the teardown. @returns what to print for the user. @throws OperatingError `agent_not_started` */
export async function serveAgent(options: AgentOptions, teardown: Teardown): Promise<string> {
  const { host, port } = options
  const token = options.token ?? crypto.randomUUID()
  const folder = await temporaryFolder('agent', teardown)
  const hosted = new Set<HostedGenerator>()
  const server = listen(options, {
    fetch: (request, upgrade) => {
      if (!isAuthorized(request, token)) return new Response('another token is wanted', { status: 401 })
      const [, id, kind] = RECORDS.exec(new URL(request.url).pathname) ?? []
      if (id) return new Response(Bun.file(recordFiles(join(folder, id))[kind === 'sends' ? 0 : 1]))
      const isUpgraded = upgrade(new HostedGenerator(folder))
      return isUpgraded ? undefined : new Response('a WebSocket is wanted', { status: 426 })
    },
    open: (socket) => {
      hosted.add(socket.data)
      socket.data.open(socket)
    },
    message: (socket, text) => socket.data.take(socket, JSON.parse(String(text)) as AgentQuestion),
    close: ({ data: generator }) => {
      hosted.delete(generator)
      void generator.end()
    },
  })
  teardown.add({
    end: async () => {
      await server.stop(true)
      await Promise.all([...hosted].map((generator) => generator.end()))
    },
  })
  return `AGENT_TOKEN=${token}\nlistening: --agents ${host}:${server.port ?? port}\n`
}

interface Listener {
  readonly fetch: (request: Request, upgrade: (generator: HostedGenerator) => boolean) => Response | undefined
  readonly open: (socket: Socket) => void
  readonly message: (socket: Socket, text: string | Buffer) => void
  readonly close: (socket: Socket) => void
}

function listen({ host, port }: AgentOptions, { fetch, ...events }: Listener) {
  try {
    return Bun.serve<HostedGenerator>({
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

function isAuthorized(request: Request, token: string): boolean {
  const given = Buffer.from(request.headers.get('authorization') ?? '')
  const wanted = Buffer.from(`Bearer ${token}`)
  return given.length === wanted.length && timingSafeEqual(given, wanted)
}
