/**
 * Breaks every component that a broker depends on, under load, and judges every message. bun scripts/torture.ts
 * --minutes 5 --list names the scenarios, --help lists the options
 *
 * `cluster/` runs Postgres and brokers, and `peers/` the programs of peers. `scenarios/` injects the faults.
 * `judgement/` records what happens and checks it. `mutations/` plants bugs that the checker must find.
 */
import { HELP_HINT, oneOf, wholeNumber } from '@sealpost/harness/programs/command'
import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { type Colors, count, orDash, plainTable } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { createColors } from 'picocolors'
import type { VerdictLine } from './judgement/verdict.ts'
import { NO_TIME } from './run.ts'
import { SCENARIOS, type TortureOptions, torture } from './torture.ts'

interface CommandOptions extends TortureOptions {
  readonly seed?: number
  readonly list?: boolean
  readonly json?: boolean
}

const SEED_MAX = 2 ** 31
const FIGURES = ['rounds', 'acked', 'delivered', 'queued', 'expired', 'dead'] as const
type Figure = (typeof FIGURES)[number]
const HEAD = [
  'scenario',
  '',
  ...FIGURES,
  'lost',
  'unexplained',
  'misordered',
  'misdelivered',
  'other',
  'pause s',
  'recovery s',
  'redelivered',
]

const teardown = new Teardown()
let exitCode: number | undefined

endOnSignals(teardown)
const options = readCommandOptions(process.argv.slice(2))
if (typeof options === 'number') process.exit(options)
const seed = options.seed ?? Math.floor(Math.random() * SEED_MAX)
if (options.list) list()
else await main(options)
await teardown.run()
process.exit(exitCode ?? 0)

/** Reads the options. Prints help and errors. @returns the exit code if there is nothing to run */
function readCommandOptions(words: readonly string[]): CommandOptions | number {
  try {
    return tortureCommand().parse(words, { from: 'user' }).opts<CommandOptions>()
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    throw error
  }
}

function tortureCommand(): Command {
  const names = SCENARIOS.map(({ name }) => name)
  return new Command('bun scripts/torture.ts')
    .description(
      'Inject faults into brokers, Postgres, peers and networks under load, and check the outcome of every message.',
    )
    .option(
      '--seed <N>',
      'the seed of faults, times and traffic; default: a random seed, which is printed',
      wholeNumber(0, SEED_MAX),
    )
    .option(
      '--minutes <M>',
      "the total duration, from start-up to verdict; scenarios that don't fit are skipped",
      minutes,
      5,
    )
    .option('--scenario <NAME>', 'run only this scenario, with its own Postgres; repeatable', oneOf(names), [])
    .addOption(
      new Option('--measure <M>', 'the duration and size of the faults').choices(['short', 'full']).default('full'),
    )
    .option('--rate <R>', 'the number of messages per second', wholeNumber(1, 100_000), 1500)
    .option(
      '--recover-within <S>',
      'the maximum time from a fault to the first new ack; 0: no limit',
      wholeNumber(0, 3600),
      5,
    )
    .option('--list', 'list the scenarios')
    .option('--json', 'print the result as JSON')
    .addHelpText(
      'after',
      '\nExit code: 0 every promise held · 1 a promise was broken, or a fault had no effect · 2 invalid usage',
    )
    .showHelpAfterError(HELP_HINT)
    .allowExcessArguments(false)
    .exitOverride()
}

function minutes(text: string): number {
  const number = Number(text)
  if (/^\d+(\.\d+)?$/.test(text) && number <= 1440) return number
  throw new InvalidArgumentError('Use a number of minutes, at most 1440.')
}

function list(): void {
  const width = Math.max(...SCENARIOS.map(({ name }) => name.length))
  for (const { name, summary, alone } of SCENARIOS)
    console.log(`${name.padEnd(width)}  ${summary}${alone ? ' (alone)' : ''}`)
}

async function main(options: CommandOptions): Promise<void> {
  const tell = (step: string) => process.stderr.write(`${step}\n`)
  try {
    const lines = await torture({ ...options, seed, tell }, teardown)
    const isGood = totalOf(lines).outcome === 'held' && lines.some(({ outcome }) => outcome === 'held')
    if (options.json) console.log(JSON.stringify({ seed, isGood, lines, total: totalOf(lines) }, null, 2))
    else console.log(printLines(lines, createColors(process.stdout.isTTY === true && !process.env.NO_COLOR)))
    process.stderr.write(
      isGood ? `Every promise held; seed ${seed}.\n` : `A promise was broken. Repeat the run with --seed ${seed}.\n`,
    )
    const left = lines.filter(({ reasons }) => reasons.includes(NO_TIME)).length
    if (left > 0)
      process.stderr.write(`${left} of ${lines.length} scenarios did not run within ${options.minutes} minutes.\n`)
    exitCode = isGood ? 0 : 1
  } catch (error) {
    if (teardown.isRunning) await forever() // the interrupt caused the error
    process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
    process.stderr.write(`The seed was ${seed}.\n`)
    exitCode = 1
  }
}

function printLines(lines: readonly VerdictLine[], paint: Colors): string {
  const table = plainTable(HEAD, paint)
  for (const line of lines) table.push(cellsOf(line, paint))
  if (lines.length > 1) table.push(cellsOf(totalOf(lines), paint))
  const reasons = lines.flatMap(({ scenario, reasons: why, outcome }) =>
    why.map((reason) => `  ${outcome === 'broken' ? paint.red('✘') : paint.yellow('!')} ${scenario}: ${reason}`),
  )
  return [table.toString(), ...(reasons.length > 0 ? ['', ...reasons] : [])].join('\n')
}

function totalOf(lines: readonly VerdictLine[]): VerdictLine {
  const sum = (of: (line: VerdictLine) => number) => lines.reduce((total, line) => total + of(line), 0)
  const sums = <K extends string>(of: (line: VerdictLine) => Readonly<Record<K, number>>): Record<K, number> => {
    const names = Object.keys(of(lines[0]!)) as K[]
    return Object.fromEntries(names.map((name) => [name, sum((line) => of(line)[name])])) as Record<K, number>
  }
  const recoveries = lines.flatMap(({ recoveryMs }) => recoveryMs ?? [])
  return {
    scenario: 'all',
    outcome: lines.every(({ outcome }) => outcome === 'held' || outcome === 'skipped') ? 'held' : 'broken',
    reasons: [],
    ...sums((line) => Object.fromEntries(FIGURES.map((name) => [name, line[name]])) as Record<Figure, number>),
    breaches: sums((line) => line.breaches),
    repeats: sums((line) => line.repeats),
    longestPauseMs: Math.max(...lines.map(({ longestPauseMs }) => longestPauseMs)),
    recoveryMs: recoveries.length > 0 ? Math.max(...recoveries) : null,
    brokerRssMb: null,
  }
}

function cellsOf(line: VerdictLine, paint: Colors): string[] {
  const { breaches, repeats, scenario, outcome } = line
  const bad = (n: number) => (n === 0 ? '0' : paint.red(count(n)))
  const seconds = (ms: number | null) => orDash(ms, (value) => (value / 1000).toFixed(1))
  const numbers = FIGURES.map((name) => count(line[name]))
  const { lost, duplicated, misordered, misdelivered, tampered, struck, unanswered } = breaches
  const broken = [lost, duplicated, misordered, misdelivered, tampered + struck + unanswered].map(bad)
  const again = Object.entries(repeats).filter(([, n]) => n > 0)
  const causes = again.map(([cause, n]) => `${cause} ${count(n)}`).join(', ') || '0'
  const times = [line.longestPauseMs, line.recoveryMs].map(seconds)
  return [scenario, marks(paint)[outcome], ...numbers, ...broken, ...times, causes]
}

function marks(paint: Colors): Record<VerdictLine['outcome'], string> {
  return { held: paint.green('✔'), broken: paint.red('✘'), invalid: paint.yellow('?'), skipped: paint.dim('–') }
}
