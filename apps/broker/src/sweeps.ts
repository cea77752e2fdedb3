/**
 * Looks for what is over at a steady pace, which all shards of a database share: each walks the whole queue by itself, so of
 * several each walks as much more slowly. Two that each looked once a second cost a burst 1 µs of Postgres' CPU a message.
 */
import type { Swept } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

export interface SweepPorts {
  sweep(): Promise<Swept>
  swept(swept: Swept): void
  failed(error: unknown): void
}

export class Sweeps {
  /** How many live, this one among them, as far as it knows: a shard that died is counted for a few seconds. */
  shardCount = 1
  private readonly ports: SweepPorts
  private readonly timer: ReturnType<typeof setInterval>
  private passed = 0
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
    if (this.passed < this.shardCount || this.isSweeping) return
    this.passed = 0
    void this.sweep()
  }

  private async sweep(): Promise<void> {
    this.isSweeping = true
    try {
      this.ports.swept(await this.ports.sweep())
    } catch (error) {
      this.ports.failed(error)
    } finally {
      this.isSweeping = false
    }
  }
}
