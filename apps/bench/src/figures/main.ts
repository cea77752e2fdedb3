/**
 * Every measured figure of the documents in one command: runs the programs of each part, keeps their results in
 * docs/benchmarks/results.json, and writes from it the tables and charts of docs/BENCHMARKS.md, the figures of README.md
 * and docs/PROMISES.md, and the tables of docs/CAPACITY.md.
 *
 *   bun scripts/bench.ts [--only burst,paced] [--with-soak]      --help tells the rest
 *
 * `parts.ts` is the list of what is run.
 */
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { startEmbedded } from '@sealpost/embedded-pg'
import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { thisMachine } from '@sealpost/harness/report/machine'
import { fillPage } from '@sealpost/harness/report/markdown'
import { OperatingError } from '@sealpost/std'
import { readFigures } from '../capacity/figures.ts'
import { renderPage } from '../capacity/page.ts'
import { chartsOf } from './charts.ts'
import { type Measurement, measure } from './measure.ts'
import { type BenchOptions, chosenParts, readOptions } from './options.ts'
import { PAGES } from './pages.ts'
import type { BenchRun } from './parts.ts'
import { type Measured, type Results, readResults, writeResults } from './results.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const DOCS = join(ROOT, 'docs')
/** Tiny runs wait more than they work. */
const TINY_AT_ONCE = 4

const teardown = new Teardown()
const ending = new AbortController()
endOnSignals(teardown)
let exitCode: number
try {
  exitCode = await bench(readOptions(process.argv.slice(2)))
} catch (error) {
  if (teardown.isRunning) await forever() // interrupted: whatever broke, broke because of that
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  exitCode = 1
}
await teardown.run()
process.exit(exitCode)

async function bench(options: BenchOptions): Promise<number> {
  const folder = options.into ?? (options.isTiny ? await scratchFolder() : DOCS)
  const results = options.isRenderOnly ? await readResults(resultsIn(folder)) : await measureAll(options, folder)
  await render(results, folder)
  // Of a tiny one only the messages count: seconds are no soak, and several at a time are no scenario.
  const isJudged = ({ result }: Measured) => !(options.isTiny && (result.soak || result.scenarios || result.torture))
  const isFailed = (run: Measured) => run.exitCode !== 0 && isJudged(run)
  const failed = Object.values(results).flatMap((runs) => Object.values(runs).filter(isFailed))
  for (const { command, exitCode } of failed) say(`not as it should be (exit code ${exitCode}): ${command}`)
  return failed.length === 0 || options.isRenderOnly ? 0 : 1
}

function resultsIn(folder: string): string {
  return join(folder, 'benchmarks/results.json')
}

/** What was measured before and is not measured now stays; each part is kept as soon as it is there. */
async function measureAll(options: BenchOptions, folder: string): Promise<Results> {
  await mkdir(join(folder, 'benchmarks'), { recursive: true })
  const scratch = await scratchFolder()
  const env: Record<string, string> = options.isTiny ? { DATABASE_URL: await databaseUrl() } : {}
  const around = { folder: scratch, env, machine: thisMachine(), signal: ending.signal }
  const due = dueOf(options)
  let results = await readResults(resultsIn(folder))
  const work = async (): Promise<void> => {
    for (let next = due.shift(); next; next = due.shift()) {
      const measured = await measureOne(next, around)
      results = { ...results, [next.part]: { ...results[next.part], [next.key]: measured } }
      if (!options.isTiny) await writeResults(resultsIn(folder), results)
    }
  }
  const working = Promise.all(Array.from({ length: options.isTiny ? TINY_AT_ONCE : 1 }, work))
  teardown.add({
    end: () => {
      ending.abort()
      return working.catch(() => undefined) // the waiting caller reports it
    },
  })
  await working
  await writeResults(resultsIn(folder), results)
  return results
}

interface Due extends Pick<BenchRun, 'key' | 'words'> {
  readonly part: string
  readonly script: NonNullable<BenchRun['script']>
}

function dueOf(options: BenchOptions): Due[] {
  return chosenParts(options).flatMap(({ name, runs }) =>
    runs.flatMap(({ key, script = 'load-test.ts', words, tiny }) => {
      const chosen = options.isTiny ? tiny : words
      return chosen === null ? [] : [{ part: name, key, script, words: chosen }]
    }),
  )
}

async function measureOne(
  { part, key, script, words }: Due,
  around: Omit<Measurement, 'script' | 'words'>,
): Promise<Measured> {
  const name = part === key ? part : `${part} ${key}`
  const startMs = performance.now()
  say(`${name}: ${script} ${words} …`)
  const measured = await measure({ ...around, script, words })
  say(`${name}: ${((performance.now() - startMs) / 1000).toFixed(0)} s, exit code ${measured.exitCode}`)
  return measured
}

async function render(results: Results, folder: string): Promise<void> {
  for (const { path, textsOf } of PAGES) {
    const page = folder === DOCS ? join(ROOT, path) : join(folder, basename(path))
    if (!(await Bun.file(page).exists())) await copyFile(join(ROOT, path), page)
    await Bun.write(page, fillPage(await Bun.file(page).text(), textsOf(results)))
  }
  for (const [name, svg] of Object.entries(chartsOf(results))) {
    await Bun.write(join(folder, 'benchmarks', `${name}.svg`), svg)
  }
  if (folder === DOCS) await renderPage(await readFigures())
}

async function databaseUrl(): Promise<string> {
  if (process.env.DATABASE_URL) return process.env.DATABASE_URL
  const server = await teardown.starting(startEmbedded(), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
  return server.url
}

async function scratchFolder(): Promise<string> {
  return teardown.starting(mkdtemp(join(tmpdir(), 'sealpost-bench-')), (made) => ({
    end: () => rm(made, { recursive: true, force: true }),
  }))
}

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}
