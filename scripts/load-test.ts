/**
 * The load test: many peers, each with the real SDK and a WebSocket of its own, send each other sealed messages through
 * a broker and Postgres. Every message is opened and compared, and joined with its sender's ack by the envelope id.
 *
 *   bun scripts/load-test.ts [peers=100] [messages=1000]      --help tells the rest
 *
 * With nothing running it starts a Postgres and a broker, and ends both. `load/` holds the parts: `environment` (where
 * the peers connect to), `fleet` and `generator` (programs that are the peers), `verdict` (the joining), `report`.
 */
import { OperatingError } from '@sealpost/std'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'
import { type LoadOptions, profileWords, readArguments, shapesOf } from './load/arguments.ts'
import { type Environment, openEnvironment, openRelay } from './load/environment.ts'
import type { Plan } from './load/plan.ts'
import { type Display, openDisplay } from './load/progress.ts'
import { printReport, printSweep } from './load/report.ts'
import { isClean, type LoadResult, resultOf, withBaseline } from './load/result.ts'
import { type Outcome, runOnce } from './load/run.ts'
import { inventMesh } from './load/seed.ts'

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
  const display = openDisplay()
  const plans = shapesOf(options).map((shape) => planOf(shape, options))
  // First, while nothing else runs: a Postgres that still tidies up would slow the relay down and flatter the ratio.
  const baselines = options.hasBaseline ? await runBaselines(plans, options, display) : []
  const environment = await openEnvironment(
    { ...options, words: profileWords(options), tell: (step) => display.step(step) },
    teardown,
  )
  const results: LoadResult[] = []
  for (const [i, plan] of plans.entries()) {
    const result = resultOf(await runHere(plan, environment, options, display), environment, options)
    results.push(baselines[i] ? withBaseline(result, baselines[i]) : result)
  }
  process.stdout.write(reportOf(results, options))
  if (options.jsonFile) await Bun.write(options.jsonFile, `${JSON.stringify(jsonOf(results, options), null, 2)}\n`)
  if (options.isKept) process.stdout.write(`\n  Still running until Ctrl-C:\n    ${environment.reach.join('\n    ')}\n`)
  return results.every(isClean) ? 0 : 1
}

function planOf({ peers, messages }: { peers: number; messages: number }, options: LoadOptions): Plan {
  const { rate, seconds, payloadBytes, seed } = options
  return { peers, total: rate === null ? peers * messages : rate * seconds, rate, payloadBytes, seed }
}

async function runBaselines(plans: Plan[], options: LoadOptions, display: Display): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (const plan of plans) {
    display.step('baseline: the same client against a relay that stores nothing')
    const mesh = await inventMesh(plan.peers)
    const target = await openRelay(mesh, profileWords(options), teardown)
    outcomes.push(await runOnce({ plan, mesh, target, options, display }, teardown))
    await target.stop()
  }
  return outcomes
}

async function runHere(plan: Plan, target: Environment, options: LoadOptions, display: Display): Promise<Outcome> {
  const mesh = await inventMesh(plan.peers)
  const outlivesUs = !target.isDatabaseOurs && !options.isKept
  if (outlivesUs) teardown.add({ end: () => target.database.forget(mesh.meshId) })
  return runOnce({ plan, mesh, target, options, display }, teardown)
}

function reportOf(results: LoadResult[], options: LoadOptions): string {
  const isColored = process.stdout.isTTY === true && !process.env.NO_COLOR
  return options.isSweep ? printSweep(results, { isColored }) : printReport(results[0]!, { isColored })
}

function jsonOf(results: LoadResult[], options: LoadOptions): object {
  return options.isSweep ? { sweep: results } : results[0]!
}
