/**
 * Runs every check, `bun run verify`: lint and format, package boundaries, types, tests. A failing check prints its
 * output, and the others still run. Exits with 0 only if nothing failed and at least one test ran.
 */
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
/** How long interrupted tests' databases may take to shut down. */
const GRACE_MS = 10_000

const scratch = mkdtempSync(join(tmpdir(), 'sealpost-verify-'))
const reportFile = join(scratch, 'tests.json')
const env = childEnvironment()
let running: Bun.Subprocess | undefined
let isStopping = false
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void stop(signal))

const failedChecks: string[] = []
await check('lint and format', 'biome ci --colors=off .')
await check('package boundaries', 'turbo boundaries')
await check('types of packages', 'turbo run typecheck --continue --ui=stream --output-logs=errors-only')
await check('types of tests', 'tsc -p tsconfig.tests.json')
const testsExitCode = await run(
  `vitest run --reporter=default --reporter=json --outputFile.json=${reportFile}`,
  'inherit',
)
process.exitCode = summarize(testsExitCode)

/** Runs a check. Prints its line, and after a failure its output. */
async function check(name: string, command: string): Promise<void> {
  const startedAt = performance.now()
  const log = join(scratch, 'output.log')
  const output = openSync(log, 'w')
  const exitCode = await run(command, output)
  closeSync(output)
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  console.log(`${exitCode === 0 ? 'ok  ' : 'FAIL'}  ${name.padEnd(20)} ${seconds.padStart(6)} s`)
  if (exitCode === 0) return
  failedChecks.push(name)
  console.log(`\n$ ${command}\n${readFileSync(log, 'utf8').trim()}\n`)
}

interface TestReport {
  numPassedTests: number
  testResults: { name: string; status: string; assertionResults: { fullName: string; status: string }[] }[]
}

/** Prints skipped tests, failures and counts. @returns the exit code */
function summarize(exitCode: number): number {
  const report = readReport()
  const all = report.testResults.flatMap((file) => file.assertionResults)
  const failedTests = all.filter(({ status }) => status === 'failed').length
  const skipped = all.filter(({ status }) => status !== 'failed' && status !== 'passed')
  for (const { fullName } of skipped) console.log(`skipped: ${fullName}`)

  const files: string[] = []
  for (const { name, status, assertionResults } of report.testResults) {
    if (status === 'failed' && !assertionResults.some((test) => test.status === 'failed')) files.push(name)
  }
  const outside = [...failedChecks, ...files]
  if (exitCode !== 0 && failedTests + files.length === 0) outside.push(`the test run ended with exit code ${exitCode}`)
  if (exitCode === 0 && report.numPassedTests === 0) outside.push('no test passed')
  for (const failure of outside) console.log(`failed outside a test: ${failure}`)

  const failed = failedTests + outside.length
  console.log(`${report.numPassedTests} passed, ${failed} failed, ${skipped.length} skipped`)
  return failed === 0 ? 0 : 1
}

function readReport(): TestReport {
  try {
    return JSON.parse(readFileSync(reportFile, 'utf8')) as TestReport
  } catch {
    return { numPassedTests: 0, testResults: [] } // the run ended without a report, and its output shows why
  }
}

/** Runs a tool under the current Bun, in its own process group for `stop`. */
async function run(command: string, output: number | 'inherit'): Promise<number> {
  running = Bun.spawn([process.execPath, '--bun', 'run', ...command.split(' ')], {
    cwd: ROOT,
    env,
    stdin: 'ignore',
    stdout: output,
    stderr: output,
    detached: true,
  })
  const exitCode = await running.exited
  if (isStopping) {
    await new Promise<never>(() => {
      // Never settles, because `stop` ends this process.
    })
  }
  running = undefined
  return exitCode
}

/** Forwards the signal to all children, and exits after them. */
async function stop(signal: NodeJS.Signals): Promise<void> {
  if (isStopping) return
  isStopping = true
  if (running) {
    signalGroup(running, signal)
    const deadline = performance.now() + GRACE_MS
    while (signalGroup(running, 0) && performance.now() < deadline) await Bun.sleep(20)
    signalGroup(running, 'SIGKILL')
  }
  process.exit(128 + constants.signals[signal])
}

/** Signals a process group; signal 0 only checks. @returns false if it has no process */
function signalGroup(leader: Bun.Subprocess, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-leader.pid, signal)
  } catch {
    return false
  }
}

/** Returns children's environment. Turbo needs `bun` on the PATH. */
function childEnvironment(): Record<string, string | undefined> {
  symlinkSync(process.execPath, join(scratch, 'bun'))
  return {
    ...process.env,
    PATH: scratch + delimiter + (process.env.PATH ?? ''),
    TURBO_TELEMETRY_DISABLED: '1',
    TURBO_NO_UPDATE_NOTIFIER: '1',
  }
}
