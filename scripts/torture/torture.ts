/** The whole run: what can be mixed on one stage, and then the others, each on its own. */
import { Teardown } from '../lib/teardown.ts'
import type { TortureOptions } from './options.ts'
import { type RunOptions, runScenarios } from './run.ts'
import type { Scenario } from './scenario.ts'
import { SCENARIOS } from './scenarios.ts'
import type { Measure, StageSetting } from './stage.ts'
import { type Line, skippedLine } from './verdict.ts'

export interface Torture extends Omit<TortureOptions, 'seed' | 'list' | 'json'> {
  readonly seed: number
  readonly tell: (step: string) => void
}

/** One that has a Postgres of its own is broken again and again for no longer. */
const ALONE_MINUTES_MAX = 0.5

/** @returns a line for each scenario that was asked for, in the order of `SCENARIOS` */
export async function torture(options: Torture, teardown: Teardown): Promise<Line[]> {
  const asked = SCENARIOS.filter(({ name }) => options.scenario.length === 0 || options.scenario.includes(name))
  const lines: Line[] = []
  const can = asked.filter(({ name, obstacle }) => {
    const reason = obstacle?.() ?? null
    if (reason !== null) lines.push(skippedLine(name, reason))
    return reason === null
  })
  const mixed = can.filter(({ alone }) => !alone)
  if (mixed.length > 0) lines.push(...(await runOn(mixed, options, options.minutes, teardown)))
  for (const scenario of can.filter(({ alone }) => alone))
    lines.push(...(await runOn([scenario], options, Math.min(options.minutes, ALONE_MINUTES_MAX), teardown)))
  return asked.map(({ name }) => lines.find(({ scenario }) => scenario === name)!)
}

async function runOn(
  scenarios: readonly Scenario[],
  { seed, measure, rate, recoverWithin, tell }: Torture,
  minutes: number,
  teardown: Teardown,
): Promise<Line[]> {
  const recoveryMs = recoverWithin === 0 ? null : recoverWithin * 1000
  const own = new Teardown()
  const end = teardown.add({ end: () => own.run(), kill: () => own.kill() })
  const special = scenarios.length === 1 ? scenarios[0]!.alone?.(measure) : undefined
  if (special?.end) own.add({ end: special.end })
  try {
    const setting = { ...settingOf(scenarios, measure, { rate, seed }), ...special?.setting, place: special?.place }
    const options: RunOptions = { seed, measure, minutes: measure === 'short' ? 0 : minutes, recoveryMs, tell }
    return await runScenarios(scenarios, setting, options, own)
  } finally {
    await end()
  }
}

/** The stage of most scenarios: two brokers, two programs of peers for each of them, two meshes. */
function settingOf(
  scenarios: readonly Scenario[],
  measure: Measure,
  { rate, seed }: { rate: number; seed: number },
): StageSetting {
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
