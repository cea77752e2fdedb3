/** Runs the chosen scenarios one after the other, each with a broker of its own, and tells what each found. */

import { ResourceMonitor, type ResourceUsage } from '@sealpost/harness/programs/resource-usage'
import { Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import type { StatementStats } from '@sealpost/store'
import type { LoadOptions } from '../command/arguments.ts'
import { profileWords } from '../command/profile.ts'
import type { Display } from '../command/progress.ts'
import { type Environment, openEnvironment } from '../environment/environment.ts'
import type { Chapter } from '../report/page.ts'
import type { Report } from '../report/tell.ts'
import { wasLimit } from '../run/result.ts'
import { printFindings } from './print.ts'
import { type Findings, isGood, isJudged, type Scenario } from './scenario.ts'
import { drawsUsage, machineFact, usageGraphs, usageSheet } from './spent.ts'
import { countedChecks, countedSheet, StatementCounts } from './statement-counts.ts'
import { type StatementTimes, statementChecks, statementFacts, statementTimes } from './statements.ts'
import { printSummary } from './summary.ts'

/** As it is written as JSON, and read by `--compare`. */
export interface ScenarioResult extends Findings {
  readonly scenario: string
  readonly summary: string
  readonly reported: string | null
  readonly bar: string
  /** It ran smaller and shorter than it is meant to. */
  readonly isShort: boolean
  /** Its figures are true, but the broker may be faster. */
  readonly generatorWasLimit: boolean
  readonly isGood: boolean
  readonly seconds: number
  readonly postgresVersion: string
  readonly durability: Environment['facts']['durability']
  readonly gitSha: string
  readonly limits: 'on' | 'off'
}

export interface ScenarioReport extends Report {
  readonly json: { readonly scenarios: readonly ScenarioResult[] }
}

export async function runScenarios(
  options: LoadOptions,
  { display, isColored }: { display: Display; isColored: boolean },
  teardown: Teardown,
): Promise<ScenarioReport> {
  const results: ScenarioResult[] = []
  let text = ''
  for (const scenario of options.scenarios) {
    display.step(`scenario ${scenario.name}`)
    const result = await runScenario(scenario, { options, display }, teardown).catch((error) => {
      if (teardown.isRunning) throw error // interrupted: whatever broke, broke because of that
      return brokenOff(scenario, error, options)
    })
    results.push(result)
    text += printFindings(scenario, result, { isColored })
  }
  if (results.length > 1) text += printSummary(results, { isColored })
  const surroundings = results.find(({ seconds }) => seconds > 0) ?? results[0]!
  const page = { chapters: results.map(chapterOf), surroundings }
  return { text, json: { scenarios: results }, isGood: results.every((result) => result.isGood), page }
}

/** One that throws has a report, too, which says why, and leaves the others theirs. */
function brokenOff({ name, summary, reported, bar }: Scenario, error: unknown, options: LoadOptions): ScenarioResult {
  const why = error instanceof OperatingError ? error.message : String((error as Error).stack)
  const shown = 'broke off'
  return {
    ...{ scenario: name, summary, reported, bar, isShort: options.isQuick, generatorWasLimit: false, isGood: false },
    ...{ headline: shown, shown, sheets: [], facts: [], graphs: [], figures: { generatorShare: 0 }, seconds: 0 },
    checks: [{ about: 'mail', isMet: false, sentence: `It broke off: ${why}` }],
    ...{ postgresVersion: 'unknown', durability: { fsync: 'unknown', synchronousCommit: 'unknown' } },
    ...{ gitSha: 'unknown', limits: options.limits ?? 'off' },
  }
}

const chapterOf = (result: ScenarioResult): Chapter => ({ ...result, title: result.scenario })

interface Here {
  readonly options: LoadOptions
  readonly display: Display
}

async function runScenario(
  scenario: Scenario,
  { options, display }: Here,
  teardown: Teardown,
): Promise<ScenarioResult> {
  const own = new Teardown()
  const end = teardown.add({ end: () => own.run(), kill: () => own.kill() })
  const words = profileWords(options)
  const tell = (step: string) => display.step(step)
  try {
    return await measure(
      scenario,
      await openEnvironment({ ...options, ...options.spread, words, tell, isCounting: true }, own),
      { options, display },
      own,
    )
  } finally {
    if (!teardown.isRunning) await end()
  }
}

async function measure(
  scenario: Scenario,
  target: Environment,
  { options, display }: Here,
  own: Teardown,
): Promise<ScenarioResult> {
  const before = await StatementCounts.begin(target)
  const startMs = performance.now()
  const watch = new ResourceMonitor({ brokers: target.shards, postmasterPids: target.postmasterPids })
  const found = await scenario.run({ target, options, display }, own).catch((error) => {
    watch.stop()
    throw error
  })
  const seconds = (performance.now() - startMs) / 1000
  const findings = withUsage(found, watch.stop(), seconds)
  const times = await statementTimes(target.shards[0]!.adminUrl)
  const counted = await before.end()
  const { name, summary, reported, bar } = scenario
  const { postgresVersion, durability } = target.facts
  const { gitSha, limits } = target.version
  const around = { seconds, postgresVersion, durability, gitSha, limits }
  const whole = { ...findings, ...withDatabase(findings, { times, counted }) }
  const figures = { ...findings.figures, ...times }
  const marks = {
    isGood: isGood(whole),
    isBarJudged: found.isBarJudged ?? found.checks.every(isJudged),
    isShort: options.isQuick,
    generatorWasLimit: wasLimit(figures.generatorShare),
  }
  return { scenario: name, summary, reported, bar, ...marks, ...whole, figures, ...around }
}

function withUsage(findings: Findings, usage: ResourceUsage, seconds: number): Findings {
  const { sheets, graphs } = findings
  const facts = [...findings.facts, machineFact(usage)]
  if (drawsUsage(graphs)) return { ...findings, facts }
  const drawn = [...graphs, ...usageGraphs(usage.series)]
  return { ...findings, facts, sheets: [...sheets, usageSheet(usage, seconds)], graphs: drawn }
}

/** The server's own time where it counts; else what the broker saw of it, which has the broker's own waits in it. */
function withDatabase(
  { checks, sheets, facts }: Findings,
  { times, counted }: { times: StatementTimes | null; counted: readonly StatementStats[] | null },
): Pick<Findings, 'checks' | 'sheets' | 'facts'> {
  if (!counted || counted.length === 0) return { sheets, facts, checks: [...checks, ...statementChecks(times)] }
  return {
    sheets: [...sheets, countedSheet(counted)],
    facts: [...facts, ...statementFacts(times)],
    checks: [...checks, ...countedChecks(counted)],
  }
}
