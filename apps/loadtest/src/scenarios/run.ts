/** Runs the chosen scenarios in sequence, each with its own broker. */

import { ResourceMonitor } from '@sealpost/harness/programs/machine'
import { Teardown } from '@sealpost/harness/programs/teardown'
import { type Colors, checkMark, factList, sum, tableText } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import { openEnvironment } from '../environment/environment.ts'
import type { Report } from '../report/page.ts'
import { conditionsOf, type RunConditions, wasLimit } from '../run/result.ts'
import type { RunContext, WorkloadOptions } from '../run/run.ts'
import {
  BROKER_MEMORY,
  type Check,
  type Findings,
  isGood,
  isJudged,
  machineFact,
  type Scenario,
  usageGraphs,
  usageSheet,
} from './scenario.ts'
import {
  countedChecks,
  countedSheet,
  StatementCounts,
  statementChecks,
  statementFacts,
  statementTimes,
} from './statements.ts'

export interface ScenarioResult extends Findings, RunConditions {
  readonly scenario: string
  readonly summary: string
  readonly reported: string | null
  readonly bar: string
  /** Whether the scenario was smaller and shorter. */
  readonly isShort: boolean
  /** Whether a generator limited the run, so that the broker may be faster. */
  readonly generatorWasLimit: boolean
  readonly isGood: boolean
  readonly seconds: number
}

export interface ScenarioReport extends Report {
  readonly json: { readonly scenarios: readonly ScenarioResult[] }
}

export async function runScenarios(
  scenarios: readonly Scenario[],
  { options, display, isColored }: Pick<RunContext, 'options' | 'display'> & { isColored: boolean },
  teardown: Teardown,
): Promise<ScenarioReport> {
  const paint = createColors(isColored)
  const results: ScenarioResult[] = []
  let text = ''
  for (const scenario of scenarios) {
    display.step(`scenario ${scenario.name}`)
    const result = await runScenario(scenario, { options, display }, teardown).catch((error) => {
      if (teardown.isRunning) throw error // the interruption may be the cause
      return brokenOff(scenario, error, options)
    })
    results.push(result)
    text += printFindings(scenario, result, paint)
  }
  if (results.length > 1) text += printSummary(results, paint)
  const conditions = results.find(({ seconds }) => seconds > 0) ?? results[0]!
  const chapters = results.map((result) => ({ ...result, title: result.scenario }))
  return { text, json: { scenarios: results }, isGood: results.every(isGood), page: { chapters, conditions } }
}

/** Returns a report with a scenario's error, so that others still run. */
function brokenOff(scenario: Scenario, error: unknown, options: WorkloadOptions): ScenarioResult {
  const { name, summary, reported, bar } = scenario
  const why = error instanceof OperatingError ? error.message : String((error as Error).stack)
  const shown = 'aborted'
  return {
    ...{ scenario: name, summary, reported, bar, isShort: options.isQuick, generatorWasLimit: false, isGood: false },
    ...{ headline: shown, shown, sheets: [], facts: [], graphs: [], figures: { generatorShare: 0 }, seconds: 0 },
    checks: [{ about: 'mail', isMet: false, sentence: `The scenario was aborted: ${why}` }],
    ...{ postgresVersion: 'unknown', durability: { fsync: 'unknown', synchronousCommit: 'unknown' } },
    ...{ gitSha: 'unknown', limits: options.limits },
  }
}

async function runScenario(
  scenario: Scenario,
  { options, display }: Pick<RunContext, 'options' | 'display'>,
  teardown: Teardown,
): Promise<ScenarioResult> {
  const own = new Teardown()
  const end = teardown.add({ end: () => own.run(), kill: () => own.kill() })
  const tell = (step: string) => display.step(step)
  try {
    const target = await openEnvironment({ ...options, ...options.spread, tell, isCounting: true }, own)
    return await measure(scenario, { target, options, display }, own)
  } finally {
    if (!teardown.isRunning) await end()
  }
}

async function measure(scenario: Scenario, context: RunContext, own: Teardown): Promise<ScenarioResult> {
  const { target, options } = context
  const statements = await StatementCounts.begin(target)
  const startMs = performance.now()
  const monitor = new ResourceMonitor({ brokers: target.shards, postmasterPids: target.postmasterPids })
  const found = await scenario.run(context, own).catch((error) => {
    monitor.stop()
    throw error
  })
  const seconds = (performance.now() - startMs) / 1000
  const usage = monitor.stop()
  const times = await statementTimes(target.shards[0]!.adminUrl)
  const counted = await statements.end()
  const isCounted = counted !== null && counted.length > 0
  // A scenario may have its own memory graph.
  const hasUsage = found.graphs.some(({ title }) => title === BROKER_MEMORY)
  const whole: Findings = {
    ...found,
    facts: [...found.facts, machineFact(usage), ...(isCounted ? statementFacts(times) : [])],
    sheets: [
      ...found.sheets,
      ...(hasUsage ? [] : [usageSheet(usage, seconds)]),
      ...(isCounted ? [countedSheet(counted)] : []),
    ],
    graphs: [...found.graphs, ...(hasUsage ? [] : usageGraphs(usage.series))],
    // The broker's times include its waits, so judge them only without the server's.
    checks: [...found.checks, ...(isCounted ? countedChecks(counted) : statementChecks(times))],
    figures: { ...found.figures, ...times },
    isBarJudged: found.isBarJudged ?? found.checks.every(isJudged),
  }
  const { name, summary, reported, bar } = scenario
  const generatorWasLimit = wasLimit(whole.figures.generatorShare)
  const marks = { isGood: isGood(whole), isShort: options.isQuick, generatorWasLimit }
  return { scenario: name, summary, reported, bar, ...marks, ...whole, seconds, ...conditionsOf(target) }
}

function printFindings(scenario: Scenario, findings: Findings, paint: Colors): string {
  const { headline, sheets, facts, checks } = findings
  const mark = checkMark(isGood(findings))
  const title = `${isGood(findings) ? paint.green(mark) : paint.red(mark)} ${paint.bold(scenario.name)}`
  const own = scenario.reported ? [...facts, ['reported', `${scenario.reported}, another system`] as const] : facts
  const parts = [
    `  ${title}   ${paint.bold(headline)}\n  ${paint.dim(scenario.summary)}`,
    ...sheets.map(({ head, rows }) => tableText(head, rows, paint)),
    factList(own, paint),
    checks.map((check) => checkLine(check, paint)).join('\n'),
  ]
  return `\n${parts.filter(Boolean).join('\n\n')}\n`
}

function checkLine(check: Check, paint: Colors): string {
  const { isMet, sentence } = check
  if (!isJudged(check)) return `  ${paint.dim(`– ${sentence}`)}`
  return isMet ? `  ${paint.green('✔')} ${sentence}` : `  ${paint.red(`✘ ${sentence}`)}`
}

/** Prints the scenarios as a table: figure, requirement and published figure. */
function printSummary(results: readonly ScenarioResult[], paint: Colors): string {
  const rows = results.map((result) => {
    const { scenario, shown, bar, reported, isBarJudged = true } = result
    const held = isBarJudged ? paint.green('✔ held') : paint.dim('– not judged')
    const verdict = result.isGood ? held : paint.red('✘ not held')
    return [scenario, shown, bar, reported ?? '–', `${verdict}${result.generatorWasLimit ? ' *' : ''}`]
  })
  const table = tableText(['scenario', 'measured', 'bar', 'published report', ''], rows, paint)
  const seconds = Math.round(sum(results.map((result) => result.seconds)))
  const lines = [`  ${results.length} scenarios in ${seconds} s, not counting the starts of broker and database`]
  if (results.some(({ isShort }) => isShort))
    lines.push('  short form (--quick): smaller and shorter than the full workload')
  if (results.some(({ isBarJudged = true }) => !isBarJudged))
    lines.push('  – not judged: the run is too small for this limit; it was only checked that all messages arrived')
  if (results.some(({ generatorWasLimit }) => generatorWasLimit))
    lines.push('  * the load generator was the limit: the broker may be faster')
  return `\n${table}\n\n${lines.map((line) => paint.dim(line)).join('\n')}\n`
}
