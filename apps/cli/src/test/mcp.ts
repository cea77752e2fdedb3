/** Provides tests with an official SDK's MCP client, connected to `sealpost mcp`. */
import { join } from 'node:path'
import { Client, type VersionNegotiationMode } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import type { LabelledContent, LabelledMessage } from '../mcp/peer-tools.ts'
import { ERROR_META } from '../mcp/tool.ts'
import type { Machine } from './cli.ts'

const MAIN = join(import.meta.dirname, '../main.ts')
const WITHIN_MS = 60_000

/** The client's revision. `auto`: the newest, which it detects with a process that it ends again. */
export type Revision = 'legacy' | '2026-07-28' | 'auto'

export interface ToolAnswer {
  readonly isError: boolean
  readonly text: string
  readonly structured: Structured
  readonly error: { readonly code: string; readonly message: string; readonly isRetryable: boolean } | null
}

/** The fields of all results together. */
interface Structured {
  readonly notice: string
  readonly messages: readonly LabelledMessage[]
  readonly peers: readonly { readonly name: string; readonly key: string; readonly sessions: readonly object[] }[]
  readonly to: { readonly name: string | null; readonly verified: boolean }
  readonly envelopeId: string
  readonly groups: readonly { readonly id: string; readonly name: string; readonly members: readonly object[] }[]
  readonly answer: (LabelledContent & { readonly messageId: string | null }) | null
  readonly answers: readonly {
    readonly answer: (LabelledContent & { readonly messageId: string | null }) | null
    readonly code: string | null
  }[]
  readonly outcomes: readonly { readonly code: string | null }[]
  readonly job: LabelledMessage | null
  readonly pools: readonly { readonly name: string; readonly isWorker: boolean }[]
  readonly isSaved: boolean
  readonly path: string | null
}

export interface Notice {
  readonly method: string
  readonly params?: { readonly [name: string]: unknown } | undefined
}

export class Agent implements AsyncDisposable {
  readonly client: Client
  readonly notices: Notice[] = []
  stderr = ''
  readonly #transport: StdioClientTransport
  readonly #watchers = new Set<() => void>()

  private constructor(transport: StdioClientTransport, revision: Revision) {
    const mode: VersionNegotiationMode = revision === '2026-07-28' ? { pin: revision } : revision
    this.#transport = transport
    this.client = new Client({ name: 'test', version: '1.0.0' }, { versionNegotiation: { mode } })
    for (const method of ['notifications/resources/updated', 'notifications/message'] as const)
      this.client.setNotificationHandler(method, (notice) => this.#heard(notice))
    this.client.fallbackNotificationHandler = async (notice) => this.#heard(notice)
  }

  /** `launcher`: a command that starts the program in its arguments. */
  static async start(
    machine: Machine,
    words: readonly string[] = [],
    revision: Revision = 'legacy',
    launcher: readonly string[] = [],
  ): Promise<Agent> {
    const [command, ...args] = [...launcher, process.execPath, MAIN, 'mcp', ...words]
    const transport = new StdioClientTransport({
      command: command!,
      args,
      env: machine.environment,
      stderr: 'pipe',
    })
    const agent = new Agent(transport, revision)
    transport.stderr!.on('data', (bytes) => {
      agent.stderr += String(bytes)
    })
    await agent.client.connect(transport)
    return agent
  }

  get pid(): number {
    return this.#transport.pid!
  }

  async call(name: string, given: Record<string, unknown> = {}): Promise<ToolAnswer> {
    const result = await this.client.callTool({ name, arguments: given })
    const [block] = result.content as { type: string; text: string }[]
    return {
      isError: result.isError ?? false,
      text: block!.text,
      structured: result.structuredContent as unknown as Structured,
      error: (result._meta?.[ERROR_META] ?? null) as ToolAnswer['error'],
    }
  }

  async readOne(): Promise<LabelledMessage> {
    for (const lateMs = performance.now() + WITHIN_MS; ; ) {
      const { structured } = await this.call('read_inbox', { waitSeconds: 20 })
      const [message, ...others] = structured.messages ?? []
      if (message && others.length === 0) return message
      if (message || performance.now() > lateMs) throw new Error(`not one message: ${JSON.stringify(structured)}`)
    }
  }

  async hears(method: string): Promise<Notice> {
    const late = AbortSignal.timeout(WITHIN_MS)
    for (;;) {
      const notice = this.notices.find((one) => one.method === method)
      if (notice) return notice
      const news = Promise.withResolvers<void>()
      const giveUp = () => news.reject(new Error(`no ${method} in time; stderr: ${this.stderr}`))
      late.addEventListener('abort', giveUp, { once: true })
      this.#watchers.add(news.resolve)
      await news.promise
      this.#watchers.delete(news.resolve)
      late.removeEventListener('abort', giveUp)
    }
  }

  /** Kills the process without warning, to simulate a crash or an impatient host. */
  async kill(): Promise<void> {
    const closed = Promise.withResolvers<void>()
    this.client.onclose = closed.resolve
    process.kill(this.pid, 'SIGKILL')
    await closed.promise
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close()
  }

  #heard(notice: Notice): void {
    this.notices.push(notice)
    for (const watch of this.#watchers) watch()
  }
}
