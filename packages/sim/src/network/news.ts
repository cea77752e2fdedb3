/**
 * Hints between shards other than wakes: lost, duplicated and late like these, but with a random source of their own,
 * like `Ends`, so that existing seeds keep their worlds.
 */
import type { Hint } from '@sealpost/protocol/hints'
import { type Random, seededRandom } from '@sealpost/std'
import type { ShardLife } from '../shard/shard-life.ts'
import type { World } from '../world.ts'

const SALT = 0x9e75
const LATE_MS_MAX = 100

export class News {
  private readonly world: World
  private readonly random: Random

  constructor(world: World, seed: number) {
    this.world = world
    this.random = seededRandom(seed ^ SALT)
  }

  send(from: ShardLife, hint: Hint): void {
    const { oracle, plan, path, clock } = this.world
    if (path.areFaultsOn && this.random.chance(plan.hintLost)) return oracle.mark('news: lost')
    const isDoubled = path.areFaultsOn && this.random.chance(plan.hintDoubled)
    oracle.mark(`news: ${hint.type}`)
    for (let i = isDoubled ? 0 : 1; i < 2; i++)
      clock.after(this.random.next() * LATE_MS_MAX, () => this.world.spread(from, hint))
  }
}
