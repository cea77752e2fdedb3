/** Defines the command line of the load test, and its help. */
import { cpus } from 'node:os'
import { HELP_HINT, oneOf, share, wholeNumber } from '@sealpost/harness/programs/command'
import type { Form } from '@sealpost/protocol'
import { Command, InvalidArgumentError, Option } from 'commander'
import { YARDSTICK_NAMES } from '../environment/environment.ts'
import { RIVAL_NAMES } from '../rivals/result.ts'
import { SWEEP_MESSAGES, SWEEP_PEERS } from '../scenarios/messages/burst.ts'
import { SCENARIOS } from '../scenarios/registry.ts'

export const SOAK_RATE = 2000
export const IDLE_SECONDS = 20
export const COMPARED_SECONDS = 10
/** The number of client programs in a comparison, because one would limit Redis. */
export const COMPARED_GENERATORS = 2
export const GENERATORS = cpus().length <= 2 ? 1 : Math.min(4, cpus().length >> 1)

const UNITS = { s: 1, m: 60, h: 3600 } as const

/** Returns a parser for durations, whose result is in seconds. */
function duration(min: number, max: number): (text: string) => number {
  return (text) => {
    const [, number, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? []
    const seconds = Number(number) * UNITS[unit as keyof typeof UNITS]
    if (seconds >= min && seconds <= max) return seconds
    throw new InvalidArgumentError(`Use a duration such as 90s, 20m or 1h, from ${min} to ${max} seconds.`)
  }
}

/** The options, as commander returns them. */
export interface Given {
  rate?: number
  seconds?: number
  soak?: number
  holdTransaction?: number
  backlog?: number
  idle?: number
  group?: number
  throughDrain?: boolean
  sweep?: boolean
  window?: number
  pack?: 'on' | 'off'
  baseline?: boolean
  against?: readonly string[]
  rounds?: number
  json?: string
  cold?: boolean
  ratchets?: boolean
  form: Form
  limits?: 'on' | 'off'
  profile?: string
  generators?: number
  shards: number
  meshes?: number
  cells: number
  cross: number
  scenario?: readonly string[]
  all?: boolean
  quick?: boolean
  html?: string
}

const EXAMPLES = () => `
Environment:
  DATABASE_URL      the Postgres to use instead of an embedded one
  BROKER_WS_URL     the running broker to use, with its DATABASE_URL; separate several brokers of one database by commas
  BROKER_PID        its process id, to measure its CPU, memory and descriptors; separate several by commas
  BROKER_KEY        its key; default: the key at its /version
  LIMITS            on or off: the rate limits of a broker that this command starts; default off
  BROKER_BINARY     the compiled sealpost that runs the brokers; default: the source
  REDIS_SERVER      the redis-server to compare with; default: the installed one
  NATS_SERVER       the nats-server to compare with; nats-sync needs version 2.10
  DRAIN_MS          how long each phase waits for outstanding messages after the last reply; default 60000

Scenarios ([peers] and --seconds limit their size):
${SCENARIOS.map(({ name, summary }) => `  ${name.padEnd(17)} ${summary}`).join('\n')}

Exit code: 0 success · 1 a message was lost, misdelivered, out of order, refused or timed out, or a soak's figures did
not hold · 2 invalid usage

Examples:
  bun scripts/load-test.ts
  bun scripts/load-test.ts 100 1000 --baseline
  bun scripts/load-test.ts 100 --rate 1000 --seconds 30 --json result.json
  bun scripts/load-test.ts 100 200 --against plain-sql
  bun scripts/load-test.ts 100 1000 --against redis --against nats --rounds 5
  bun scripts/load-test.ts --soak 20m --rate 2000 --hold-transaction 300
  bun scripts/load-test.ts --idle 1000
  bun scripts/load-test.ts 100 --group 10
  bun scripts/load-test.ts 100 500 --shards 2 --cross 0.5
  bun scripts/load-test.ts --sweep
  bun scripts/load-test.ts --scenario connections --scenario burst
  bun scripts/load-test.ts --all --quick --html report.html`

// biome-ignore lint/complexity/noExcessiveLinesPerFunction: one list of options
export function loadTestCommand(): Command {
  return new Command('bun scripts/load-test.ts')
    .description(
      'Send sealed messages between many peers through a real broker and a real Postgres, and check each of them.',
    )
    .argument('[peers]', 'the number of peers, each with its own WebSocket', wholeNumber(2, 65_535), 100)
    .argument(
      '[messages]',
      'the number of messages that each peer sends to random others',
      wholeNumber(1, 10_000_000),
      1000,
    )
    .option(
      '--rate <R>',
      'send R messages per second in total, in an open loop, instead of [messages]',
      wholeNumber(1, 1_000_000),
    )
    .option(
      '--seconds <S>',
      `how long to keep the rate; default: 30, with --idle ${IDLE_SECONDS}, beside other servers: ${COMPARED_SECONDS}`,
      wholeNumber(1, 86_400),
    )
    .option(
      '--soak <TIME>',
      `run at a constant rate for a time such as 90s, 20m or 1h, and report the figures over time; default rate: ${SOAK_RATE}`,
      duration(5, 86_400),
    )
    .option(
      '--hold-transaction <S>',
      'hold a snapshot open in another session for S seconds in the middle of a soak',
      wholeNumber(1, 86_400),
    )
    .option(
      '--backlog <N>',
      'let N messages wait for offline peers during a soak; the peers receive them at the end',
      wholeNumber(1, 100_000_000),
    )
    .option('--idle <N>', 'send no messages; measure the cost of N silent sessions', wholeNumber(2, 65_535))
    .option(
      '--group <M>',
      'let half of the peers write M messages each to one group of all peers, and compare with direct messages',
      wholeNumber(1, 1_000),
    )
    .option('--through-drain', 'push nothing without a claim (starts the broker with INSERT_LEASE=off)')
    .option(
      '--sweep',
      `run with ${SWEEP_PEERS.join(', ')} peers, up to [peers], × ${SWEEP_MESSAGES} messages, and print one table`,
    )
    .option('--window <W>', "the number of unacknowledged sends per peer; default: the SDK's", wholeNumber(1, 65_535))
    .addOption(
      new Option('--pack <switch>', 'off: make each send of a burst in a separate turn of the event loop').choices([
        'on',
        'off',
      ]),
    )
    .option('--baseline', 'the same as --against relay')
    .option(
      '--against <WHAT>',
      'first run the same against relay (stores nothing) or plain-sql; or compare with the servers redis, nats and nats-sync (repeatable)',
      oneOf([...Object.keys(YARDSTICK_NAMES), ...Object.keys(RIVAL_NAMES)]),
    )
    .option('--rounds <N>', 'the number of rounds of a comparison with other servers; default: 1', wholeNumber(1, 100))
    .option('--json <FILE>', 'write the result as JSON')
    .option('--html <FILE>', 'write the result as an HTML page with charts')
    .option('--cold', "don't exchange keys before the run; the first message of each pair then includes the exchange")
    .option('--ratchets', 'seal with ratchets, which peers keep in memory')
    .addOption(new Option('--form <form>', 'the form of frames').choices(['binary', 'json']).default('binary'))
    .addOption(
      new Option('--limits <switch>', "the broker's rate limits; default: LIMITS, or off").choices(['on', 'off']),
    )
    .option('--profile <FOLDER>', 'write CPU profiles of broker, relay and generators (.cpuprofile)')
    .option(
      '--generators <N>',
      `the number of load generator processes; default: ${GENERATORS}, beside other servers: ${COMPARED_GENERATORS}`,
      wholeNumber(1, 64),
    )
    .option(
      '--scenario <NAME>',
      'run this workload and check its figures; repeatable',
      oneOf(SCENARIOS.map(({ name }) => name)),
    )
    .option('--all', 'run every scenario')
    .option('--quick', 'run the short form of scenarios')
    .option('--shards <N>', 'the number of brokers to start on one Postgres', wholeNumber(1, 16), 1)
    .option(
      '--meshes <K>',
      'the number of meshes; peers write only within their mesh; default: one for each shard',
      wholeNumber(1, 1_000),
    )
    .option('--cells <C>', 'the number of Postgres servers to start, with --shards brokers each', wholeNumber(1, 8), 1)
    .option('--cross <SHARE>', "the share of a mesh's peers that connect to other shards than the rest", share, 0)
    .addHelpText('after', EXAMPLES())
    .showHelpAfterError(HELP_HINT)
    .allowExcessArguments(false)
    .exitOverride()
}
