/** Judges what a thief of a group member, or a departed member, opens. */
import { readTicket } from '@sealpost/identity/sender-keys'
import { SenderKeyThief } from '@sealpost/identity/testing-sender-keys'
import type { Posted, RatchetOracle } from '../ratchet/ratchet-oracle.ts'
import type { SimulatedOwner } from '../ratchet/ratchet-process.ts'
import { ratchetThieves } from '../ratchet/ratchet-theft.ts'
import { receivedFrom, type SenderKeyProcess, splitShared } from './sender-key-process.ts'

/** A theft waits for this many settled messages of the victim. */
const SETTLED_MIN = 6

/** Returns a thief who has copied memory and store of a member. */
export function thiefOf(owner: SimulatedOwner, process: SenderKeyProcess): SenderKeyThief {
  const disk = owner.lines.flatMap((_, line) => receivedFrom(owner, line) ?? [])
  const received = [...process.received, ...disk]
  return new SenderKeyThief({ sending: [process.sending], received, ratchets: ratchetThieves(owner, process) })
}

/** A member that was not in the group while the messages between these ids were sealed. */
interface Absence {
  readonly fromId: string
  toId: string | null
  readonly thieves: SenderKeyThief[]
}

export class SenderKeyJudge {
  readonly #oracle: RatchetOracle
  #theft: { readonly thief: SenderKeyThief; readonly settled: readonly Posted[] } | null = null
  readonly #absences: Absence[] = []

  constructor(oracle: RatchetOracle) {
    this.#oracle = oracle
  }

  stolen(owner: SimulatedOwner, process: SenderKeyProcess): void {
    const isOwn = ({ from, to, isSettled }: Posted) => isSettled && [from, to].includes(owner.no)
    const settled = this.#shared().filter(isOwn)
    // The text of a late message is in memory, so the key of its chain may be as well.
    if (this.#theft || this.#oracle.disturbed.size > 0 || settled.length < SETTLED_MIN || process.hasLate) return
    this.#oracle.mark('theft')
    this.#theft = { thief: thiefOf(owner, process), settled }
  }

  /** Begins the absence of a member. The function that it returns ends it. */
  departed(fromId: string, thief: SenderKeyThief): (toId: string, later: SenderKeyThief) => void {
    const absence: Absence = { fromId, toId: null, thieves: [thief] }
    this.#absences.push(absence)
    return (toId, later) => {
      absence.toId = toId
      absence.thieves.push(later)
    }
  }

  judge(isLastProbe: ((post: Posted) => boolean) | null): void {
    const shared = this.#shared()
    for (const { fromId, toId, thieves } of this.#absences) {
      const during = shared.filter(({ text }) => text > fromId && (toId === null || text < toId))
      if (during.some((post) => thieves.some((thief) => reads(thief, post))))
        this.#oracle.violated('departure: a departed member opens a later message')
      this.#oracle.mark(`departure: ${during.length > 0 ? 'messages' : 'nothing'} sent`)
    }
    if (this.#theft) this.#judgeTheft(this.#theft, shared, isLastProbe)
  }

  #judgeTheft(
    { thief, settled }: { thief: SenderKeyThief; settled: readonly Posted[] },
    shared: readonly Posted[],
    isLastProbe: ((post: Posted) => boolean) | null,
  ): void {
    const lastResorts = this.#chainsOfLastResort(shared)
    const isSafe = (post: Posted) => !lastResorts.has(readTicket(splitShared(post.bytes).ticket)!.chainId)
    if (settled.filter(isSafe).some((post) => reads(thief, post)))
      this.#oracle.violated('theft: opened a message that was settled before')
    this.#oracle.mark('theft: judged', settled.filter(isSafe).length)
    if (!isLastProbe) return
    if (shared.filter(isLastProbe).some((post) => reads(thief, post)))
      this.#oracle.violated('theft: other chains do not heal')
    this.#oracle.mark('theft: healed')
  }

  /** Returns the chains that were distributed in a session without a one-time prekey. */
  #chainsOfLastResort(shared: readonly Posted[]): ReadonlySet<string> {
    const chains = new Set<string>()
    for (const { bytes } of shared) {
      const { chainId, distribution } = readTicket(splitShared(bytes).ticket)!
      if (distribution && this.#oracle.isOfLastResort(distribution)) chains.add(chainId)
    }
    return chains
  }

  #shared(): Posted[] {
    return [...this.#oracle.posted.values()].filter(({ isShared }) => isShared)
  }
}

function reads(thief: SenderKeyThief, { bytes }: Posted): boolean {
  const { ticket, body } = splitShared(bytes)
  return thief.read(ticket, body) !== null
}
