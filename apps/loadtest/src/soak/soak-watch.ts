/** Looks at storage and broker once a second, as long as a soak runs. */

import { processFacts } from '@sealpost/harness/programs/process-facts'
import { clockMs } from '@sealpost/sdk'
import type { RelationFacts } from '../environment/database.ts'
import type { Environment } from '../environment/environment.ts'

export interface SoakSample {
  readonly atMs: number
  readonly relations: readonly RelationFacts[]
  /** Deliveries in the queue, of everyone. */
  readonly queued: number
  /** Of the one that has the most. */
  readonly brokerRssMb: number | null
}

const LOOK_MS = 1000

export class SoakWatch {
  readonly samples: SoakSample[] = []
  readonly #target: Environment
  readonly #timer: ReturnType<typeof setInterval>
  readonly #uncounted: number
  #isLooking = false

  /** @param uncounted - deliveries that the statistics know nothing of */
  constructor(target: Environment, uncounted: number) {
    this.#target = target
    this.#uncounted = uncounted
    this.#timer = setInterval(() => void this.#look(), LOOK_MS)
  }

  stop(): SoakSample[] {
    clearInterval(this.#timer)
    return this.samples
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return // a database this slow gets fewer questions
    this.#isLooking = true
    try {
      const { databases, shards } = this.#target
      const relations = await databases.relations()
      const memories = shards.flatMap(({ pid }) => (pid === null ? [] : (processFacts(pid)?.rssMb ?? [])))
      const brokerRssMb = memories.length === 0 ? null : Math.max(...memories)
      this.samples.push({ atMs: clockMs(), relations, queued: rowsOf(relations) + this.#uncounted, brokerRssMb })
    } catch {
      // A sample is missing from the series; if the database is away, the run itself says so.
    } finally {
      this.#isLooking = false
    }
  }
}

/** To be asked while nothing moves: the statistics are up to a second late, the count is not. */
export async function uncountedOf({ databases }: Environment): Promise<number> {
  return (await databases.countAllQueued()) - rowsOf(await databases.relations())
}

const rowsOf = (relations: readonly RelationFacts[]): number =>
  relations.find(({ name }) => name === 'message_queue')?.rows ?? 0
