/**
 * Measures every figure in the documents, stores the results in docs/benchmarks/results.json, and writes tables and
 * charts from them. bun scripts/bench.ts [--only burst,paced] [--with-soak] --help lists the options
 */
import { copyFile, mkdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { runCommand } from '@sealpost/harness/programs/command'
import { thisMachine } from '@sealpost/harness/programs/machine'
import { openOwnDatabase } from '@sealpost/harness/programs/postgres'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { fillPage } from '@sealpost/harness/report/text'
import { readFigures } from '../capacity/figures.ts'
import { renderPage } from '../capacity/report.ts'
import { chartsOf, PAGES } from './pages.ts'
import { type BenchOptions, type BenchRun, chosenParts, readOptions } from './parts.ts'
import { type Measured, type Measurement, measure, type Results, readResults, writeResults } from './results.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const DOCS = join(ROOT, 'docs')
/** The number of concurrent tiny runs, which mostly wait. */
const TINY_AT_ONCE = 4

async function bench(options: BenchOptions, teardown: Teardown): Promise<number> {
  const folder = options.into ?? (options.isTiny ? await temporaryFolder('bench', teardown) : DOCS)
  const results = options.isRenderOnly
    ? await readResults(resultsIn(folder))
    : await measureAll(options, folder, teardown)
  await render(results, folder)
  // Returns whether requirements are judged: not those of tiny soaks and scenarios, except for their messages.
  const isJudged = ({ result }: Measured) => !(options.isTiny && (result.soak || result.scenarios || result.torture))
  const isFailed = (run: Measured) => run.exitCode !== 0 && isJudged(run)
  const failed = Object.values(results).flatMap((runs) => Object.values(runs).filter(isFailed))
  for (const { command, exitCode } of failed) log(`failed with exit code ${exitCode}: ${command}`)
  return failed.length === 0 || options.isRenderOnly ? 0 : 1
}

const resultsIn = (folder: string): string => join(folder, 'benchmarks/results.json')

/** Measures the chosen parts, and writes each immediately. */
async function measureAll(options: BenchOptions, folder: string, teardown: Teardown): Promise<Results> {
  await mkdir(join(folder, 'benchmarks'), { recursive: true })
  const scratch = await temporaryFolder('bench', teardown)
  const env: Record<string, string> = options.isTiny ? { DATABASE_URL: await openOwnDatabase(teardown) } : {}
  const ending = new AbortController()
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
      return working.catch(() => undefined) // the waiting caller reports the error
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
  log(`${name}: ${script} ${words} …`)
  const measured = await measure({ ...around, script, words })
  log(`${name}: ${((performance.now() - startMs) / 1000).toFixed(0)} s, exit code ${measured.exitCode}`)
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

function log(line: string): void {
  process.stderr.write(`${line}\n`)
}

const options = readOptions(process.argv.slice(2))
await runCommand((teardown) => bench(options, teardown))
