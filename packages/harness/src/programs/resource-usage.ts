/** What brokers, Postgres and the machine use during a run: sampled four times a second, recorded every two seconds. */
import { clockMs } from '@sealpost/sdk'
import { machineBusySeconds, type ProcessFacts, postgresFacts, processFacts } from './process-facts.ts'

export interface WatchedPrograms {
  readonly brokers: readonly { readonly pid: number | null }[]
  readonly postmasterPids: readonly number[]
}

/** Null: unknown. */
export interface ProcessUsage {
  readonly cpuSeconds: number | null
  readonly rssMbPeak: number | null
  readonly fdMax: number | null
}

export interface ResourceUsage {
  /** One for each broker, in the order of the target. */
  readonly brokers: readonly ProcessUsage[]
  /** All servers together. */
  readonly postgres: ProcessUsage
  /** Cores that were busy on average, whatever kept them busy. */
  readonly machineCoresBusy: number | null
  /** Every two seconds. */
  readonly series: readonly UsageSample[]
}

/** The highest value of any broker. */
export interface UsageSample {
  readonly seconds: number
  readonly brokerFd: number | null
  readonly brokerRssMb: number | null
}

const SAMPLE_MS = 250
const RECORD_MS = 2_000

export class ResourceMonitor {
  readonly #startMs = clockMs()
  readonly #brokers: readonly ProcessMonitor[]
  readonly #postgres: ProcessMonitor
  readonly #machineSeconds = machineBusySeconds()
  readonly #timer: ReturnType<typeof setInterval>
  readonly #series: UsageSample[] = []
  #recordedMs = -RECORD_MS

  constructor({ brokers, postmasterPids }: WatchedPrograms) {
    this.#brokers = brokers.map(({ pid }) => new ProcessMonitor(() => (pid === null ? null : processFacts(pid))))
    this.#postgres = new ProcessMonitor(() => sumOfFacts(postmasterPids.map(postgresFacts)))
    this.#timer = setInterval(() => this.#sample(), SAMPLE_MS)
    this.#sample()
  }

  stop(): ResourceUsage {
    clearInterval(this.#timer)
    this.#sample()
    const seconds = (clockMs() - this.#startMs) / 1000
    const busy = difference(machineBusySeconds(), this.#machineSeconds)
    return {
      brokers: this.#brokers.map(({ usage }) => usage),
      postgres: this.#postgres.usage,
      machineCoresBusy: busy === null ? null : busy / seconds,
      series: this.#series,
    }
  }

  #sample(): void {
    const brokers = this.#brokers.map((broker) => broker.sample())
    this.#postgres.sample()
    const elapsedMs = clockMs() - this.#startMs
    if (elapsedMs - this.#recordedMs < RECORD_MS) return
    this.#recordedMs = elapsedMs
    const seconds = Math.round(elapsedMs / 1000)
    const highest = (pick: (facts: ProcessFacts) => number | null) =>
      brokers.reduce<number | null>((max, facts) => larger(max, facts && pick(facts)), null)
    const brokerFd = highest(({ descriptors }) => descriptors)
    this.#series.push({ seconds, brokerFd, brokerRssMb: highest(({ rssMb }) => rssMb) })
  }
}

class ProcessMonitor {
  readonly #read: () => ProcessFacts | null
  #firstCpu: number | null = null
  #lastCpu: number | null = null
  #rssMb: number | null = null
  #descriptors: number | null = null

  constructor(read: () => ProcessFacts | null) {
    this.#read = read
  }

  sample(): ProcessFacts | null {
    const facts = this.#read()
    this.#lastCpu = facts?.cpuSeconds ?? null
    this.#firstCpu ??= this.#lastCpu
    this.#rssMb = larger(this.#rssMb, facts?.rssMb)
    this.#descriptors = larger(this.#descriptors, facts?.descriptors)
    return facts
  }

  get usage(): ProcessUsage {
    const cpuSeconds = difference(this.#lastCpu, this.#firstCpu)
    return { cpuSeconds, rssMbPeak: this.#rssMb, fdMax: this.#descriptors }
  }
}

/** Measures how far the memory of a program rises above its value at the start. */
export class MemoryGrowth {
  readonly #rssMb: () => number
  readonly #startMb: number
  readonly #timer: ReturnType<typeof setInterval>
  #peakMb: number

  /** @param pid - null: unknown, which reads as no growth */
  constructor(pid: number | null, sampleMs = 20) {
    this.#rssMb = () => (pid === null ? 0 : (processFacts(pid)?.rssMb ?? 0))
    this.#startMb = this.#rssMb()
    this.#peakMb = this.#startMb
    this.#timer = setInterval(() => (this.#peakMb = Math.max(this.#peakMb, this.#rssMb())), sampleMs)
  }

  /** @returns MB */
  stop(): number {
    clearInterval(this.#timer)
    return this.#peakMb - this.#startMb
  }
}

function sumOfFacts(all: readonly (ProcessFacts | null)[]): ProcessFacts | null {
  return all.reduce(
    (a, b) => {
      if (!a || !b) return null
      return { cpuSeconds: a.cpuSeconds + b.cpuSeconds, rssMb: a.rssMb + b.rssMb, descriptors: null }
    },
    all[0] === undefined ? null : NOTHING,
  )
}

const NOTHING: ProcessFacts = { cpuSeconds: 0, rssMb: 0, descriptors: null }

const larger = (a: number | null, b: number | null | undefined): number | null => (b == null ? a : Math.max(a ?? 0, b))

const difference = (last: number | null, first: number | null): number | null =>
  last === null || first === null ? null : last - first
