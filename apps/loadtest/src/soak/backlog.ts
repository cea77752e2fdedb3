/**
 * Messages that wait for absent peers: real ones, sealed and sent through the broker by members who then leave, for
 * members who come at the end and open them all.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import type { LoadOptions } from '../command/arguments.ts'
import { profileWords } from '../command/profile.ts'
import type { Display } from '../command/progress.ts'
import type { Environment } from '../environment/environment.ts'
import { Fleet } from '../generators/fleet.ts'
import type { Records } from '../generators/link.ts'
import type { Plan, Share } from '../generators/plan.ts'
import { ALONE } from '../generators/spread.ts'
import { judge, type Verdict } from '../run/verdict.ts'

export interface BacklogSetup {
  readonly messages: number
  readonly meshId: MeshId
  readonly target: Environment
  readonly options: LoadOptions
  readonly display: Display
}

export interface Drained
  extends Pick<Verdict, 'delivered' | 'lost' | 'timedOut' | 'duplicates' | 'misdelivered' | 'outOfOrder'> {
  readonly messages: number
  readonly storedPerSecond: number
  readonly drainedPerSecond: number
  /** Of each `STEP` messages in turn. */
  readonly stepsPerSecond: readonly number[]
}

export const STEP = 100_000

export class Backlog {
  readonly #setup: BacklogSetup
  readonly #plan: Plan
  readonly #members: MeshMembers
  readonly #folder: string
  readonly #teardown: Teardown
  readonly #records: Records[] = []
  #called = 0
  #storedPerSecond = 0

  private constructor(setup: BacklogSetup, members: MeshMembers, folder: string, teardown: Teardown) {
    const { payloadBytes, seed, peers } = setup.options
    this.#setup = setup
    this.#plan = {
      peers: peers * 2,
      total: setup.messages,
      rate: null,
      payloadBytes,
      seed,
      isOneWay: true,
      spread: ALONE,
    }
    this.#members = members
    this.#folder = folder
    this.#teardown = teardown
  }

  /** As many senders as the run has peers, and as many absent recipients. */
  static async store(setup: BacklogSetup, teardown: Teardown): Promise<Backlog> {
    const members = await generateMesh(setup.options.peers * 2, setup.meshId)
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-load-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const backlog = new Backlog(setup, members, folder, teardown)
    await backlog.#store()
    return backlog
  }

  async #store(): Promise<void> {
    const { target, options, display, messages } = this.#setup
    display.step(`storing ${messages} messages for absent peers`)
    await target.databases.enroll(this.#members)
    const startMs = clockMs()
    this.#called = await this.#runShare('senders', { first: 0, end: options.peers })
    this.#storedPerSecond = (messages * 1000) / (clockMs() - startMs)
  }

  /** The absent peers come, and stay until everything is theirs. */
  async drain(): Promise<Drained> {
    const { target, options, display, messages, meshId } = this.#setup
    display.step('the absent peers connect')
    const { peers } = options
    await this.#runShare('recipients', { first: peers, end: peers * 2 })
    const run = {
      plan: this.#plan,
      startMs: 0,
      called: this.#called,
      records: this.#records,
      spanMs: null,
      arrivalStep: STEP,
    }
    const verdict = await judge(run, (ids) => target.databases.waiting([meshId], ids))
    const { delivered, lost, timedOut, duplicates, misdelivered, outOfOrder, arrivingMs, stepsMs } = verdict
    return {
      ...{ delivered, lost, timedOut, duplicates, misdelivered, outOfOrder },
      messages,
      storedPerSecond: this.#storedPerSecond,
      drainedPerSecond: arrivingMs === 0 ? 0 : (delivered * 1000) / arrivingMs,
      stepsPerSecond: stepsMs.map((ms) => (STEP * 1000) / ms),
    }
  }

  /** @returns calls of `send` */
  async #runShare(name: string, peers: Share): Promise<number> {
    const { target, display } = this.#setup
    const fleet = await Fleet.open(this.#fleetSetup(name, peers))
    const stop = this.#teardown.add({ end: () => fleet.stop(), kill: () => fleet.kill() })
    const work = async () => {
      await fleet.connect()
      display.begin(this.#plan.total)
      await fleet.run((progress) => display.update(progress))
      display.end()
      const collected = await fleet.collect()
      this.#records.push(...fleet.records)
      return collected.reduce((sum, { called }) => sum + called, 0)
    }
    return Promise.race([work(), target.failed]).finally(stop)
  }

  #fleetSetup(name: string, peers: Share) {
    const { target, options } = this.#setup
    const { form, window, generators, agents, drainMs } = options
    const { url, brokerKey } = target.shards[0]!
    const { meshId, peerKeys, secrets } = this.#members
    const records = join(this.#folder, name)
    const own = { plan: this.#plan, peers, records, words: profileWords(options) }
    const where = { places: [{ url, brokerKey }], meshIds: [meshId] }
    return { ...own, ...where, peerKeys, secrets, form, window, generators, agents, drainMs }
  }
}
