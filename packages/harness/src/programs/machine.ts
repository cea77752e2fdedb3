/** Describes the machine, and measures the resources that programs use during a run. */
import { readdirSync, readFileSync } from 'node:fs'
import { arch, cpus, platform, release, totalmem } from 'node:os'
import { clockMs } from '@sealpost/sdk'

/** The machine and commit of measurements. */
export interface Machine {
  readonly cores: number
  readonly cpu: string
  readonly memoryGb: number
  readonly system: string
  readonly bun: string
  /** The commit; null outside a checkout. */
  readonly gitSha: string | null
  readonly date: string
}

export function thisMachine(): Machine {
  const revision = Bun.spawnSync(['git', 'rev-parse', '--short=12', 'HEAD'], {
    cwd: import.meta.dirname,
    stderr: 'ignore',
  })
  return {
    cores: cpus().length,
    cpu: cpus()[0]?.model.trim() || 'unknown',
    memoryGb: Math.round(totalmem() / 2 ** 30),
    system: `${platform()} ${release().split('-')[0]} ${arch()}`,
    bun: Bun.version,
    gitSha: revision.success ? revision.stdout.toString().trim() : null,
    date: new Date().toISOString().slice(0, 10),
  }
}

export interface WatchedPrograms {
  readonly brokers: readonly { readonly pid: number | null }[]
  readonly postmasterPids: readonly number[]
}

/** A program's CPU and memory use, where known. */
export interface ProcessUsage {
  readonly cpuSeconds: number | null
  readonly rssMbPeak: number | null
  readonly fdMax: number | null
}

export interface ResourceUsage {
  /** One item per broker, in the target's order. */
  readonly brokers: readonly ProcessUsage[]
  readonly postgres: ProcessUsage
  /** The average number of busy cores, also of other programs. */
  readonly machineCoresBusy: number | null
  readonly series: readonly UsageSample[]
}

/** A sample every two seconds, with the highest values of any broker. */
export interface UsageSample {
  readonly seconds: number
  readonly brokerFd: number | null
  readonly brokerRssMb: number | null
}

const SAMPLE_MS = 250
const RECORD_MS = 2_000

/** Measures four times a second, for samples every two seconds. */
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

/** Measures a program's memory growth since the start. */
export class MemoryGrowth {
  readonly #rssMb: () => number
  readonly #startMb: number
  readonly #timer: ReturnType<typeof setInterval>
  #peakMb: number

  /** @param pid - null if unknown, which counts as no growth */
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

/**
 * A running program's CPU, memory and descriptors, from /proc; elsewhere, `ps` provides only CPU and memory. Null below
 * if the program has ended or another account owns it.
 */
export interface ProcessFacts {
  readonly cpuSeconds: number
  readonly rssMb: number
  /** Null if unknown. */
  readonly descriptors: number | null
}

/** The ticks per second in /proc/…/stat, 100 wherever Bun runs on Linux. */
const TICKS = 100
const isLinux = process.platform === 'linux'

export function processFacts(pid: number): ProcessFacts | null {
  if (!isLinux) return factsFromPs(pid)
  const stat = statOf(pid)
  const kilobytes = memoryOf(pid)
  if (!stat || !kilobytes) return null
  return { cpuSeconds: stat.ownTicks / TICKS, rssMb: kilobytes.rss / 1024, descriptors: descriptorsOf(pid) }
}

/** Returns the program's peak memory use. */
export function peakRssMb(pid: number): number | null {
  const kilobytes = isLinux ? memoryOf(pid) : null
  return kilobytes && kilobytes.peak / 1024
}

/** Measures a Postgres server as one program with all backends, even exited ones. Counts shared memory once. */
export function postgresFacts(postmaster: number): ProcessFacts | null {
  if (!isLinux) return factsFromPs(postmaster)
  const own = statOf(postmaster)
  if (!own) return null
  let ticks = own.ownTicks + own.endedChildrenTicks
  let privateKb = 0
  let sharedKb = 0
  for (const pid of [postmaster, ...childrenOf(postmaster)]) {
    if (pid !== postmaster) ticks += statOf(pid)?.ownTicks ?? 0
    const memory = memoryOf(pid)
    privateKb += memory?.private ?? 0
    sharedKb = Math.max(sharedKb, memory?.shared ?? 0)
  }
  return { cpuSeconds: ticks / TICKS, rssMb: (privateKb + sharedKb) / 1024, descriptors: null }
}

/** Returns a backend's parent, if that is a Postgres server on this machine. */
export function postmasterOf(backendPid: number): number | null {
  const parent = isLinux ? statOf(backendPid) : null
  return parent && statOf(parent.parentPid)?.name.startsWith('postgres') ? parent.parentPid : null
}

/** Returns the busy seconds of all cores since the machine started. */
export function machineBusySeconds(): number | null {
  const [, ...ticks] = text('/proc/stat')?.split('\n', 1)[0]?.trim().split(/\s+/) ?? []
  if (ticks.length < 8) return null
  const [user, nice, system, , , irq, softIrq] = ticks.map(Number)
  return (user! + nice! + system! + irq! + softIrq!) / TICKS
}

function statOf(pid: number) {
  const stat = text(`/proc/${pid}/stat`)
  if (!stat) return null
  const nameEnd = stat.lastIndexOf(')') // a name may contain spaces and parentheses, so start after the last
  const fields = stat.slice(nameEnd + 2).split(' ')
  const ticks = (at: number) => Number(fields[at])
  return {
    name: stat.slice(stat.indexOf('(') + 1, nameEnd),
    parentPid: Number(fields[1]),
    ownTicks: ticks(11) + ticks(12),
    endedChildrenTicks: ticks(13) + ticks(14),
  }
}

function memoryOf(pid: number) {
  const status = text(`/proc/${pid}/status`)
  if (!status?.includes('VmRSS')) return null
  const kilobytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0)
  return {
    rss: kilobytes('VmRSS'),
    peak: kilobytes('VmHWM'),
    private: kilobytes('RssAnon'),
    shared: kilobytes('RssFile') + kilobytes('RssShmem'),
  }
}

function childrenOf(pid: number): number[] {
  const listed = text(`/proc/${pid}/task/${pid}/children`)
  if (listed !== null) return listed.trim().split(' ').filter(Boolean).map(Number)
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.map(Number).filter((child) => statOf(child)?.parentPid === pid)
}

function descriptorsOf(pid: number): number | null {
  try {
    return readdirSync(`/proc/${pid}/fd`).length
  } catch {
    return null // another account owns the program
  }
}

function text(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null // the program has exited, or this system has no such file
  }
}

function factsFromPs(pid: number): ProcessFacts | null {
  const listed = Bun.spawnSync(['ps', '-o', 'rss=,time=', '-p', String(pid)], { stderr: 'ignore' })
  const [rss, time] = listed.stdout.toString().trim().split(/\s+/)
  if (!listed.success || !rss || !time) return null
  const cpuSeconds = time.split(/[:-]/).reduce((total, part) => total * 60 + Number(part), 0)
  return { cpuSeconds, rssMb: Number(rss) / 1024, descriptors: null }
}
