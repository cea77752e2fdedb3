/** Simulates members of a group that send each other messages under sender keys, while members depart and join. */

import { SENDER_KEY_MS_MAX } from '@sealpost/identity/sender-keys'
import { FaultWorld, runWorld, type SimulatedSide, type WorldOutcome } from '../ratchet/fault-world.ts'
import type { Posted } from '../ratchet/ratchet-oracle.ts'
import type { SimulatedOwner } from '../ratchet/ratchet-process.ts'
import { SenderKeyProcess } from './sender-key-process.ts'
import { SenderKeyJudge, thiefOf } from './sender-key-theft.ts'

const PEERS = 3
const CHANGE_SHARE = 0.1
const LATE_SHARE = 0.1

export function runSenderKeySeed(seed: number): WorldOutcome {
  const shape = { peers: PEERS, lanes: 1, oneTimeMax: 20, roundMs: SENDER_KEY_MS_MAX + 1_000 }
  return runWorld(seed, new SenderKeyWorld(seed, shape))
}

class SenderKeyWorld extends FaultWorld<SenderKeyProcess> {
  readonly #judge = new SenderKeyJudge(this.oracle)
  /** The functions that end the absences of the peers that are not in the group. */
  readonly #absent = new Map<number, () => void>()

  protected override processOf(owner: SimulatedOwner): SenderKeyProcess {
    return new SenderKeyProcess(owner)
  }

  protected override send(process: SenderKeyProcess, side: SimulatedSide<SenderKeyProcess>): void {
    if (this.random.chance(CHANGE_SHARE)) this.#change(side, process)
    if (this.random.chance(0.5)) process.readReports()
    if (this.#absent.has(side.owner.no)) process.send(this.random.below(PEERS - 1), 'hello')
    else process.sendToGroup(this.#members(), 'hello all', LATE_SHARE)
  }

  #members(): ReadonlySet<number> {
    return new Set([...this.sides.keys()].filter((no) => !this.#absent.has(no)))
  }

  #change(side: SimulatedSide<SenderKeyProcess>, process: SenderKeyProcess): void {
    const { owner } = side
    const join = this.#absent.get(owner.no)
    if (join) {
      join()
      return
    }
    if (this.#absent.size > 0) return
    this.oracle.mark('departed')
    const end = this.#judge.departed(owner.newId(), thiefOf(owner, process))
    this.#absent.set(owner.no, () => {
      this.oracle.mark('joined')
      this.#absent.delete(owner.no)
      this.guarded(side, (later) => end(owner.newId(), thiefOf(owner, later)))
    })
  }

  /** Delivers a message again that was settled before. */
  protected override forge(process: SenderKeyProcess, { owner }: SimulatedSide<SenderKeyProcess>): void {
    const settled = [...this.oracle.posted.values()].filter(({ to, isSettled }) => to === owner.no && isSettled)
    if (settled.length > 0) process.receive({ ...this.pick(settled), atMs: owner.nowMs() })
  }

  protected override probe(process: SenderKeyProcess, text: string): void {
    for (const join of [...this.#absent.values()]) join()
    process.readReports()
    process.sendToGroup(this.#members(), text, 0)
  }

  protected override steal({ owner }: SimulatedSide<SenderKeyProcess>, process: SenderKeyProcess): void {
    this.#judge.stolen(owner, process)
  }

  protected override judge(isLastProbe: ((post: Posted) => boolean) | null): void {
    this.#judge.judge(isLastProbe)
  }
}
