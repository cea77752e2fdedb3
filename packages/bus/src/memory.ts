/** A bus inside one process: shards of a test or a simulation, and the broker that is alone. */
import type { Bus, Hint } from './bus.ts'

export class MemoryHub {
  private readonly shards = new Set<(hint: Hint) => void>()

  join(): Bus {
    let heard: ((hint: Hint) => void) | null = null
    return {
      publish: (hint) => {
        for (const shard of this.shards) if (shard !== heard) shard(hint)
      },
      subscribe: (listener) => {
        heard = listener
        this.shards.add(listener)
      },
      close: async () => {
        if (heard) this.shards.delete(heard)
      },
    }
  }
}
