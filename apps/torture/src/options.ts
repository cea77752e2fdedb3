/** The words of the command line. */

import { oneOf, wholeNumber } from '@sealpost/harness/command/options'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import type { Measure } from './cluster/stage.ts'
import { SCENARIOS } from './scenarios.ts'

export interface TortureOptions {
  readonly seed?: number
  readonly minutes: number
  readonly scenario: readonly string[]
  readonly measure: Measure
  readonly rate: number
  /** Seconds; 0: as long as it takes. */
  readonly recoverWithin: number
  readonly list?: boolean
  readonly json?: boolean
}

const SEED_MAX = 2 ** 31

/** Prints help or usage itself. @returns the exit code instead of options when there is nothing to run */
export function readTortureOptions(words: readonly string[]): TortureOptions | number {
  try {
    return tortureCommand().parse(words, { from: 'user' }).opts<TortureOptions>()
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    throw error
  }
}

function tortureCommand(): Command {
  const names = SCENARIOS.map(({ name }) => name)
  return new Command('bun scripts/torture.ts')
    .description('Breaks brokers, Postgres, peers and networks under load, and checks what became of every message.')
    .option(
      '--seed <N>',
      'chooses faults, times and traffic; default: a random one, which is printed',
      wholeNumber(0, SEED_MAX),
    )
    .option(
      '--minutes <M>',
      'how long it takes, from start-up to verdict; a scenario that gets no turn in it is skipped',
      minutes,
      5,
    )
    .option('--scenario <NAME>', 'this one only, with a Postgres of its own; may be repeated', oneOf(names), [])
    .addOption(
      new Option('--measure <M>', 'how long and large the faults are').choices(['short', 'full']).default('full'),
    )
    .option('--rate <R>', 'messages a second', wholeNumber(1, 100_000), 1500)
    .option(
      '--recover-within <S>',
      'the first new ack must follow a fault so soon; 0: whenever',
      wholeNumber(0, 3600),
      5,
    )
    .option('--list', 'the scenarios')
    .option('--json', 'the result as JSON, on standard output')
    .addHelpText('after', '\nExit code: 0 every promise held · 1 one did not, or a fault hit nothing · 2 wrong usage')
    .showHelpAfterError(true)
    .allowExcessArguments(false)
    .exitOverride()
}

function minutes(text: string): number {
  const number = Number(text)
  if (/^\d+(\.\d+)?$/.test(text) && number <= 1440) return number
  throw new InvalidArgumentError('It must be a number of minutes, at most a day.')
}

export const randomSeed = (): number => Math.floor(Math.random() * SEED_MAX)
