/**
 * Runs the load test: many peers, each with the real SDK and its own WebSocket, send each other sealed messages through
 * a broker and Postgres. Every message is opened, compared with the original, and matched with its sender's ack by the
 * envelope id.
 * bun scripts/load-test.ts [peers=100] [messages=1000]      --help lists the options
 *
 * Unless both exist already, the test starts Postgres and a broker, and ends them. The folders contain the parts:
 * `environment/` (what the peers connect to), `generators/` (programs that run the peers), `run/` (one run and its
 * verdict), `soak/`, `scenarios/`, `rivals/` (other servers to compare with), `report/`.
 */

import { generateMesh } from '@sealpost/harness/members/mesh'
import { isColored, runCommand } from '@sealpost/harness/programs/command'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { type LoadOptions, readArguments, shapesOf } from './command/arguments.ts'
import { openDisplay } from './command/progress.ts'
import { openEnvironment, openYardstick, YARDSTICK_NAMES } from './environment/environment.ts'
import { type Plan, planOf } from './generators/plan.ts'
import { type Report, writeReport } from './report/page.ts'
import { loadChapter, printReport, printSweep } from './report/report.ts'
import { runComparison } from './rivals/comparison.ts'
import { printGroup, runGroup } from './run/group.ts'
import { printIdle, runIdle } from './run/idle.ts'
import { isClean, type LoadOutcome, type LoadResult, withBaseline } from './run/result.ts'
import { type RunContext, runOnce, runPlan } from './run/run.ts'
import type { SpanLatencies } from './run/verdict.ts'
import { runScenarios } from './scenarios/run.ts'
import { isSteady, runSoak } from './soak/soak.ts'
import { printSoak } from './soak/soak-report.ts'

/** The span of the page's latencies. */
const SPAN_MS = 1000

const options = readArguments(process.argv.slice(2), process.env)
if (typeof options === 'number') process.exit(options)
const paint = { isColored: isColored() }
await runCommand((teardown) =>
  loadTest(options, teardown).catch((error) => {
    if (!teardown.isRunning) process.stderr.write('\n') // ends the progress line
    throw error
  }),
)

async function loadTest(options: LoadOptions, teardown: Teardown): Promise<number> {
  const display = openDisplay()
  const { comparison, scenarios } = options
  const around = { options, display, ...paint }
  if (comparison) return writeReport(await runComparison(comparison, around, teardown), options)
  if (scenarios.length > 0) return writeReport(await runScenarios(scenarios, around, teardown), options)
  const tell = (step: string) => display.step(step)
  const plans = shapesOf(options).map((shape) => planFrom(shape, options))
  // Run baselines first: a Postgres that cleans up would slow them and improve the ratio.
  const baselines: LoadOutcome[] = []
  if (options.against) for (const plan of plans) baselines.push(await runBaseline(plan, { options, display }, teardown))
  const target = await openEnvironment(
    { ...options, ...options.spread, backlog: options.soak?.backlog ?? 0, tell },
    teardown,
  )
  const report = await reportOf(plans, baselines, { target, options, display }, teardown)
  return writeReport(report, options)
}

function planFrom({ peers, messages }: { peers: number; messages: number }, options: LoadOptions): Plan {
  const { rate, seconds, spread } = options
  return planOf({ peers, total: rate === null ? peers * messages : rate * seconds, rate, spread })
}

type LoadContext = RunContext & { readonly options: LoadOptions }

async function reportOf(
  plans: readonly Plan[],
  baselines: readonly LoadOutcome[],
  context: LoadContext,
  teardown: Teardown,
): Promise<Report> {
  const { options } = context
  const [plan] = plans as [Plan]
  if (options.idle !== null) {
    const result = await runIdle(context, plan, teardown)
    return { text: printIdle(result, paint), json: result, isGood: true, page: null }
  }
  if (options.group !== null) {
    const result = await runGroup(context, plan, teardown)
    return { text: printGroup(result, paint), json: result, isGood: true, page: null }
  }
  if (options.soak) {
    const { result, spans, figures } = await runSoak(context, { soak: options.soak, plan }, teardown)
    const text = `${printReport(result, paint)}\n${printSoak(figures, paint)}`
    const isGood = isClean(result) && isSteady(figures)
    return { text, json: { ...result, soak: figures }, isGood, page: pageOf([{ result, spans }]) }
  }
  const runs: Run[] = []
  for (const [i, each] of plans.entries()) {
    const { result, spans } = await runPlan(
      context,
      { plan: each, ...(options.htmlFile && { spanMs: SPAN_MS }) },
      teardown,
    )
    runs.push({ result: baselines[i] ? withBaseline(result, baselines[i], options.against!) : result, spans })
  }
  const results = runs.map(({ result }) => result)
  const around = { isGood: results.every(isClean), page: pageOf(runs) }
  if (options.isSweep) return { text: printSweep(results, paint), json: { sweep: results }, ...around }
  return { text: printReport(results[0]!, paint), json: results[0]!, ...around }
}

interface Run {
  readonly result: LoadResult
  readonly spans: readonly SpanLatencies[]
}

function pageOf(runs: readonly Run[]): Report['page'] {
  return { chapters: runs.map(({ result, spans }) => loadChapter(result, spans)), conditions: runs[0]!.result }
}

async function runBaseline(
  plan: Plan,
  { options, display }: Pick<LoadContext, 'options' | 'display'>,
  teardown: Teardown,
): Promise<LoadOutcome> {
  const against = options.against!
  display.step(`baseline: the same client against ${YARDSTICK_NAMES[against]}`)
  const mesh = await generateMesh(plan.peers)
  const { databaseUrl, runtimeArgs } = options
  const tell = (step: string) => display.step(step)
  const target = await openYardstick({ against, mesh, runtimeArgs, databaseUrl, tell }, teardown)
  const outcome = await runOnce({ plan, meshes: [mesh], target, options, display }, teardown)
  await target.stop()
  return outcome
}
