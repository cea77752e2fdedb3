/** Prints the first broken promise of these worlds: `bun search.ts FIRST-SEED SEEDS`. */
import { runSeed } from '../../world.ts'

const [firstSeed, seeds] = process.argv.slice(2).map(Number) as [number, number]
for (let seed = firstSeed; seed < firstSeed + seeds; seed++) {
  const { violation } = runSeed(seed)
  if (violation === null) continue
  process.stdout.write(`${violation} (seed ${seed})\n`)
  break
}
