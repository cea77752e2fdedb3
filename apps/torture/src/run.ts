/** Runs scenarios on a stage: traffic, faults one by one, and a verdict. */

import { peakRssMb } from '@sealpost/harness/programs/machine'
import type { TcpProxy } from '@sealpost/harness/programs/proxy'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { OperatingError, seededRandom } from '@sealpost/std'
import { SETTINGS } from './cluster/brokers.ts'
import { type Measure, TortureCluster, type TortureClusterOptions } from './cluster/stage.ts'
import { historyOf, readLedger } from './judgement/ledger.ts'
import { type Bounds, linesOf, type Noticed, skippedLine, type VerdictLine } from './judgement/verdict.ts'

export interface TortureScenario {
  readonly name: string
  /** The scenario's line in `--list`. */
  readonly summary: string
  /** Returns the resources of a scenario that can't share Postgres and brokers. Others run mixed on one stage. */
  readonly alone?: (measure: Measure) => Alone | Promise<Alone>
  /** The number of peers that are silent until needed, by form. */
  readonly crowd?: { readonly short: number; readonly full: number }
  /** Returns why this machine can't run the scenario, or null. */
  readonly obstacle?: () => string | null
  inject(stage: TortureCluster, fault: Fault): Promise<void>
}

interface Alone {
  readonly setting?: Partial<TortureClusterOptions>
  /** A path that `inject` needs. */
  readonly place?: string
  /** Removes what the scenario has created. */
  readonly end?: () => Promise<unknown>
}

/** What a scenario reports about its fault. */
export interface Fault {
  /** Marks the start of the fault, for these programs of peers or all. */
  begins(programs?: readonly number[]): void
  ends(): void
}

/** Returns the error for a fault without effect, whose run proves nothing. */
export const missed = (sentence: string) => new OperatingError('fault_missed', sentence)

const FAULT_MS_MIN = 1500

interface Timed {
  readonly programs?: readonly number[]
  readonly longestMs: number
}

export async function stopProcess(
  stage: TortureCluster,
  fault: Fault,
  { pid, programs, longestMs }: Timed & { readonly pid: number },
): Promise<void> {
  fault.begins(programs)
  process.kill(pid, 'SIGSTOP')
  await Bun.sleep(stage.amount(FAULT_MS_MIN, longestMs))
  process.kill(pid, 'SIGCONT')
  fault.ends()
}

export async function setProxy(
  stage: TortureCluster,
  fault: Fault,
  { proxy, mode, programs, longestMs }: Timed & { readonly proxy: TcpProxy; readonly mode: ProxyMode },
): Promise<void> {
  fault.begins(programs)
  proxy.set(mode)
  await Bun.sleep(stage.amount(FAULT_MS_MIN, longestMs))
  proxy.set({ is: 'up' })
  fault.ends()
}

type ProxyMode = Parameters<TcpProxy['set']>[0]

export interface RunOptions {
  readonly seed: number
  readonly measure: Measure
  /** When the last fault may begin, after which scenarios are skipped. Null gives each a turn. */
  readonly endMs: number | null
  readonly recoveryMs: number | null
  readonly tell: (step: string) => void
}

export const NO_TIME = 'there was no time left: increase --minutes'
const PROGRESS_EVERY_MS = 10_000
/** The number of acks before each fault. */
const CALM_ACKS = { short: 100, full: 500 } as const

/** Runs the scenarios on one stage, in the seed's order. */
export async function runScenarios(
  scenarios: readonly TortureScenario[],
  setting: TortureClusterOptions,
  options: RunOptions,
  teardown: Teardown,
): Promise<VerdictLine[]> {
  const { seed, measure, tell, recoveryMs } = options
  const stage = await TortureCluster.open(setting, { random: seededRandom(seed), measure }, teardown)
  const { noticed, struck } = await withProgress(stage, 'faults', tell, () => play(stage, scenarios, options))
  tell('draining')
  const left = await withProgress(stage, 'draining', tell, () => stage.drain())
  await stage.population.flush()
  const brokerRssMb = Math.max(0, ...stage.brokers.pids.map((pid) => peakRssMb(pid) ?? 0))
  await stage.brokers.stop()
  stage.ledger.flush()
  const faults = [...new Set([...noticed.faults, ...(left ? [left] : []), ...stage.brokers.faults])]
  tell('checking')
  const history = await historyOf(readLedger(stage.ledgerFiles), await stage.postgres.leftovers())
  const bounds: Bounds = { leaseMs: Number({ ...SETTINGS, ...setting.env }.LEASE_MS), recoveryMs }
  const names = scenarios.map(({ name }) => name)
  const judged = linesOf(history, names.filter((name) => struck.has(name)), { ...noticed, faults, brokerRssMb }, bounds) // biome-ignore format: one thing
  return [...judged, ...names.filter((name) => !struck.has(name)).map((name) => skippedLine(name, NO_TIME))]
}

function withProgress<T>(
  { population }: TortureCluster,
  phase: string,
  tell: (step: string) => void,
  work: () => Promise<T>,
): Promise<T> {
  const show = () => {
    const { acked, pending } = population.progress
    tell(`${phase}: ${count(acked)} messages acked, ${count(pending)} pending`)
  }
  const timer = setInterval(show, PROGRESS_EVERY_MS)
  return work().finally(() => clearInterval(timer))
}

interface Played {
  readonly noticed: Noticed
  /** The scenarios that had a turn. */
  readonly struck: ReadonlySet<string>
}

async function play(
  stage: TortureCluster,
  scenarios: readonly TortureScenario[],
  { measure, tell, endMs }: RunOptions,
): Promise<Played> {
  const missed = new Map<string, string>()
  const faults: string[] = []
  const struck = new Set<string>()
  const journal = new Faults(stage)
  try {
    await stage.begin()
    await stage.acks(CALM_ACKS[measure])
    let no = 0
    for (const scenario of turns(stage, scenarios, endMs)) {
      no += 1
      tell(`fault ${no}: ${scenario.name}`)
      struck.add(scenario.name)
      const sentence = await inject(scenario, stage, journal)
      if (sentence !== null) missed.set(scenario.name, sentence)
      await journal.recovered()
      await stage.acks(CALM_ACKS[measure])
    }
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    faults.push(error.message) // judge the events so far
  }
  journal.close()
  if (struck.size === 0) struck.add(scenarios[0]!.name) // earlier failures count for this scenario
  return { noticed: { faults, missed, brokerRssMb: null }, struck }
}

/** Yields each scenario once, then random ones until the end. */
function* turns(
  stage: TortureCluster,
  scenarios: readonly TortureScenario[],
  endMs: number | null,
): Generator<TortureScenario> {
  const waiting = [...scenarios]
  const draw = () => waiting.splice(stage.random.below(waiting.length), 1)[0]!
  yield draw()
  while (endMs === null ? waiting.length > 0 : clockMs() < endMs)
    yield waiting.length > 0 ? draw() : stage.pick(scenarios)
}

/** Injects a fault. @returns why it had no effect, or null */
async function inject(scenario: TortureScenario, stage: TortureCluster, journal: Faults): Promise<string | null> {
  try {
    await scenario.inject(stage, journal.of(scenario.name))
    return null
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    if (error.code === 'fault_missed') return error.message
    throw new OperatingError(error.code, `During ${scenario.name}: ${error.message}`, { cause: error })
  }
}

/** Records the faults in the ledger for the checker. */
class Faults {
  readonly #stage: TortureCluster
  #no = 0
  #isOpen = false
  #programs: readonly number[] = []
  #ackedBefore: number[] = []

  constructor(stage: TortureCluster) {
    this.#stage = stage
  }

  of(scenario: string): Fault {
    const { population, ledger } = this.#stage
    return {
      begins: (programs) => {
        this.close()
        this.#no += 1
        this.#isOpen = true
        this.#programs = programs ?? [...Array(population.programCount).keys()]
        const peers = programs ? population.peersOf(programs) : null
        ledger.write({ atMs: clockMs(), e: 'fault', no: this.#no, scenario, peers })
      },
      ends: () => this.close(),
    }
  }

  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    const { population, ledger } = this.#stage
    this.#ackedBefore = this.#programs.map((program) => population.progressOf(program).acked)
    ledger.write({ atMs: clockMs(), e: 'repaired', no: this.#no })
  }

  /** Resolves with a new ack in a program that the last fault affected. */
  async recovered(): Promise<void> {
    const { population } = this.#stage
    await this.#stage.until('the affected peers are served again', () =>
      this.#programs.some((program, i) => population.progressOf(program).acked > this.#ackedBefore[i]!),
    )
  }
}
