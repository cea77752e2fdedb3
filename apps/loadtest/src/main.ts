/**
 * The load test: many peers, each with the real SDK and a WebSocket of its own, send each other sealed messages through
 * a broker and Postgres. Every message is opened and compared, and joined with its sender's ack by the envelope id.
 *
 *   bun scripts/load-test.ts [peers=100] [messages=1000]      --help tells the rest
 *
 * With nothing running it starts a Postgres and a broker, and ends both. The folders hold the parts:
 * `environment/` (where the peers connect to), `generators/` (programs that are the peers), `run/` (one run and its
 * verdict), `soak/`, `scenarios/`, `report/`.
 */

import { generateMesh } from '@sealpost/harness/members/mesh'
import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { type LoadOptions, readArguments, type SoakOptions, shapesOf } from './command/arguments.ts'
import { YARDSTICK_NAMES, type Yardstick } from './command/command.ts'
import { profileWords } from './command/profile.ts'
import { type Display, openDisplay } from './command/progress.ts'
import { type Environment, openEnvironment } from './environment/environment.ts'
import { openYardstick } from './environment/yardstick.ts'
import { type AgentOptions, serveAgent } from './generators/agent.ts'
import type { Plan } from './generators/plan.ts'
import { compareFiles } from './report/compare.ts'
import { loadChapter } from './report/load-chapter.ts'
import { printReport, printSweep, type ReportOptions } from './report/report.ts'
import { type Report, tell } from './report/tell.ts'
import { printGroup, runGroup } from './run/group.ts'
import { printIdle, runIdle } from './run/idle.ts'
import { isClean, type LoadResult, resultOf, withBaseline } from './run/result.ts'
import { type LoadOutcome, newMeshes, runOnce } from './run/run.ts'
import { runScenarios } from './scenarios/run.ts'
import { isSteady, runSoak } from './soak/soak.ts'
import { printSoak } from './soak/soak-report.ts'

/** A page shows the latency of each second. */
const SPAN_MS = 1000

const teardown = new Teardown()
let exitCode: number | undefined

endOnSignals(teardown)
const options = readArguments(process.argv.slice(2), process.env)
if (typeof options === 'number') process.exit(options)
try {
  const code = await loadTest(options)
  exitCode = code
} catch (error) {
  if (teardown.isRunning) await forever() // interrupted: whatever broke, broke because of that
  process.stderr.write(`\n${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  exitCode = 1
}
await teardown.run()
process.exit(exitCode)

async function loadTest(options: LoadOptions): Promise<number> {
  if (options.agent) return beAgent(options.agent)
  if (options.compared) return compareResults(options.compared)
  const display = openDisplay()
  if (options.scenarios.length > 0)
    return tell(await runScenarios(options, { display, ...paintOf() }, teardown), options)
  const plans = shapesOf(options).map((shape) => planOf(shape, options))
  // First, while nothing else runs: a Postgres that still tidies up would slow the other down and flatter the ratio.
  const baselines = options.against ? await runBaselines(plans, options.against, { options, display }) : []
  const environment = await openEnvironment(
    { ...options, ...options.spread, words: profileWords(options), tell: (step) => display.step(step) },
    teardown,
  )
  const here = { environment, options, display }
  return tell(await reportOf(plans, baselines, here), options)
}

function paintOf(): ReportOptions {
  return { isColored: process.stdout.isTTY === true && !process.env.NO_COLOR }
}

async function compareResults(files: readonly string[]): Promise<number> {
  process.stdout.write(await compareFiles(files, paintOf()))
  return 0
}

async function beAgent(options: AgentOptions): Promise<never> {
  process.stdout.write(await serveAgent(options, teardown))
  return forever()
}

function planOf({ peers, messages }: { peers: number; messages: number }, options: LoadOptions): Plan {
  const { rate, seconds, payloadBytes, seed } = options
  const total = rate === null ? peers * messages : rate * seconds
  return { peers, total, rate, payloadBytes, seed, isOneWay: false, spread: options.spread }
}

interface Here {
  readonly environment: Environment
  readonly options: LoadOptions
  readonly display: Display
}

async function reportOf(plans: Plan[], baselines: LoadOutcome[], here: Here): Promise<Report> {
  const { options } = here
  const paint = paintOf()
  if (options.idle !== null) return reportIdle(plans[0]!, paint, here)
  if (options.group !== null) return reportGroup(plans[0]!, paint, here)
  if (options.soak) return reportSoak(options.soak, plans[0]!, paint, here)
  const runs: Run[] = []
  for (const [i, plan] of plans.entries()) {
    const outcome = await runHere(plan, here)
    const result = resultOf(outcome, here.environment, options)
    const whole = baselines[i] ? withBaseline(result, baselines[i], options.against!) : result
    runs.push({ result: whole, spans: outcome.verdict.spans })
  }
  const results = runs.map(({ result }) => result)
  const isGood = results.every(isClean)
  const page = pageOf(runs)
  if (options.isSweep) return { text: printSweep(results, paint), json: { sweep: results }, isGood, page }
  return { text: printReport(results[0]!, paint), json: results[0]!, isGood, page }
}

interface Run {
  readonly result: LoadResult
  readonly spans: LoadOutcome['verdict']['spans']
}

function pageOf(runs: readonly Run[]): Report['page'] {
  const chapters = runs.map(({ result, spans }) => loadChapter(result, spans))
  return { chapters, surroundings: runs[0]!.result }
}

async function reportIdle(plan: Plan, paint: ReportOptions, { environment, options, display }: Here): Promise<Report> {
  const result = await runIdle({ plan, target: environment, options, display }, teardown)
  return { text: printIdle(result, paint), json: result, isGood: true, page: null }
}

async function reportGroup(plan: Plan, paint: ReportOptions, { environment, options, display }: Here): Promise<Report> {
  const result = await runGroup({ plan, target: environment, options, display }, teardown)
  return { text: printGroup(result, paint), json: result, isGood: true, page: null }
}

async function reportSoak(soak: SoakOptions, plan: Plan, paint: ReportOptions, here: Here): Promise<Report> {
  const { environment, options, display } = here
  const { outcome, figures } = await runSoak({ soak, plan, target: environment, options, display }, teardown)
  const result = resultOf(outcome, environment, options)
  const isGood = isClean(result) && isSteady(figures)
  const text = `${printReport(result, paint)}\n${printSoak(figures, paint)}`
  const page = pageOf([{ result, spans: outcome.verdict.spans }])
  return { text, json: { ...result, soak: figures }, isGood, page }
}

type Surroundings = Pick<Here, 'options' | 'display'>

async function runBaselines(plans: Plan[], against: Yardstick, surroundings: Surroundings): Promise<LoadOutcome[]> {
  const { options, display } = surroundings
  const outcomes: LoadOutcome[] = []
  for (const plan of plans) {
    display.step(`baseline: the same client against ${YARDSTICK_NAMES[against]}`)
    const mesh = await generateMesh(plan.peers)
    const words = profileWords(options)
    const { databaseUrl } = options
    const tell = (step: string) => display.step(step)
    const target = await openYardstick({ against, mesh, words, databaseUrl, tell }, teardown)
    outcomes.push(await runOnce({ plan, meshes: [mesh], target, options, display }, teardown))
    await target.stop()
  }
  return outcomes
}

async function runHere(plan: Plan, { environment, options, display }: Here): Promise<LoadOutcome> {
  const meshes = await newMeshes({ plan, target: environment }, teardown)
  const spans = options.htmlFile ? { spanMs: SPAN_MS } : {}
  return runOnce({ plan, meshes, target: environment, options, display, ...spans }, teardown)
}
