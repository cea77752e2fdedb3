/**
 * A broker dies with its sessions: how its peers come back to the others, with the pauses that the SDK draws. What a
 * broker does is two numbers here, how many handshakes it gets done in a second and how many it lets wait.
 */
import { homeOf } from '@sealpost/core'
import { backoffMs } from '@sealpost/sdk/backoff'
import { type Random, seededRandom } from '@sealpost/std'
import { meshIdOf } from './placement-check.ts'

export interface StormSetup {
  /** Of the broker that dies. */
  readonly sessions: number
  readonly meshPeers: number
  readonly survivors: number
  /** A second, of one survivor. */
  readonly handshakesPerSecond: number
  /** Connections without a proven key that a survivor lets in at a time: `UNAUTHENTICATED_MAX`. */
  readonly unprovenMax: number
  readonly seed: number
}

export interface StormOutcome {
  /** Seconds until this share of the peers is served again. */
  readonly halfBackSeconds: number
  readonly mostBackSeconds: number
  readonly allBackSeconds: number
  /** In the second with most of them, at all survivors. */
  readonly dialsPerSecondMax: number
  readonly refused: number
  readonly gaveUp: number
  /** Sessions that the fullest survivor took, against the mean. */
  readonly fullest: number
}

interface Guest {
  readonly survivor: Survivor
  failures: number
  deadlineMs: number
}

interface Survivor {
  readonly unproven: Guest[]
  taken: number
  /** Handshakes that it could have done by now; a part of one stays for the next step. */
  due: number
}

const STEP_MS = 10
/** The SDK hangs up when a dial has led to no session by then. */
const SESSION_WITHIN_MS = 20_000
const MINUTES_MAX = 60

export function weatherStorm(setup: StormSetup): StormOutcome {
  const storm = new Storm(setup)
  while (storm.back.length < setup.sessions && storm.nowMs < MINUTES_MAX * 60_000) storm.step()
  return storm.outcome()
}

class Storm {
  nowMs = 0
  /** When each came back. */
  readonly back: number[] = []
  private readonly setup: StormSetup
  private readonly random: Random
  private readonly survivors: readonly Survivor[]
  /** Who dials in a step. */
  private readonly dials = new Map<number, Guest[]>()
  private readonly dialsBySecond = new Map<number, number>()
  private refused = 0
  private gaveUp = 0

  constructor(setup: StormSetup) {
    this.setup = setup
    this.random = seededRandom(setup.seed)
    this.survivors = Array.from({ length: setup.survivors }, () => ({ unproven: [], taken: 0, due: 0 }))
    for (const survivor of this.heirs()) this.putOff({ survivor, failures: 0, deadlineMs: 0 })
  }

  step(): void {
    const dialling = this.dials.get(this.nowMs / STEP_MS) ?? []
    this.dials.delete(this.nowMs / STEP_MS)
    for (const guest of dialling) this.dialled(guest)
    for (const survivor of this.survivors) this.serve(survivor)
    this.nowMs += STEP_MS
  }

  outcome(): StormOutcome {
    const { sessions, survivors } = this.setup
    const at = (share: number) =>
      (this.back[Math.ceil(this.back.length * share) - 1] ?? Number.POSITIVE_INFINITY) / 1000
    return {
      halfBackSeconds: at(0.5),
      mostBackSeconds: at(0.99),
      allBackSeconds: this.back.length < sessions ? Number.POSITIVE_INFINITY : at(1),
      dialsPerSecondMax: Math.max(...this.dialsBySecond.values()),
      refused: this.refused,
      gaveUp: this.gaveUp,
      fullest: (Math.max(...this.survivors.map(({ taken }) => taken)) * survivors) / sessions,
    }
  }

  /** The survivor of each peer: where its mesh finds its new home. */
  private heirs(): Survivor[] {
    const { sessions, meshPeers, survivors } = this.setup
    const names = Array.from({ length: survivors }, (_, i) => String(i))
    const homes = Array.from({ length: Math.ceil(sessions / meshPeers) }, () =>
      Number(homeOf(meshIdOf(this.random), names)),
    )
    return Array.from({ length: sessions }, (_, i) => this.survivors[homes[Math.floor(i / meshPeers)]!]!)
  }

  private putOff(guest: Guest): void {
    const waitMs = backoffMs(guest.failures++, () => this.random.next())
    const step = Math.floor((this.nowMs + waitMs) / STEP_MS) + 1
    const others = this.dials.get(step)
    if (others) others.push(guest)
    else this.dials.set(step, [guest])
  }

  private dialled(guest: Guest): void {
    const second = Math.floor(this.nowMs / 1000)
    this.dialsBySecond.set(second, (this.dialsBySecond.get(second) ?? 0) + 1)
    const { unproven } = guest.survivor
    if (unproven.length >= this.setup.unprovenMax) {
      this.refused += 1
      return this.putOff(guest)
    }
    guest.deadlineMs = this.nowMs + SESSION_WITHIN_MS
    unproven.push(guest)
  }

  private serve(survivor: Survivor): void {
    survivor.due += (this.setup.handshakesPerSecond * STEP_MS) / 1000
    while (survivor.due >= 1 && survivor.unproven.length > 0) {
      survivor.due -= 1
      const guest = survivor.unproven.shift()!
      if (guest.deadlineMs < this.nowMs) {
        this.gaveUp += 1
        this.putOff(guest)
        continue
      }
      survivor.taken += 1
      this.back.push(this.nowMs)
    }
    survivor.due = Math.min(survivor.due, 1)
  }
}
