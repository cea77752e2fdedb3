/** The generators of one run, from the script's side: started, told what to do, watched, and asked for their records. */

import { forever } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { type Link, LocalGenerator, type Records } from './link.ts'
import type { Answer, Collected, Order, Preparation, Progress } from './orders.ts'
import { type Share, sharesOf } from './plan.ts'
import { RemoteGenerator } from './remote.ts'

/** From the order to start to the start itself, so that all of them have heard it; and so on other machines. */
const START_IN_MS = 100
const START_AFAR_IN_MS = 1_000
const LOOK_MS = 100

export type FleetSetup = Omit<Preparation, 'share' | 'journal'> & {
  /** The peers it is; the others of the plan are elsewhere. */
  readonly peers: Share
  readonly generators: number
  /** Null: all of them are on this machine. */
  readonly agents: Agents | null
  /** How the names of the files begin that the records go to. */
  readonly records: string
  /** How long to wait for what is still out, after the last thing that moved. */
  readonly drainMs: number
  /** Words for Bun, before each generator. */
  readonly words: readonly string[]
}

export interface Agents {
  /** host:port of each */
  readonly places: readonly string[]
  readonly token: string
}

export class Fleet {
  readonly #setup: FleetSetup
  readonly #generators: readonly Link[]
  readonly #latest: Progress[]
  readonly #failed = Promise.withResolvers<never>()
  #isStopped = false

  /** @throws OperatingError `agent_unreachable` */
  static async open(setup: FleetSetup): Promise<Fleet> {
    const numbers = Array.from({ length: setup.generators }, (_, i) => i)
    return new Fleet(setup, await Promise.all(numbers.map((i) => openLink(setup, i))))
  }

  private constructor(setup: FleetSetup, generators: readonly Link[]) {
    this.#setup = setup
    this.#generators = generators
    this.#latest = this.#generators.map(() => NOTHING_YET)
    this.#generators.forEach((generator, i) => {
      generator.onReply((answer) => {
        if (answer.did === 'progress') this.#latest[i] = answer
        if (answer.did === 'fail') this.#failed.reject(failure(generator.name, answer.reason))
      })
    })
    this.#failed.promise.catch(() => undefined) // reported to the callers that wait for a generator
  }

  /** Of each generator; they are here once all is collected. */
  get records(): Records[] {
    return this.#generators.map(({ aheadMs }, i) => ({ prefix: `${this.#setup.records}-${i}`, aheadMs }))
  }

  /** Opens every peer's connection. */
  async connect(): Promise<void> {
    const { plan, places, meshIds, peerKeys, form, window, secrets, peers } = this.#setup
    const setup = { plan, places, meshIds, peerKeys, form, window }
    const shares = sharesOf(peers, this.#generators.length)
    const journals = this.records
    await this.#each('prepare', (i) => {
      const { first, end } = shares[i]!
      const share = { share: shares[i]!, secrets: secrets.slice(first, end), journal: journals[i]!.prefix }
      return { do: 'prepare', ...setup, ...share }
    })
    await this.#whileMoving(
      'connecting',
      this.#each('connect', () => ({ do: 'connect' })),
    )
  }

  /** One message along each pair. @returns how many that were */
  async exchange(): Promise<number> {
    const exchanged = this.#each('exchange', () => ({ do: 'exchange' }))
    const answers = await this.#whileMoving('exchanging keys', exchanged)
    return answers.reduce((sum, { messages }) => sum + messages, 0)
  }

  /** One message more from each generator. */
  async tap(): Promise<void> {
    await this.#whileMoving(
      'asking for the statistics',
      this.#each('tap', () => ({ do: 'tap' })),
    )
  }

  /** Resolves when all is answered and delivered, or when nothing more is to be expected. */
  async run(onProgress: (progress: Progress) => void): Promise<{ startMs: number; isComplete: boolean }> {
    const atMs = clockMs() + (this.#setup.agents ? START_AFAR_IN_MS : START_IN_MS)
    for (const generator of this.#generators) generator.send({ do: 'start', atMs })
    const died = Promise.race([this.#failed.promise, ...this.#generators.map((generator) => generator.died)])
    let moves = 0
    let movedAtMs = atMs
    for (;;) {
      await Promise.race([Bun.sleep(LOOK_MS), died])
      if (this.#isStopped) await forever()
      const sum = this.#sum()
      onProgress(sum)
      if (sum.isDone) return { startMs: atMs, isComplete: true }
      const movesNow = sum.called + sum.acked + sum.refused + sum.delivered
      if (movesNow > moves) movedAtMs = clockMs()
      moves = movesNow
      if (clockMs() - movedAtMs > this.#setup.drainMs) return { startMs: atMs, isComplete: false }
    }
  }

  /** Ends the peers, has the last of the records written, and brings them here. */
  async collect(): Promise<Collected[]> {
    const collected = await this.#each('collect', () => ({ do: 'collect' }))
    const { records } = this
    await Promise.all(this.#generators.map((generator, i) => generator.fetchRecords(records[i]!.prefix)))
    return collected
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all(this.#generators.map((generator) => generator.stop()))
  }

  kill(): void {
    for (const generator of this.#generators) generator.kill()
  }

  #each<Did extends Answer['did']>(did: Did, orderOf: (i: number) => Order): Promise<AnswerOf<Did>[]> {
    const answers = this.#generators.map((generator, i) => {
      const answer = generator.nextReply((answer): answer is AnswerOf<Did> => answer.did === did)
      generator.send(orderOf(i))
      return answer
    })
    return Promise.race([Promise.all(answers), this.#failed.promise])
  }

  /** @throws OperatingError `run_stalled` when nothing moves: there is no verdict on a run that has not begun */
  async #whileMoving<T>(doing: string, work: Promise<T>): Promise<T> {
    const { drainMs } = this.#setup
    const ended = work.then(() => true)
    let moves = 0
    let movedAtMs = clockMs()
    while (!(await Promise.race([ended, Bun.sleep(LOOK_MS)]))) {
      if (this.#isStopped) await forever()
      const movesNow = this.#sum().prepared
      if (movesNow > moves) movedAtMs = clockMs()
      moves = movesNow
      if (clockMs() - movedAtMs > drainMs) throw stalled(doing, drainMs)
    }
    return work
  }

  #sum(): Progress {
    return this.#latest.reduce((a, b) => ({
      prepared: a.prepared + b.prepared,
      called: a.called + b.called,
      acked: a.acked + b.acked,
      refused: a.refused + b.refused,
      delivered: a.delivered + b.delivered,
      isDone: a.isDone && b.isDone,
    }))
  }
}

async function openLink({ words, agents }: FleetSetup, i: number): Promise<Link> {
  const name = `Load generator ${i + 1}`
  if (!agents) return new LocalGenerator(name, words)
  return RemoteGenerator.open({ name, agent: agents.places[i % agents.places.length]!, token: agents.token })
}

const NOTHING_YET: Progress = { prepared: 0, called: 0, acked: 0, refused: 0, delivered: 0, isDone: false }

type AnswerOf<Did extends Answer['did']> = Extract<Answer, { did: Did }>

const stalled = (doing: string, drainMs: number) =>
  new OperatingError('run_stalled', `Nothing came from the broker for ${drainMs} ms (DRAIN_MS) while ${doing}.`)

const failure = (name: string, reason: string) => new OperatingError('generator_failed', `${name} failed: ${reason}`)
