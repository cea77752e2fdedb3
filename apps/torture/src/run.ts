/** Runs scenarios on a stage: traffic, fault after fault, a quiet end, and the judgement. */

import { peakRssMb } from '@sealpost/harness/programs/process-facts'
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
  /** One line for `--list`. */
  readonly summary: string
  /** It can't share its Postgres and brokers with others, and what it needs of its own. Without it: it is mixed. */
  readonly alone?: (measure: Measure) => Alone | Promise<Alone>
  /** It needs these many peers that are silent until it calls them, in a short and in a full run. */
  readonly crowd?: { readonly short: number; readonly full: number }
  /** Why it can't be done on this machine; null: it can. */
  readonly obstacle?: () => string | null
  /** One round. */
  strike(stage: TortureCluster, fault: Fault): Promise<void>
}

export interface Alone {
  readonly setting?: Partial<TortureClusterOptions>
  /** A path that its strikes need. */
  readonly place?: string
  /** Takes away what was made for it. */
  readonly end?: () => Promise<unknown>
}

/** What the scenario tells of its fault. */
export interface Fault {
  /** From now on it is broken, for these programs of peers or for all. */
  begins(programs?: readonly number[]): void
  /** From now on it is not. */
  ends(): void
}

/** The fault fell into nothing: a run with it would show nothing. */
export function missed(sentence: string): OperatingError {
  return new OperatingError('fault_missed', sentence)
}

export interface RunOptions {
  readonly seed: number
  readonly measure: Measure
  /** No fault begins after it, and a scenario that had no turn is skipped; null: each comes once, however long it takes. */
  readonly endMs: number | null
  readonly recoveryMs: number | null
  readonly tell: (step: string) => void
}

export const NO_TIME = 'no time was left for it: give more --minutes'
const PROGRESS_EVERY_MS = 10_000

/** Says every ten seconds how far the messages are. */
async function withProgress<T>(
  stage: TortureCluster,
  phase: string,
  tell: (step: string) => void,
  work: () => Promise<T>,
) {
  const show = () => {
    const { acked, pending } = stage.population.progress
    tell(`${phase}: ${count(acked)} messages acked, ${count(pending)} not yet`)
  }
  const timer = setInterval(show, PROGRESS_EVERY_MS)
  return work().finally(() => clearInterval(timer))
}

/** Between two faults, and before the first. */
const CALM_ACKS = { short: 100, full: 500 } as const

/** On one stage, in an order that the seed chooses. */
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
      const sentence = await strike(scenario, stage, journal)
      if (sentence !== null) missed.set(scenario.name, sentence)
      await journal.recovered()
      await stage.acks(CALM_ACKS[measure])
    }
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    faults.push(error.message) // what is there is judged all the same
  }
  journal.close()
  if (struck.size === 0) struck.add(scenarios[0]!.name) // what went wrong before the first fault is said of it
  return { noticed: { faults, missed, brokerRssMb: null }, struck }
}

interface Played {
  readonly noticed: Noticed
  /** The scenarios that had a turn. */
  readonly struck: ReadonlySet<string>
}

/** Each once, in a drawn order; then drawn ones. The first has its turn in any case, the others until the time is over. */
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

/** @returns why it hit nothing, or null */
async function strike(scenario: TortureScenario, stage: TortureCluster, journal: Faults): Promise<string | null> {
  try {
    await scenario.strike(stage, journal.of(scenario.name))
    return null
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    if (error.code === 'fault_missed') return error.message
    throw new OperatingError(error.code, `During ${scenario.name}: ${error.message}`, { cause: error })
  }
}

/** Writes the faults down, so that what follows can be told from what they caused. */
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

  /** Someone whom the last fault had reached has an ack again. */
  async recovered(): Promise<void> {
    const { population } = this.#stage
    await this.#stage.until('those whom the fault had reached are served again', () =>
      this.#programs.some((program, i) => population.progressOf(program).acked > this.#ackedBefore[i]!),
    )
  }
}
