/** Judges a theft in a world of two peers: the thief opens nothing settled, and nothing that comes after round trips. */
import { Ratchet } from '@sealpost/identity/ratchet'
import { RatchetThief } from '@sealpost/identity/testing-ratchet'
import { type Posted, type RatchetOracle, sessionIdOf } from './ratchet-oracle.ts'
import type { RatchetProcess, SimulatedOwner } from './ratchet-process.ts'

export class RatchetTheft {
  readonly #oracle: RatchetOracle
  readonly #victim: number
  /** The victim's sessions with their newest chains at that time, by lane. */
  readonly #chains: readonly ReadonlyMap<string, number>[]
  readonly #thieves: readonly RatchetThief[]
  readonly #settled: readonly Posted[]
  readonly #no: number

  /** `loot`: what memory and store contain, by lane. */
  constructor(
    oracle: RatchetOracle,
    victim: number,
    loot: readonly ConstructorParameters<typeof RatchetThief>[0][],
    lanes: number,
  ) {
    this.#oracle = oracle
    this.#victim = victim
    this.#chains = loot
      .slice(0, lanes)
      .map(({ ratchet }) => new Map([...ratchet.sessions].map(([id, { lastChain }]) => [id, lastChain])))
    this.#settled = [...oracle.posted.values()].filter(({ isSettled }) => isSettled)
    this.#thieves = loot.map((of) => new RatchetThief(of))
    this.#no = oracle.no
  }

  /** After a theft and several round trips, both sides must use keys that the thief does not have. */
  judgeHealing(isLast: (post: Posted) => boolean): void {
    const isStolen = (post: Posted) => isLast(post) && post.no > this.#no && !this.#isHealed(post)
    if ([...this.#oracle.posted.values()].some(isStolen)) this.#oracle.violated('theft: round trips do not heal')
    else this.#oracle.mark('theft: healed')
  }

  judge(): void {
    const read = ({ bytes }: Posted) => this.#thieves.some((thief) => thief.read(bytes))
    const isOfLastResort = ({ bytes }: Posted) => this.#oracle.isOfLastResort(bytes)
    for (const post of this.#settled)
      if (!isOfLastResort(post) && read(post)) this.#oracle.violated('theft: opened a message that was settled before')
    for (const post of this.#oracle.posted.values()) {
      if (post.no <= this.#no || isOfLastResort(post)) continue
      const isSafe = this.#isHealed(post)
      if (isSafe && read(post)) this.#oracle.violated('theft: opened a message after a round trip')
      this.#oracle.mark(isSafe ? 'theft: a later message is safe' : 'theft: a later message is not safe yet')
    }
  }

  /** Returns whether the victim began the chain, or the parent, of the message after the theft. */
  #isHealed({ bytes, from, lane }: Posted): boolean {
    const last = this.#chains[lane]!.get(sessionIdOf(bytes))
    const view = new DataView(bytes.buffer, bytes.byteOffset)
    const own = view.getUint32(from === this.#victim ? 47 : 51)
    return last === undefined ? from === this.#victim || own > 0 : own > last
  }
}

/** Returns what memory and store contain, by line. */
export function lootOf({ identity: own, meshId, crypto, records, lines }: SimulatedOwner, process: RatchetProcess) {
  const lootIn = (ratchet: Ratchet, line: number) => ({
    ...{ own, peer: lines[line]!.peer, crypto, ratchet, prekeys: process.prekeys },
    scope: { meshId, priority: lines[line]!.lane },
  })
  const memory = process.ratchets.map(lootIn)
  const disk = memory.flatMap(({ scope }, line) => {
    const bytes = records.get(`ratchet ${line}`)
    return bytes ? [lootIn(Ratchet.restore(bytes, scope, crypto), line)] : []
  })
  return [...memory, ...disk]
}

/** Returns a thief of each line, of memory and of the store. */
export function ratchetThieves(owner: SimulatedOwner, process: RatchetProcess): RatchetThief[] {
  return lootOf(owner, process).map((loot) => new RatchetThief(loot))
}
