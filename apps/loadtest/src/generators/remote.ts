/** A generator that an agent runs on another machine (`agent.ts`). */
import { clockMs } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import type { AgentAnswer, AgentQuestion } from './agent.ts'
import type { Link } from './link.ts'
import { filesOf } from './link.ts'
import type { Answer, Order } from './orders.ts'

export interface RemoteOptions {
  readonly name: string
  /** host:port */
  readonly agent: string
  readonly token: string
}

/** Its clock is asked so often; the answer that came back fastest says most. */
const CLOCK_ASKED = 9
const OPEN_WITHIN_MS = 10_000

export class RemoteGenerator implements Link {
  readonly name: string
  readonly died: Promise<never>
  readonly #options: RemoteOptions
  readonly #socket: WebSocket
  readonly #listeners = new Set<(answer: AgentAnswer) => void>()
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
    this.#socket.onmessage = ({ data }) => {
      const answer = JSON.parse(String(data)) as AgentAnswer
      for (const take of this.#listeners) take(answer)
    }
    this.#socket.onclose = () => this.#lost()
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

  send(order: Order): void {
    this.#say(order.do === 'start' ? { ...order, atMs: order.atMs + this.#aheadMs } : order)
  }

  onReply(take: (answer: Answer) => void): void {
    this.#listeners.add((answer) => {
      if (answer.did !== 'clock') take(answer)
    })
  }

  nextReply<A extends AgentAnswer>(isWanted: (answer: Answer) => answer is A & Answer): Promise<A & Answer> {
    return this.#next((answer): answer is A & Answer => answer.did !== 'clock' && isWanted(answer))
  }

  async fetchRecords(prefix: string): Promise<void> {
    const { agent, token } = this.#options
    const headers = { authorization: `Bearer ${token}` }
    for (const file of filesOf({ prefix })) {
      const kind = file.slice(prefix.length)
      const answer = await fetch(`http://${agent}/records/${this.#recordsId}${kind}`, { headers })
      if (!answer.ok) throw unreachable(`${this.name} keeps its records.`)
      await Bun.write(file, answer)
    }
  }

  async stop(): Promise<void> {
    this.kill()
  }

  kill(): void {
    this.#isEnding ||= this.#socket.readyState === WebSocket.OPEN
    this.#socket.close()
  }

  async #compareClocks(): Promise<void> {
    let fastestMs = Infinity
    for (let i = 0; i < CLOCK_ASKED; i++) {
      const askedAtMs = clockMs()
      const answer = this.#next((answer) => answer.did === 'clock')
      this.#say({ do: 'clock' })
      const { atMs, recordsId } = await answer
      const tookMs = clockMs() - askedAtMs
      this.#recordsId = recordsId
      if (tookMs >= fastestMs) continue
      fastestMs = tookMs
      this.#aheadMs = atMs - (askedAtMs + tookMs / 2)
    }
  }

  #next<A extends AgentAnswer>(isWanted: (answer: AgentAnswer) => answer is A): Promise<A> {
    const wanted = new Promise<A>((resolve) => {
      const take = (answer: AgentAnswer): void => {
        if (!isWanted(answer)) return
        this.#listeners.delete(take)
        resolve(answer)
      }
      this.#listeners.add(take)
    })
    return Promise.race([wanted, this.died])
  }

  #say(question: AgentQuestion): void {
    this.#socket.send(JSON.stringify(question))
  }

  #lost(): void {
    if (this.#isEnding) return
    this.#hasDied.reject(unreachable(`${this.name} does not answer, or wants another AGENT_TOKEN.`))
  }
}

const unreachable = (sentence: string) => new OperatingError('agent_unreachable', sentence)
