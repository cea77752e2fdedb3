/**
 * Looks for what is over at a steady pace, which all shards of a database share: each walks the whole queue by itself, so of
 * several each walks as much more slowly. Two that each looked once a second cost a burst 1 µs of Postgres' CPU a message. Where
 * nothing is over the next look comes later, four times at most: an idle broker did little else.
 */
import type { Swept } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

export interface SweepPorts {
  sweep(): Promise<Swept>
  swept(swept: Swept): void
  failed(error: unknown): void
}

const PACE_MAX = 4

export class Sweeps {
  /** How many live, this one among them, as far as it knows: a shard that died is counted for a few seconds. */
  shardCount = 1
  private readonly ports: SweepPorts
  private readonly timer: ReturnType<typeof setInterval>
  private passed = 0
  /** Ticks from one look to the next, of one that is alone. */
  private pace = 1
  private isSweeping = false

  /** `everyMs`: between two looks of one that is alone. */
  constructor(ports: SweepPorts, everyMs: Millis) {
    this.ports = ports
    this.timer = setInterval(() => this.tick(), everyMs)
  }

  stop(): void {
    clearInterval(this.timer)
  }

  /** Call it every `everyMs`. */
  tick(): void {
    this.passed += 1
    if (this.passed < this.shardCount * this.pace || this.isSweeping) return
    this.passed = 0
    void this.sweep()
  }

  private async sweep(): Promise<void> {
    this.isSweeping = true
    try {
      const swept = await this.ports.sweep()
      this.pace = isQuiet(swept) ? Math.min(PACE_MAX, this.pace * 2) : 1
      this.ports.swept(swept)
    } catch (error) {
      this.ports.failed(error)
    } finally {
      this.isSweeping = false
    }
  }
}

const isQuiet = ({ expired, dead, forgotten, isRound }: Swept): boolean => isRound && expired + dead + forgotten === 0
