/** Collecting what other shards leased at birth: the part of the driver that waits for it. */
import type { CollectWant } from '@sealpost/protocol'
import { Drain, type DrainOptions } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import { PoolDriver, type PoolParts } from './pool-driver.ts'

export abstract class CollectDriver extends PoolDriver {
  private readonly collectDrain: Drain<CollectWant>

  constructor(parts: PoolParts, drain: DrainOptions) {
    super(parts, drain)
    this.collectDrain = new Drain(
      {
        start: (wants) => void this.collectFor(wants),
        schedule: (ms: Millis, tick) => void setTimeout(tick, ms),
        nowMs: () => performance.now(),
      },
      drain,
    )
  }

  collect(want: CollectWant): void {
    this.collectDrain.want(want)
  }

  protected override pullDrains(): void {
    super.pullDrains()
    this.collectDrain.pull()
  }

  private async collectFor(wants: readonly CollectWant[]): Promise<void> {
    try {
      const answers = await this.parts.queue.collect(wants)
      this.step(() => this.engine.collecting.collected(wants.map((want, i) => ({ want, collected: answers[i]! }))))
    } catch (error) {
      this.complain('collect.failed', error)
      this.step(() => this.engine.collecting.failed(wants))
    }
    this.collectDrain.ended()
  }
}
