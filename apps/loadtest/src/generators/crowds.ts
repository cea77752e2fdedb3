/** The crowd of silent peers from the script's side: spread evenly over a few programs (`crowd.ts`). */
import { join } from 'node:path'
import type { BrokerAddress, MeshMembers } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import type { CrowdAnswer, CrowdOrder } from './crowd.ts'
import { sharesOf } from './plan.ts'

export interface CrowdSetup {
  /** Its members are the crowd. */
  readonly mesh: MeshMembers
  readonly place: BrokerAddress
  readonly programs: number
  /** Words for Bun. */
  readonly words: readonly string[]
  /** Rejects when what it connects to is gone. */
  readonly failed: Promise<never>
}

/** Some that came. */
export interface Arrival {
  readonly connectMs: Latencies
  readonly failed: number
}

type Program = Child<CrowdOrder, CrowdAnswer>

export class Crowds {
  readonly #setup: CrowdSetup
  readonly #programs: readonly Program[]

  /** It ends with the script at the latest. */
  static async open(setup: CrowdSetup, teardown: Teardown): Promise<Crowds> {
    const crowds = new Crowds(setup)
    teardown.add({ end: () => crowds.stop(), kill: () => crowds.kill() })
    const { mesh, place, programs } = setup
    const shares = sharesOf({ first: 0, end: mesh.secrets.length }, programs)
    await crowds.#each('prepare', (i) => {
      const { first, end } = shares[i]!
      return { do: 'prepare', place, meshId: mesh.meshId, secrets: mesh.secrets.slice(first, end) }
    })
    return crowds
  }

  private constructor(setup: CrowdSetup) {
    this.#setup = setup
    const file = join(import.meta.dirname, 'crowd.ts')
    this.#programs = Array.from({ length: setup.programs }, (_, i) => new Child(`Crowd ${i + 1}`, file, setup.words))
  }

  async grow(to: number): Promise<Arrival> {
    const shares = sharesOf({ first: 0, end: to }, this.#programs.length)
    return arrivalOf(await this.#each('grow', (i) => ({ do: 'grow', to: shares[i]!.end - shares[i]!.first })))
  }

  async churn(count: number): Promise<Arrival> {
    const shares = sharesOf({ first: 0, end: count }, this.#programs.length)
    return arrivalOf(await this.#each('churn', (i) => ({ do: 'churn', count: shares[i]!.end - shares[i]!.first })))
  }

  async look(): Promise<{ readonly online: number; readonly dropped: number }> {
    const all = await this.#each('look', () => ({ do: 'look' }))
    const sum = (pick: (of: (typeof all)[number]) => number) => all.reduce((n, of) => n + pick(of), 0)
    return { online: sum(({ online }) => online), dropped: sum(({ dropped }) => dropped) }
  }

  async leave(): Promise<void> {
    await this.#each('leave', () => ({ do: 'leave' }))
    await this.stop()
  }

  async stop(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.stop()))
  }

  kill(): void {
    for (const program of this.#programs) program.kill()
  }

  #each<Did extends CrowdAnswer['did']>(did: Did, orderOf: (i: number) => CrowdOrder) {
    type Wanted = Extract<CrowdAnswer, { did: Did }>
    const answers = this.#programs.map((program, i) => {
      const answer = program.nextReply((words): words is Wanted => words.did === did)
      program.send(orderOf(i))
      return answer
    })
    return Promise.race([Promise.all(answers), this.#setup.failed])
  }
}

function arrivalOf(all: readonly { readonly ms: readonly number[]; readonly failed: number }[]): Arrival {
  const connectMs = new Latencies()
  for (const { ms } of all) for (const each of ms) connectMs.note(each)
  return { connectMs, failed: all.reduce((sum, { failed }) => sum + failed, 0) }
}
