/**
 * The load test: many peers, each with the real SDK and a WebSocket of its own, send each other sealed messages through
 * a broker and Postgres. Every message is opened and compared, and joined with its sender's ack by the envelope id.
 *
 *   bun scripts/load-test.ts [peers=100] [messages=1000]      --help tells the rest
 *
 * With nothing running it starts a Postgres and a broker, and ends both. `load/` holds the parts: `environment` (where
 * the peers connect to), `fleet` and `generator` (programs that are the peers), `verdict` (the joining), `report`;
 * `soak`, `idle` and `group` are other runs with the same parts.
 */
import { OperatingError } from '@sealpost/std'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'
import { type AgentOptions, serveAgent } from './load/agent.ts'
import { type LoadOptions, profileWords, readArguments, type SoakOptions, shapesOf } from './load/arguments.ts'
import { YARDSTICK_NAMES, type Yardstick } from './load/command.ts'
import { type Environment, openEnvironment } from './load/environment.ts'
import { printGroup, runGroup } from './load/group.ts'
import { printIdle, runIdle } from './load/idle.ts'
import type { Plan } from './load/plan.ts'
import { type Display, openDisplay } from './load/progress.ts'
import { printReport, printSweep, type ReportOptions } from './load/report.ts'
import { isClean, type LoadResult, resultOf, withBaseline } from './load/result.ts'
import { newMeshes, type Outcome, runOnce } from './load/run.ts'
import { inventMesh } from './load/seed.ts'
import { isSteady, runSoak } from './load/soak.ts'
import { printSoak } from './load/soak-report.ts'
import { openYardstick } from './load/yardstick.ts'

const teardown = new Teardown()
let exitCode: number | undefined

endOnSignals(teardown, () => exitCode)
const options = readArguments(process.argv.slice(2), process.env)
if (typeof options === 'number') process.exit(options)
try {
  const code = await loadTest(options)
  exitCode = code
  if (options.isKept) await forever()
} catch (error) {
  if (teardown.isRunning) await forever() // interrupted: whatever broke, broke because of that
  process.stderr.write(`\n${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  exitCode = 1
}
await teardown.run()
process.exit(exitCode)

async function loadTest(options: LoadOptions): Promise<number> {
  if (options.agent) return beAgent(options.agent)
  const display = openDisplay()
  const plans = shapesOf(options).map((shape) => planOf(shape, options))
  // First, while nothing else runs: a Postgres that still tidies up would slow the other down and flatter the ratio.
  const baselines = options.against ? await runBaselines(plans, options.against, { options, display }) : []
  const environment = await openEnvironment(
    { ...options, ...options.spread, words: profileWords(options), tell: (step) => display.step(step) },
    teardown,
  )
  const here = { environment, options, display }
  const report = await reportOf(plans, baselines, here)
  process.stdout.write(report.text)
  if (options.jsonFile) await Bun.write(options.jsonFile, `${JSON.stringify(report.json, null, 2)}\n`)
  if (options.isKept) process.stdout.write(`\n  Still running until Ctrl-C:\n    ${environment.reach.join('\n    ')}\n`)
  return report.isGood ? 0 : 1
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

interface Report {
  readonly text: string
  readonly json: object
  readonly isGood: boolean
}

async function reportOf(plans: Plan[], baselines: Outcome[], here: Here): Promise<Report> {
  const { options } = here
  const paint = { isColored: process.stdout.isTTY === true && !process.env.NO_COLOR }
  if (options.idle !== null) return reportIdle(plans[0]!, paint, here)
  if (options.group !== null) return reportGroup(plans[0]!, paint, here)
  if (options.soak) return reportSoak(options.soak, plans[0]!, paint, here)
  const results: LoadResult[] = []
  for (const [i, plan] of plans.entries()) {
    const result = resultOf(await runHere(plan, here), here.environment, options)
    results.push(baselines[i] ? withBaseline(result, baselines[i], options.against!) : result)
  }
  const isGood = results.every(isClean)
  if (options.isSweep) return { text: printSweep(results, paint), json: { sweep: results }, isGood }
  return { text: printReport(results[0]!, paint), json: results[0]!, isGood }
}

async function reportIdle(plan: Plan, paint: ReportOptions, { environment, options, display }: Here): Promise<Report> {
  const result = await runIdle({ plan, target: environment, options, display }, teardown)
  return { text: printIdle(result, paint), json: result, isGood: true }
}

async function reportGroup(plan: Plan, paint: ReportOptions, { environment, options, display }: Here): Promise<Report> {
  const result = await runGroup({ plan, target: environment, options, display }, teardown)
  return { text: printGroup(result, paint), json: result, isGood: true }
}

async function reportSoak(soak: SoakOptions, plan: Plan, paint: ReportOptions, here: Here): Promise<Report> {
  const { environment, options, display } = here
  const { outcome, figures } = await runSoak({ soak, plan, target: environment, options, display }, teardown)
  const result = resultOf(outcome, environment, options)
  const isGood = isClean(result) && isSteady(figures)
  const text = `${printReport(result, paint)}\n${printSoak(figures, paint)}`
  return { text, json: { ...result, soak: figures }, isGood }
}

type Surroundings = Pick<Here, 'options' | 'display'>

async function runBaselines(plans: Plan[], against: Yardstick, surroundings: Surroundings): Promise<Outcome[]> {
  const { options, display } = surroundings
  const outcomes: Outcome[] = []
  for (const plan of plans) {
    display.step(`baseline: the same client against ${YARDSTICK_NAMES[against]}`)
    const mesh = await inventMesh(plan.peers)
    const words = profileWords(options)
    const { databaseUrl } = options
    const tell = (step: string) => display.step(step)
    const target = await openYardstick({ against, mesh, words, databaseUrl, tell }, teardown)
    outcomes.push(await runOnce({ plan, meshes: [mesh], target, options, display }, teardown))
    await target.stop()
  }
  return outcomes
}

async function runHere(plan: Plan, { environment, options, display }: Here): Promise<Outcome> {
  const meshes = await newMeshes({ plan, target: environment, options }, teardown)
  return runOnce({ plan, meshes, target: environment, options, display }, teardown)
}
