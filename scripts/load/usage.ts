/** What broker, Postgres and machine spent while a run went on: looked at four times a second, written down every two. */
import { clockMs } from '@sealpost/sdk'
import { factsOf, machineBusySeconds, serverFacts } from './proc.ts'

export interface Watched {
  readonly brokerPid: number | null
  readonly postmasterPid: number | null
}

export interface Usage {
  readonly brokerCpuSeconds: number | null
  readonly brokerRssMbPeak: number | null
  readonly brokerFdMax: number | null
  readonly postgresCpuSeconds: number | null
  readonly postgresRssMbPeak: number | null
  /** Cores that were busy on average, with everything on this machine. */
  readonly machineCoresBusy: number | null
  /** Every two seconds. */
  readonly series: readonly UsageSample[]
}

export interface UsageSample {
  readonly seconds: number
  readonly brokerFd: number | null
  readonly brokerRssMb: number | null
}

const LOOK_MS = 250
const NOTE_MS = 2_000

export class UsageWatch {
  readonly #watched: Watched
  readonly #startMs = clockMs()
  readonly #first
  readonly #timer: ReturnType<typeof setInterval>
  readonly #series: UsageSample[] = []
  #brokerRssMb: number | null = null
  #brokerFd: number | null = null
  #postgresRssMb: number | null = null
  #notedMs = -NOTE_MS

  constructor(watched: Watched) {
    this.#watched = watched
    this.#first = this.#look()
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  stop(): Usage {
    clearInterval(this.#timer)
    const first = this.#first
    const last = this.#look()
    const seconds = (clockMs() - this.#startMs) / 1000
    const busy = difference(last.machineSeconds, first.machineSeconds)
    return {
      brokerCpuSeconds: difference(last.broker?.cpuSeconds, first.broker?.cpuSeconds),
      brokerRssMbPeak: this.#brokerRssMb,
      brokerFdMax: this.#brokerFd,
      postgresCpuSeconds: difference(last.postgres?.cpuSeconds, first.postgres?.cpuSeconds),
      postgresRssMbPeak: this.#postgresRssMb,
      machineCoresBusy: busy === null ? null : busy / seconds,
      series: this.#series,
    }
  }

  #look() {
    const { brokerPid, postmasterPid } = this.#watched
    const broker = brokerPid === null ? null : factsOf(brokerPid)
    const postgres = postmasterPid === null ? null : serverFacts(postmasterPid)
    this.#brokerRssMb = larger(this.#brokerRssMb, broker?.rssMb)
    this.#brokerFd = larger(this.#brokerFd, broker?.descriptors)
    this.#postgresRssMb = larger(this.#postgresRssMb, postgres?.rssMb)
    const elapsedMs = clockMs() - this.#startMs
    if (elapsedMs - this.#notedMs >= NOTE_MS) {
      this.#notedMs = elapsedMs
      const seconds = Math.round(elapsedMs / 1000)
      this.#series.push({ seconds, brokerFd: broker?.descriptors ?? null, brokerRssMb: broker?.rssMb ?? null })
    }
    return { broker, postgres, machineSeconds: machineBusySeconds() }
  }
}

const larger = (a: number | null, b: number | null | undefined): number | null => (b == null ? a : Math.max(a ?? 0, b))

const difference = (last: number | null | undefined, first: number | null | undefined): number | null =>
  last == null || first == null ? null : last - first
