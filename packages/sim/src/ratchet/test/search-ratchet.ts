/** Prints the first violation of these worlds of ratchets: `bun search-ratchet.ts FIRST-SEED SEEDS`. */
import { ready } from '@sealpost/identity'
import { runRatchetSeed } from '../ratchet-world.ts'

await ready()
const [firstSeed, seeds] = process.argv.slice(2).map(Number) as [number, number]
for (let seed = firstSeed; seed < firstSeed + seeds; seed++) {
  const { violation } = runRatchetSeed(seed)
  if (violation === null) continue
  process.stdout.write(`${violation} (seed ${seed})\n`)
  break
}
