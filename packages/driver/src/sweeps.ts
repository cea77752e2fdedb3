/**
 * Sweeps the queue at a steady pace that all shards of a database share: each walks the whole queue, so each of several walks
 * as much more slowly. Two shards that swept once a second each cost a burst 1 µs of Postgres' CPU a message. When nothing is
 * over, the next sweep comes later, four times at most: an idle broker did little else.
 */
import type { Queue, Swept } from '@sealpost/queue'
import type { Failures } from './background.ts'
import type { DriverReport } from './ports.ts'

const PACE_MAX = 4

export interface SweepPorts {
  readonly queue: Pick<Queue, 'sweep'>
  readonly report: Pick<DriverReport, 'swept'>
  readonly failures: Failures
}

export class Sweeps {
  /** Live shards, this one included, as far as it knows: a shard that died is counted for a few seconds. */
  shardCount = 1
  readonly #ports: SweepPorts
  #ticks = 0
  /** Ticks between two sweeps of a shard that is alone. */
  #pace = 1
  #isSweeping = false

  constructor(ports: SweepPorts) {
    this.#ports = ports
  }

  /** Call it at the interval between two sweeps of a shard that is alone. */
  tick(): void {
    this.#ticks += 1
    if (this.#ticks < this.shardCount * this.#pace || this.#isSweeping) return
    this.#ticks = 0
    this.#ports.failures.start(this.#sweep())
  }

  async #sweep(): Promise<void> {
    const { queue, report, failures } = this.#ports
    this.#isSweeping = true
    const swept = await queue.sweep().catch((error) => {
      failures.report('sweep.failed', error)
      return null
    })
    this.#isSweeping = false
    if (!swept) return
    this.#pace = isQuiet(swept) ? Math.min(PACE_MAX, this.#pace * 2) : 1
    report.swept(swept)
  }
}

const isQuiet = ({ expired, dead, forgotten, isRound }: Swept): boolean => isRound && expired + dead + forgotten === 0
