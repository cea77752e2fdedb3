/**
 * Weighted fairness between the priorities of one recipient: each delivery moves its priority back by its cost
 * (`PRIORITY_COSTS`), and a claim takes whoever is furthest in front. So a flood of `now` takes 16 of 21 places, never all. A
 * priority that had nothing to send does not save up for later: at most one delivery of it comes at once.
 */
import { type Delivery, PRIORITY_COSTS, type VirtualTimes } from '@sealpost/protocol'

export class WeightedFairQueue {
  private times: [number, number, number] = [0, 0, 0]

  /** Where each priority stands, the one served last at 0 or behind. */
  get now(): VirtualTimes {
    return this.times
  }

  served(deliveries: readonly Pick<Delivery, 'priority'>[]): void {
    if (deliveries.length === 0) return
    const isServed = [false, false, false]
    for (const { priority } of deliveries) {
      this.times[priority]! += PRIORITY_COSTS[priority]!
      isServed[priority] = true
    }
    const front = Math.max(...this.times.filter((_, priority) => isServed[priority]))
    for (const [priority, cost] of PRIORITY_COSTS.entries())
      this.times[priority] = Math.max(this.times[priority]! - front, -cost)
  }
}
