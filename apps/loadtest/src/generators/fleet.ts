/** The generators of one run: starts them, gives them orders, watches their progress, and collects their records. */

import { forever } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import {
  type Collected,
  type GeneratorOrder,
  type GeneratorReply,
  type Link,
  LocalGenerator,
  type Preparation,
  type Progress,
  RemoteGenerator,
  type ReplyTo,
} from './link.ts'
import { type Share, sharesOf } from './plan.ts'
import type { Records } from './record-log.ts'

/** From the order to the start, so that every generator has received it; the second is for other machines. */
const START_IN_MS = 100
const REMOTE_START_IN_MS = 1_000
const LOOK_MS = 100

export type FleetSetup = Omit<Preparation, 'share'> & {
  /** The peers that it runs; the others of the plan run elsewhere. */
  readonly peers: Share
  readonly generators: number
  /** Null: all generators are on this machine. */
  readonly agents: Agents | null
  /** How long to wait for missing replies and messages after the last progress. */
  readonly drainMs: number
  /** Arguments for Bun, before each generator. */
  readonly runtimeArgs: readonly string[]
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
  #isStopped = false

  /** @throws OperatingError `agent_unreachable` */
  static async open(setup: FleetSetup): Promise<Fleet> {
    const links = Array.from({ length: setup.generators }, (_, i) => openLink(setup, i))
    return new Fleet(setup, await Promise.all(links))
  }

  private constructor(setup: FleetSetup, generators: readonly Link[]) {
    this.#setup = setup
    this.#generators = generators
    this.#latest = generators.map(() => NOTHING_YET)
    generators.forEach((generator, i) => {
      generator.onReply((reply) => {
        if (reply.did === 'progress') this.#latest[i] = reply
      })
    })
  }

  /** The files of each generator, on this machine after `collect`. */
  get records(): Records[] {
    return this.#generators.map(({ aheadMs }, i) => ({ prefix: `${this.#setup.records}-${i}`, aheadMs }))
  }

  /** Opens the connection of every peer. */
  async connect(): Promise<void> {
    const { plan, brokers, meshIds, peerKeys, form, window, secrets, peers } = this.#setup
    const shares = sharesOf(peers, this.#generators.length)
    const { records } = this
    await this.#each('prepare', (i) => {
      const { first, end } = shares[i]!
      const own = { share: shares[i]!, secrets: secrets.slice(first, end), records: records[i]!.prefix }
      return { do: 'prepare', plan, brokers, meshIds, peerKeys, form, window, ...own }
    })
    await this.#whileMoving('connecting', 'connect')
  }

  /** Sends one message along each pair. @returns the number of messages */
  async exchange(): Promise<number> {
    const replies = await this.#whileMoving('exchanging keys', 'exchange')
    return replies.reduce((sum, { messages }) => sum + messages, 0)
  }

  /** Sends one more message from each generator. */
  async tap(): Promise<void> {
    await this.#whileMoving('asking for the statistics', 'tap')
  }

  /** Resolves when everything is answered and delivered, or when there was no progress for `drainMs`. */
  async run(onProgress: (progress: Progress) => void): Promise<{ startMs: number; isComplete: boolean }> {
    const atMs = clockMs() + (this.#setup.agents ? REMOTE_START_IN_MS : START_IN_MS)
    for (const generator of this.#generators) generator.send({ do: 'start', atMs })
    const died = Promise.race(this.#generators.map((generator) => generator.died))
    let moves = 0
    let movedAtMs = atMs
    for (;;) {
      await Promise.race([Bun.sleep(LOOK_MS), died])
      if (this.#isStopped) await forever()
      const progress = this.#progress()
      onProgress(progress)
      if (progress.isDone) return { startMs: atMs, isComplete: true }
      const movesNow = progress.called + progress.acked + progress.refused + progress.delivered
      if (movesNow > moves) movedAtMs = clockMs()
      moves = movesNow
      if (clockMs() - movedAtMs > this.#setup.drainMs) return { startMs: atMs, isComplete: false }
    }
  }

  /** Closes the peers, completes the records, and copies them to this machine. */
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

  #each<Did extends GeneratorReply['did']>(did: Did, orderOf: (i: number) => GeneratorOrder): Promise<ReplyTo<Did>[]> {
    const replies = this.#generators.map((generator, i) => {
      const reply = generator.nextReply((each): each is ReplyTo<Did> => each.did === did)
      generator.send(orderOf(i))
      return reply
    })
    return Promise.all(replies)
  }

  /** @throws OperatingError `run_stalled` without progress: there is no verdict on a run that has not begun */
  async #whileMoving<Did extends 'connect' | 'exchange' | 'tap'>(doing: string, did: Did): Promise<ReplyTo<Did>[]> {
    const { drainMs } = this.#setup
    const work = this.#each(did, () => ({ do: did }))
    const ended = work.then(() => true)
    let moves = 0
    let movedAtMs = clockMs()
    while (!(await Promise.race([ended, Bun.sleep(LOOK_MS)]))) {
      if (this.#isStopped) await forever()
      const movesNow = this.#progress().prepared
      if (movesNow > moves) movedAtMs = clockMs()
      moves = movesNow
      if (clockMs() - movedAtMs > drainMs) throw stalled(doing, drainMs)
    }
    return work
  }

  #progress(): Progress {
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

async function openLink({ runtimeArgs, agents }: FleetSetup, i: number): Promise<Link> {
  const name = `Load generator ${i + 1}`
  if (!agents) return new LocalGenerator(name, runtimeArgs)
  return RemoteGenerator.open({ name, agent: agents.places[i % agents.places.length]!, token: agents.token })
}

const NOTHING_YET: Progress = { prepared: 0, called: 0, acked: 0, refused: 0, delivered: 0, isDone: false }

const stalled = (doing: string, drainMs: number) =>
  new OperatingError('run_stalled', `Nothing came from the broker for ${drainMs} ms (DRAIN_MS) while ${doing}.`)
