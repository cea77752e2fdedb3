/** The command line of the benchmark. */
import { Command, InvalidArgumentError } from 'commander'
import { PARTS, type Part } from './parts.ts'

export interface BenchOptions {
  readonly only: readonly string[] | null
  readonly isTiny: boolean
  readonly hasSoak: boolean
  readonly isRenderOnly: boolean
  /** Instead of docs/. */
  readonly into: string | null
}

interface Given {
  only?: string[]
  tiny?: boolean
  withSoak?: boolean
  render?: boolean
  into?: string
}

/** Exits for help, and with 2 for wrong usage. */
export function readOptions(words: readonly string[]): BenchOptions {
  const names = PARTS.map(({ name }) => name).join(', ')
  const given = new Command('bun scripts/bench.ts')
    .description(
      'Measures the figures of README.md, docs/BENCHMARKS.md and docs/PROMISES.md, and writes their tables and charts.',
    )
    .option('--only <parts>', `some of ${names}`, partNames)
    .option('--with-soak', 'the soaks too, which take an hour')
    .option('--tiny', 'every part with a handful of messages, to see that it works; writes nothing into docs/')
    .option('--render', 'only write tables and charts, from results.json')
    .option('--into <folder>', 'a folder for pages, charts and results instead of docs/')
    .showHelpAfterError(true)
    .allowExcessArguments(false)
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
    .parse(words, { from: 'user' })
    .opts<Given>()
  return {
    only: given.only ?? null,
    isTiny: given.tiny === true,
    hasSoak: given.withSoak === true,
    isRenderOnly: given.render === true,
    into: given.into ?? null,
  }
}

export function chosenParts({ only, hasSoak, isTiny }: BenchOptions): readonly Part[] {
  if (only) return PARTS.filter(({ name }) => only.includes(name))
  return PARTS.filter(({ isLong }) => !isLong || hasSoak || isTiny)
}

function partNames(text: string): string[] {
  const names = text.split(',')
  const unknown = names.find((name) => !PARTS.some((part) => part.name === name))
  if (unknown === undefined) return names
  throw new InvalidArgumentError(`There is no part "${unknown}".`)
}
