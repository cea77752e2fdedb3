/** Runs the mixed scenarios on one stage, then each other on its own. */
import { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { Measure, TortureClusterOptions } from './cluster/stage.ts'
import { skippedLine, type VerdictLine } from './judgement/verdict.ts'
import { NO_TIME, type RunOptions, runScenarios, type TortureScenario } from './run.ts'
import { clockBroker, clockDatabase, diskFull } from './scenarios/machines.ts'
import { answerLost, halfOpen, networkCut, networkDelay } from './scenarios/networks.ts'
import { mailBomb, neverReading, peerStop, poison, slowConsumer, sockets } from './scenarios/peers.ts'
import { powerLoss, storePowerLoss } from './scenarios/power.ts'
import {
  backendStop,
  brokerKill,
  brokerStop,
  herd,
  postgresImmediate,
  postgresKill,
  postgresRestart,
  rollingDeploy,
  terminateStorm,
} from './scenarios/servers.ts'

export const SCENARIOS: readonly TortureScenario[] = [
  brokerKill,
  brokerStop,
  rollingDeploy,
  herd,
  postgresKill,
  postgresImmediate,
  postgresRestart,
  backendStop,
  terminateStorm,
  networkCut,
  networkDelay,
  halfOpen,
  answerLost,
  peerStop,
  slowConsumer,
  neverReading,
  mailBomb,
  poison,
  diskFull,
  powerLoss,
  storePowerLoss,
  clockBroker,
  clockDatabase,
  sockets,
]

export interface TortureOptions {
  readonly minutes: number
  readonly scenario: readonly string[]
  readonly measure: Measure
  readonly rate: number
  /** The time limit in seconds; 0 for none. */
  readonly recoverWithin: number
}

interface Torture extends TortureOptions {
  readonly seed: number
  readonly tell: (step: string) => void
}

/** Runs the torture test. @returns a line per scenario, in the order of `SCENARIOS` */
export async function torture(options: Torture, teardown: Teardown): Promise<VerdictLine[]> {
  const asked = SCENARIOS.filter(({ name }) => options.scenario.length === 0 || options.scenario.includes(name))
  const lines: VerdictLine[] = []
  const can = asked.filter(({ name, obstacle }) => {
    const reason = obstacle?.() ?? null
    if (reason !== null) lines.push(skippedLine(name, reason))
    return reason === null
  })
  const [mixed, alone] = [can.filter((one) => !one.alone), can.filter((one) => one.alone)]
  const totalMs = options.measure === 'short' ? null : options.minutes * 60_000
  const run = timed(options, totalMs)
  const budget = totalMs === null ? null : budgetOf(totalMs, alone.length)
  run.tell(`seed ${options.seed}: ${mixed.length} kinds of faults mixed, then ${alone.length} alone`)
  const part = async (scenarios: readonly TortureScenario[], place: Parameters<Budget['partEndMs']>[0]) => {
    const endMs = budget?.partEndMs(place) ?? null
    if (place.isAlone && endMs !== null && !budget!.hasRoom(endMs))
      return scenarios.map(({ name }) => skippedLine(name, NO_TIME))
    run.tell(
      `starting Postgres, brokers and peers for ${scenarios.length === 1 ? scenarios[0]!.name : 'the mixed faults'}`,
    )
    return runOn(scenarios, run, endMs === null ? null : budget!.faultsEndMs(endMs), teardown)
  }
  if (mixed.length > 0) lines.push(...(await part(mixed, { isAlone: false, aloneAfter: alone.length })))
  for (const [i, scenario] of alone.entries())
    lines.push(...(await part([scenario], { isAlone: true, aloneAfter: alone.length - i - 1 })))
  return asked.map(({ name }) => lines.find(({ scenario }) => scenario === name)!)
}

/** Prefixes each step with the elapsed time. */
function timed(options: Torture, totalMs: number | null): Torture {
  const startedMs = clockMs()
  const total = totalMs === null ? '' : ` of ${minutesText(totalMs)}`
  return { ...options, tell: (step) => options.tell(`${minutesText(clockMs() - startedMs)}${total}  ${step}`) }
}

async function runOn(
  scenarios: readonly TortureScenario[],
  { seed, measure, rate, recoverWithin, tell }: Torture,
  endMs: number | null,
  teardown: Teardown,
): Promise<VerdictLine[]> {
  const recoveryMs = recoverWithin === 0 ? null : recoverWithin * 1000
  const own = new Teardown()
  const end = teardown.add({ end: () => own.run(), kill: () => own.kill() })
  const special = scenarios.length === 1 ? await scenarios[0]!.alone?.(measure) : undefined
  if (special?.end) own.add({ end: special.end })
  try {
    const setting = { ...settingOf(scenarios, measure, { rate, seed }), ...special?.setting, place: special?.place }
    const options: RunOptions = { seed, measure, endMs, recoveryMs, tell }
    return await runScenarios(scenarios, setting, options, own)
  } finally {
    await end()
  }
}

/** The stage of most scenarios: two brokers, programs of peers for each, and two meshes. */
function settingOf(
  scenarios: readonly TortureScenario[],
  measure: Measure,
  { rate, seed }: { rate: number; seed: number },
): TortureClusterOptions {
  const crowd = Math.max(0, ...scenarios.map((scenario) => scenario.crowd?.[measure] ?? 0))
  const cast = { peers: measure === 'short' ? 6 : 10, isWriting: true, sleepers: 1 }
  const silent = crowd > 0 ? [{ peers: crowd, isWriting: false, sleepers: 0 }] : []
  const programs = measure === 'short' ? 2 : 4
  return {
    brokers: 2,
    env: {},
    postgres: {},
    casts: [...Array.from({ length: programs }, () => cast), ...silent],
    meshes: 2,
    rate: measure === 'short' ? Math.min(rate, 300) : rate,
    bodyBytes: 200,
    seed,
  }
}

/** The maximum time of a scenario with its own Postgres. */
const ALONE_MS_MAX = 60_000
/** These scenarios' share of the total time. */
const ALONE_SHARE = 0.4
/** The minimum time of a part, with start, fault and check. */
const PART_MS_MIN = 10_000
/** The share of a part's time for the drain and the check. */
const REST_SHARE = 0.15

/** Divides a run's time among its parts. */
interface Budget {
  /** Returns when a part that begins now must end. `aloneAfter`: the number of later parts. */
  partEndMs(part: { readonly isAlone: boolean; readonly aloneAfter: number }): number
  /** Returns whether a part that must end at `endMs` can begin. */
  hasRoom(endMs: number): boolean
  /** Returns when a part's last fault may begin. */
  faultsEndMs(endMs: number): number
}

/** Returns a run's budget. @param now - the clock, which tests replace */
export function budgetOf(totalMs: number, aloneCount: number, now: () => number = clockMs): Budget {
  const endMs = now() + totalMs
  const aloneMs = Math.min(ALONE_MS_MAX, (ALONE_SHARE * totalMs) / Math.max(1, aloneCount))
  return {
    partEndMs: ({ isAlone, aloneAfter }) => {
      if (!isAlone) return endMs - aloneCount * aloneMs
      // The remaining time, including what earlier parts saved or overran, is split among the remaining parts.
      return now() + Math.min(ALONE_MS_MAX, (endMs - now()) / (aloneAfter + 1))
    },
    hasRoom: (partEndMs) => partEndMs - now() >= PART_MS_MIN,
    faultsEndMs: (partEndMs) => partEndMs - REST_SHARE * (partEndMs - now()),
  }
}

export function minutesText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
}
