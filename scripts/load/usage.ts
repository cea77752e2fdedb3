/** What brokers, Postgres and machine spent while a run went on: looked at four times a second, written down every two. */
import { clockMs } from '@sealpost/sdk'
import { factsOf, machineBusySeconds, type ProgramFacts, serverFacts } from './proc.ts'

export interface Watched {
  readonly shards: readonly { readonly pid: number | null }[]
  readonly postmasterPids: readonly number[]
}

/** Null: not known. */
export interface ProgramUsage {
  readonly cpuSeconds: number | null
  readonly rssMbPeak: number | null
  readonly fdMax: number | null
}

export interface Usage {
  /** Each, in the order of the target. */
  readonly shards: readonly ProgramUsage[]
  /** All servers together. */
  readonly postgres: ProgramUsage
  /** Cores that were busy on average, with everything on this machine. */
  readonly machineCoresBusy: number | null
  /** Every two seconds. */
  readonly series: readonly UsageSample[]
}

/** Of the broker that has the most of it. */
export interface UsageSample {
  readonly seconds: number
  readonly brokerFd: number | null
  readonly brokerRssMb: number | null
}

const LOOK_MS = 250
const NOTE_MS = 2_000

export class UsageWatch {
  readonly #startMs = clockMs()
  readonly #shards: readonly ProgramWatch[]
  readonly #postgres: ProgramWatch
  readonly #machineSeconds = machineBusySeconds()
  readonly #timer: ReturnType<typeof setInterval>
  readonly #series: UsageSample[] = []
  #notedMs = -NOTE_MS

  constructor({ shards, postmasterPids }: Watched) {
    this.#shards = shards.map(({ pid }) => new ProgramWatch(() => (pid === null ? null : factsOf(pid))))
    this.#postgres = new ProgramWatch(() => sumOfFacts(postmasterPids.map(serverFacts)))
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
    this.#look()
  }

  stop(): Usage {
    clearInterval(this.#timer)
    this.#look()
    const seconds = (clockMs() - this.#startMs) / 1000
    const busy = difference(machineBusySeconds(), this.#machineSeconds)
    return {
      shards: this.#shards.map(({ usage }) => usage),
      postgres: this.#postgres.usage,
      machineCoresBusy: busy === null ? null : busy / seconds,
      series: this.#series,
    }
  }

  #look(): void {
    const brokers = this.#shards.map((shard) => shard.look())
    this.#postgres.look()
    const elapsedMs = clockMs() - this.#startMs
    if (elapsedMs - this.#notedMs < NOTE_MS) return
    this.#notedMs = elapsedMs
    const seconds = Math.round(elapsedMs / 1000)
    const most = (pick: (facts: ProgramFacts) => number | null) =>
      brokers.reduce<number | null>((max, facts) => larger(max, facts && pick(facts)), null)
    const brokerFd = most(({ descriptors }) => descriptors)
    this.#series.push({ seconds, brokerFd, brokerRssMb: most(({ rssMb }) => rssMb) })
  }
}

class ProgramWatch {
  readonly #ask: () => ProgramFacts | null
  #firstCpu: number | null = null
  #lastCpu: number | null = null
  #rssMb: number | null = null
  #descriptors: number | null = null

  constructor(ask: () => ProgramFacts | null) {
    this.#ask = ask
  }

  look(): ProgramFacts | null {
    const facts = this.#ask()
    this.#lastCpu = facts?.cpuSeconds ?? null
    this.#firstCpu ??= this.#lastCpu
    this.#rssMb = larger(this.#rssMb, facts?.rssMb)
    this.#descriptors = larger(this.#descriptors, facts?.descriptors)
    return facts
  }

  get usage(): ProgramUsage {
    const cpuSeconds = difference(this.#lastCpu, this.#firstCpu)
    return { cpuSeconds, rssMbPeak: this.#rssMb, fdMax: this.#descriptors }
  }
}

function sumOfFacts(all: readonly (ProgramFacts | null)[]): ProgramFacts | null {
  return all.reduce(
    (a, b) => {
      if (!a || !b) return null
      return { cpuSeconds: a.cpuSeconds + b.cpuSeconds, rssMb: a.rssMb + b.rssMb, descriptors: null }
    },
    all[0] === undefined ? null : NOTHING,
  )
}

const NOTHING: ProgramFacts = { cpuSeconds: 0, rssMb: 0, descriptors: null }

const larger = (a: number | null, b: number | null | undefined): number | null => (b == null ? a : Math.max(a ?? 0, b))

const difference = (last: number | null, first: number | null): number | null =>
  last === null || first === null ? null : last - first
