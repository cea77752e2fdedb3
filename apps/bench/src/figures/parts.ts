/** Lists the benchmark's parts: their programs, and tiny forms that only prove that they work. */
import { parseArgs } from '@sealpost/harness/programs/command'
import { Command, InvalidArgumentError } from 'commander'

export type Script = 'load-test.ts' | 'torture.ts'

export interface BenchRun {
  readonly key: string
  /** A file in `scripts/`. Default: the load test. */
  readonly script?: Script
  readonly words: string
  /** Arguments with a handful of messages; null if other runs cover it. */
  readonly tiny: string | null
}

export interface Part {
  readonly name: string
  readonly runs: readonly BenchRun[]
  /** Whether the part takes tens of minutes, and runs only on request. */
  readonly isLong: boolean
}

/** The alternating pairs of runs, whose median ratio is documented. */
const PAIRS = [1, 2, 3]
const PEERS = [10, 25, 50, 100, 200]
/** The number of messages of all peers. */
const PEERS_TOTAL = 100_000

const one = (name: string, words: string, tiny: string): Part => ({
  name,
  runs: [{ key: name, words, tiny }],
  isLong: false,
})

export const PARTS: readonly Part[] = [
  one('burst', '100 1000 --baseline', '4 10 --baseline'),
  one('window8', '100 1000 --window 8', '4 10 --window 8'),
  one('drain', '100 5000 --through-drain', '4 10 --through-drain'),
  one('burst-800k', '100 8000', '4 12'),
  {
    name: 'paced',
    runs: [
      { key: '1000', words: '100 --rate 1000 --seconds 20 --baseline', tiny: '4 --rate 50 --seconds 1 --baseline' },
      { key: '5000', words: '100 --rate 5000 --seconds 20 --baseline', tiny: '4 --rate 100 --seconds 1' },
      { key: '20000', words: '100 --rate 20000 --seconds 20 --baseline', tiny: null },
      { key: '40000', words: '100 --rate 40000 --seconds 10 --baseline', tiny: null },
    ],
    isLong: false,
  },
  one('small', '--sweep', '10 --sweep'),
  one('cold', '100 100 --cold', '4 10 --cold'),
  {
    name: 'peers',
    runs: PEERS.map((peers) => ({
      key: String(peers),
      words: `${peers} ${PEERS_TOTAL / peers}`,
      tiny: peers <= 25 ? `${peers / 5} 4` : null,
    })),
    isLong: false,
  },
  {
    name: 'pairs',
    runs: PAIRS.flatMap((round) =>
      ['relay', 'plain-sql'].map((against) => ({
        key: `${against}-${round}`,
        words: `100 300 --against ${against}`,
        tiny: round === 1 ? `4 10 --against ${against}` : null,
      })),
    ),
    isLong: false,
  },
  {
    name: 'shards',
    runs: [
      { key: 'one', words: '100 1000', tiny: null },
      {
        key: 'two',
        words: '100 1000 --shards 2 --meshes 1 --cross 0.5',
        tiny: '4 10 --shards 2 --meshes 1 --cross 0.5',
      },
      { key: 'one-paced', words: '100 --rate 1000 --seconds 20', tiny: null },
      { key: 'two-paced', words: '100 --rate 1000 --seconds 20 --shards 2 --meshes 1 --cross 0.5', tiny: null },
    ],
    isLong: false,
  },
  one('connections', '--scenario connections', '4 --scenario connections --quick --seconds 1'),
  one('idle', '--idle 10000', '--idle 4 --seconds 1'),
  {
    name: 'torture',
    runs: [
      {
        key: 'torture',
        script: 'torture.ts',
        words: '--minutes 5 --seed 13',
        tiny: '--scenario peer-stop --measure short --rate 200 --recover-within 0 --seed 13',
      },
    ],
    isLong: false,
  },
  one(
    'rivals',
    '100 1000 --against redis --against nats --rounds 5',
    '4 10 --against redis --against nats --rounds 2 --seconds 1',
  ),
  { ...one('soak', '--soak 20m', '4 --soak 5s --rate 50'), isLong: true },
  {
    ...one('soak-held', '--soak 20m --hold-transaction 300', '4 --soak 5s --rate 50 --hold-transaction 1'),
    isLong: true,
  },
  { ...one('soak-backlog', '--soak 10m --backlog 1000000', '4 --soak 5s --rate 50 --backlog 40'), isLong: true },
]

export interface BenchOptions {
  readonly only: readonly string[] | null
  readonly isTiny: boolean
  readonly hasSoak: boolean
  readonly isRenderOnly: boolean
  /** The output folder. Default: docs/. */
  readonly into: string | null
}

interface Given {
  only?: string[]
  tiny?: boolean
  withSoak?: boolean
  render?: boolean
  into?: string
}

/** Reads the options. Exits after the help, and with 2 if they are invalid. */
export function readOptions(args: readonly string[]): BenchOptions {
  const names = PARTS.map(({ name }) => name).join(', ')
  const command = new Command('bun scripts/bench.ts')
    .description(
      'Measure the figures of README.md, docs/BENCHMARKS.md and docs/PROMISES.md, and write their tables and charts.',
    )
    .option('--only <parts>', `measure only these parts: ${names}`, partNames)
    .option('--with-soak', 'also run the soak tests, which take an hour')
    .option('--tiny', 'run every part with a few messages to check that it works; write nothing to docs/')
    .option('--render', 'only write tables and charts from results.json')
    .option('--into <folder>', 'write pages, charts and results to this folder instead of docs/')
  const given = parseArgs<Given>(command, args)
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
  throw new InvalidArgumentError(
    `There is no part "${unknown}". The parts are ${PARTS.map(({ name }) => name).join(', ')}.`,
  )
}
