/** The whole run: what can be mixed on one stage, and then the others, each on its own. */

import { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { type Budget, budgetOf, minutesText } from './budget.ts'
import type { Measure, TortureClusterOptions } from './cluster/stage.ts'
import { skippedLine, type VerdictLine } from './judgement/verdict.ts'
import type { TortureOptions } from './options.ts'
import { NO_TIME, type RunOptions, runScenarios } from './run.ts'
import type { TortureScenario } from './scenario.ts'
import { SCENARIOS } from './scenarios.ts'

export interface Torture extends Omit<TortureOptions, 'seed' | 'list' | 'json'> {
  readonly seed: number
  readonly tell: (step: string) => void
}

/** @returns a line for each scenario that was asked for, in the order of `SCENARIOS` */
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

/** The same, with the time in front of each step. */
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

/** The stage of most scenarios: two brokers, two programs of peers for each of them, two meshes. */
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
