/**
 * Controls a run's generators: commands, progress and records. The order of commands is prepare, connect, exchange,
 * tap, start, tap, collect.
 */
import { join } from 'node:path'
import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import { Child, commandAll } from '@sealpost/harness/programs/child'
import { forever } from '@sealpost/harness/programs/teardown'
import type { Form } from '@sealpost/protocol'
import { clockMs, type PeerCounters } from '@sealpost/sdk'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { type Plan, type Share, sharesOf } from './plan.ts'

export interface Preparation {
  readonly plan: Plan
  readonly share: Share
  /** The brokers, cell by cell. */
  readonly brokers: readonly BrokerAddress[]
  readonly meshIds: readonly MeshId[]
  readonly form: Form
  /** Null for the SDK's default. */
  readonly window: number | null
  /** Whether a burst's peer makes all calls in one turn, so that the SDK packs messages into frames. */
  readonly isPacking: boolean
  /** Whether the peers seal with ratchets, which they keep in memory. */
  readonly isRatcheted: boolean
  /** The keys of all peers, by peer number. */
  readonly peerKeys: readonly PeerKey[]
  readonly secrets: readonly SecretKeys[]
  /** The prefix of the generator's files. */
  readonly records: string
}

export type GeneratorOrder =
  | ({ readonly do: 'prepare' } & Preparation)
  | { readonly do: 'connect' | 'exchange' | 'tap' | 'collect' }
  | { readonly do: 'start'; readonly atMs: number }

export interface Progress {
  /** The number of connections, exchanged messages and acks before the run. */
  readonly prepared: number
  readonly called: number
  readonly acked: number
  readonly refused: number
  /** The number of distinct, intact messages that arrived. */
  readonly delivered: number
  /** Whether everything was sent, answered and received. */
  readonly isDone: boolean
}

export interface Collected {
  readonly cpuSeconds: number
  readonly rssMbPeak: number
  readonly called: number
  /** The number of frames with messages in this run. */
  readonly sendFrames: number
  readonly counters: PeerCounters
  readonly refusals: Readonly<Record<string, number>>
  readonly events: Readonly<Record<string, number>>
}

export type GeneratorReply =
  | { readonly did: 'prepare' | 'connect' | 'tap' }
  | { readonly did: 'exchange'; readonly messages: number }
  | ({ readonly did: 'progress' } & Progress)
  | ({ readonly did: 'collect' } & Collected)

type ReplyTo<Did extends GeneratorReply['did']> = Extract<GeneratorReply, { did: Did }>

/** The delay of the start, for which every generator must have the command. */
const START_IN_MS = 100
const LOOK_MS = 100

export type FleetSetup = Omit<Preparation, 'share'> & {
  /** The peers that this fleet runs. The plan's other peers run elsewhere. */
  readonly peers: Share
  readonly generators: number
  /** How long to wait after the last progress. */
  readonly drainMs: number
  /** Arguments for Bun, before the generator's file. */
  readonly runtimeArgs: readonly string[]
}

type LoadGeneratorProgram = Child<GeneratorOrder, GeneratorReply>

export class Fleet {
  readonly #setup: FleetSetup
  readonly #generators: readonly LoadGeneratorProgram[]
  readonly #latest: Progress[]
  #isStopped = false

  constructor(setup: FleetSetup) {
    this.#setup = setup
    this.#generators = Array.from({ length: setup.generators }, (_, i) => programOf(i, setup.runtimeArgs))
    this.#latest = this.#generators.map(() => NOTHING_YET)
    this.#generators.forEach((generator, i) => {
      generator.onReply((reply) => {
        if (reply.did === 'progress') this.#latest[i] = reply
      })
    })
  }

  get records(): string[] {
    return this.#generators.map((_, i) => `${this.#setup.records}-${i}`)
  }

  async connect(): Promise<void> {
    const { plan, brokers, meshIds, peerKeys, form, window, isPacking, isRatcheted, secrets, peers } = this.#setup
    const shares = sharesOf(peers, this.#generators.length)
    const { records } = this
    await this.#each('prepare', (i) => {
      const { first, end } = shares[i]!
      const own = { share: shares[i]!, secrets: secrets.slice(first, end), records: records[i]! }
      return { do: 'prepare', plan, brokers, meshIds, peerKeys, form, window, isPacking, isRatcheted, ...own }
    })
    await this.#whileMoving('connecting', 'connect')
  }

  /** Sends a message along each pair. @returns their number */
  async exchange(): Promise<number> {
    const replies = await this.#whileMoving('exchanging keys', 'exchange')
    return replies.reduce((sum, { messages }) => sum + messages, 0)
  }

  /** Sends another message from each generator. */
  async tap(): Promise<void> {
    await this.#whileMoving('collecting the statistics', 'tap')
  }

  /** Runs the plan. Resolves when everything has arrived and is answered, or after `drainMs` without progress. */
  async run(onProgress: (progress: Progress) => void): Promise<{ startMs: number; isComplete: boolean }> {
    const atMs = clockMs() + START_IN_MS
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

  /** Closes the peers and the records. */
  collect(): Promise<Collected[]> {
    return this.#each('collect', () => ({ do: 'collect' }))
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all(this.#generators.map((generator) => generator.stop()))
  }

  kill(): void {
    for (const generator of this.#generators) generator.kill()
  }

  #each<Did extends GeneratorReply['did']>(did: Did, orderOf: (i: number) => GeneratorOrder): Promise<ReplyTo<Did>[]> {
    return commandAll(this.#generators, orderOf, (reply): reply is ReplyTo<Did> => reply.did === did)
  }

  /** Waits for a step. @throws OperatingError `run_stalled` without progress */
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

const programOf = (i: number, runtimeArgs: readonly string[]): LoadGeneratorProgram =>
  new Child(`Load generator ${i + 1}`, join(import.meta.dirname, 'generator.ts'), runtimeArgs)

const NOTHING_YET: Progress = { prepared: 0, called: 0, acked: 0, refused: 0, delivered: 0, isDone: false }

const stalled = (doing: string, drainMs: number) =>
  new OperatingError('run_stalled', `The broker sent nothing for ${drainMs} ms (DRAIN_MS) while ${doing}.`)
