/**
 * The test's connection to a load generator: to a program on this machine, or through an agent (`agent.ts`) to one on
 * another machine. The orders come in this sequence: prepare, connect, exchange, tap, start, tap, collect.
 */
import { join } from 'node:path'
import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import type { Form } from '@sealpost/protocol'
import { clockMs, type PeerCounters } from '@sealpost/sdk'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import type { Plan, Share } from './plan.ts'
import { recordFiles } from './record-log.ts'

export interface Preparation {
  readonly plan: Plan
  readonly share: Share
  /** The brokers, cell by cell. */
  readonly brokers: readonly BrokerAddress[]
  readonly meshIds: readonly MeshId[]
  readonly form: Form
  /** Null: the SDK's default. */
  readonly window: number | null
  /** The keys of all peers, by their number. */
  readonly peerKeys: readonly PeerKey[]
  /** The secrets of the share's peers. */
  readonly secrets: readonly SecretKeys[]
  /** The prefix of the files for its records. */
  readonly records: string
}

export type GeneratorOrder =
  | ({ readonly do: 'prepare' } & Preparation)
  | { readonly do: 'connect' | 'exchange' | 'tap' | 'collect' }
  | { readonly do: 'start'; readonly atMs: number }

/** The counts of one generator so far. */
export interface Progress {
  /** Connections, exchanged messages and acks before the run, which show that it is not stuck. */
  readonly prepared: number
  readonly called: number
  readonly acked: number
  readonly refused: number
  /** Distinct messages that arrived intact. */
  readonly delivered: number
  /** Everything is sent and answered, and every expected message has arrived. */
  readonly isDone: boolean
}

export interface Collected {
  readonly cpuSeconds: number
  readonly rssMbPeak: number
  readonly called: number
  /** All peers together. */
  readonly counters: PeerCounters
  readonly refusals: Readonly<Record<string, number>>
  readonly events: Readonly<Record<string, number>>
}

export type GeneratorReply =
  | { readonly did: 'prepare' | 'connect' | 'tap' }
  | { readonly did: 'exchange'; readonly messages: number }
  | ({ readonly did: 'progress' } & Progress)
  | ({ readonly did: 'collect' } & Collected)

export type ReplyTo<Did extends GeneratorReply['did']> = Extract<GeneratorReply, { did: Did }>

export interface Link {
  /** Names the generator in errors. */
  readonly name: string
  /** Rejects when the generator fails or exits. */
  readonly died: Promise<never>
  readonly aheadMs: number
  send(order: GeneratorOrder): void
  onReply(listener: (reply: GeneratorReply) => void): void
  /** Resolves with the next reply of this kind. Rejects as `died` does. */
  nextReply<R extends GeneratorReply>(isWanted: (reply: GeneratorReply) => reply is R): Promise<R>
  /** Copies its records to this machine, to files with this prefix. */
  fetchRecords(prefix: string): Promise<void>
  stop(): Promise<void>
  kill(): void
}

export class LocalGenerator extends Child<GeneratorOrder, GeneratorReply> implements Link {
  readonly aheadMs = 0

  constructor(name: string, runtimeArgs: readonly string[] = []) {
    super(name, join(import.meta.dirname, 'generator.ts'), runtimeArgs)
  }

  async fetchRecords(): Promise<void> {
    // they are on this machine already
  }
}

/** The messages between a test and an agent: orders and replies, the clock, and the failure of a generator. */
export type AgentQuestion = GeneratorOrder | { readonly do: 'clock' }
export type AgentReply =
  | GeneratorReply
  | { readonly did: 'clock'; readonly atMs: number; readonly recordsId: string }
  | { readonly did: 'fail'; readonly reason: string }

export interface RemoteOptions {
  readonly name: string
  /** host:port */
  readonly agent: string
  readonly token: string
}

/** The number of comparisons of the clocks; the fastest reply is the most precise. */
const CLOCK_QUESTIONS = 9
const OPEN_WITHIN_MS = 10_000

/** A generator that an agent runs on another machine. */
export class RemoteGenerator implements Link {
  readonly name: string
  readonly died: Promise<never>
  readonly #options: RemoteOptions
  readonly #socket: WebSocket
  readonly #listeners = new Set<(reply: AgentReply) => void>()
  readonly #hasDied = Promise.withResolvers<never>()
  #aheadMs = 0
  #recordsId = ''
  #isEnding = false

  private constructor(options: RemoteOptions) {
    const { name, agent, token } = options
    this.name = `${name} at ${agent}`
    this.#options = options
    this.died = this.#hasDied.promise
    this.died.catch(() => undefined) // the waiting caller reports it
    const headers = { authorization: `Bearer ${token}` }
    this.#socket = new WebSocket(`ws://${agent}/`, { headers } as unknown as string[])
    this.#socket.onmessage = ({ data }) => this.#received(JSON.parse(String(data)) as AgentReply)
    this.#socket.onclose = () => {
      if (!this.#isEnding) this.#fail('does not answer, or wants another AGENT_TOKEN.')
    }
  }

  /** @throws OperatingError `agent_unreachable` */
  static async open(options: RemoteOptions): Promise<RemoteGenerator> {
    const generator = new RemoteGenerator(options)
    const isOpen = new Promise<void>((resolve) => generator.#socket.addEventListener('open', () => resolve()))
    const timer = setTimeout(() => generator.kill(), OPEN_WITHIN_MS)
    await Promise.race([isOpen, generator.died]).finally(() => clearTimeout(timer))
    await generator.#compareClocks()
    return generator
  }

  get aheadMs(): number {
    return this.#aheadMs
  }

  send(order: GeneratorOrder): void {
    this.#ask(order.do === 'start' ? { ...order, atMs: order.atMs + this.#aheadMs } : order)
  }

  onReply(listener: (reply: GeneratorReply) => void): void {
    this.#listeners.add((reply) => {
      if (isReply(reply)) listener(reply)
    })
  }

  nextReply<R extends GeneratorReply>(isWanted: (reply: GeneratorReply) => reply is R): Promise<R> {
    return this.#next((reply): reply is R => isReply(reply) && isWanted(reply))
  }

  async fetchRecords(prefix: string): Promise<void> {
    const { agent, token } = this.#options
    const headers = { authorization: `Bearer ${token}` }
    for (const file of recordFiles(prefix)) {
      const kind = file.slice(prefix.length)
      const response = await fetch(`http://${agent}/records/${this.#recordsId}${kind}`, { headers })
      if (!response.ok) throw new OperatingError('agent_unreachable', `${this.name} does not hand out its records.`)
      await Bun.write(file, response)
    }
  }

  async stop(): Promise<void> {
    this.kill()
  }

  kill(): void {
    this.#isEnding ||= this.#socket.readyState === WebSocket.OPEN
    this.#socket.close()
  }

  #received(reply: AgentReply): void {
    if (reply.did === 'fail') this.#fail(`failed: ${reply.reason}`)
    for (const listener of this.#listeners) listener(reply)
  }

  async #compareClocks(): Promise<void> {
    let fastestMs = Infinity
    for (let i = 0; i < CLOCK_QUESTIONS; i++) {
      const askedAtMs = clockMs()
      const reply = this.#next((each) => each.did === 'clock')
      this.#ask({ do: 'clock' })
      const { atMs, recordsId } = await reply
      const tookMs = clockMs() - askedAtMs
      this.#recordsId = recordsId
      if (tookMs >= fastestMs) continue
      fastestMs = tookMs
      this.#aheadMs = atMs - (askedAtMs + tookMs / 2)
    }
  }

  #next<R extends AgentReply>(isWanted: (reply: AgentReply) => reply is R): Promise<R> {
    const wanted = new Promise<R>((resolve) => {
      const look = (reply: AgentReply): void => {
        if (!isWanted(reply)) return
        this.#listeners.delete(look)
        resolve(reply)
      }
      this.#listeners.add(look)
    })
    return Promise.race([wanted, this.died])
  }

  #ask(question: AgentQuestion): void {
    this.#socket.send(JSON.stringify(question))
  }

  #fail(what: string): void {
    this.#hasDied.reject(new OperatingError('agent_unreachable', `${this.name} ${what}`))
  }
}

const isReply = (reply: AgentReply): reply is GeneratorReply => reply.did !== 'clock' && reply.did !== 'fail'
