/** Simulates two peers that send each other messages with ratchets. */
import { FaultWorld, runWorld, type SimulatedSide, type WorldOutcome } from './fault-world.ts'
import type { Posted } from './ratchet-oracle.ts'
import { RatchetProcess, type SimulatedOwner } from './ratchet-process.ts'
import { lootOf, RatchetTheft } from './ratchet-theft.ts'

const LANES = 2

export function runRatchetSeed(seed: number): WorldOutcome {
  return runWorld(seed, new RatchetWorld(seed, { peers: 2, lanes: LANES, oneTimeMax: 4, roundMs: 61_000 }))
}

class RatchetWorld extends FaultWorld<RatchetProcess> {
  #theft: RatchetTheft | null = null

  protected override processOf(owner: SimulatedOwner): RatchetProcess {
    return new RatchetProcess(owner)
  }

  protected override send(process: RatchetProcess): void {
    process.send(this.random.below(LANES), 'hello')
  }

  /** Delivers a copy of any message, changed or not, also of the peer's own. */
  protected override forge(process: RatchetProcess): void {
    const all = [...this.oracle.posted.values()]
    if (all.length === 0) return
    const { bytes, lane } = this.pick(all)
    const copy = bytes.slice()
    if (this.random.chance(0.7)) copy[this.random.below(copy.length)]! ^= 1 << this.random.below(8)
    const isMoved = this.random.chance(0.2)
    process.receiveForged(isMoved ? LANES - 1 - lane : lane, copy)
  }

  protected override probe(process: RatchetProcess, text: string): void {
    for (let lane = 0; lane < LANES; lane++) process.send(lane, text)
  }

  protected override steal({ owner }: SimulatedSide<RatchetProcess>, process: RatchetProcess): void {
    if (this.#theft || this.oracle.disturbed.size > 0) return
    this.oracle.mark('theft')
    const loot = lootOf(owner, process)
    this.#theft = new RatchetTheft(this.oracle, owner.no, loot, LANES)
  }

  protected override judge(isLastProbe: ((post: Posted) => boolean) | null): void {
    if (isLastProbe) this.#theft?.judgeHealing(isLastProbe)
    this.#theft?.judge()
  }
}
