/** The command line of the load test, and its help. */
import { cpus } from 'node:os'
import { oneOf, share, wholeNumber } from '@sealpost/harness/programs/command'
import type { Form } from '@sealpost/protocol'
import { Command, InvalidArgumentError, Option } from 'commander'
import { RIVAL_NAMES } from '../rivals/result.ts'
import { YARDSTICK_NAMES } from '../run/result.ts'
import { SWEEP_MESSAGES, SWEEP_PEERS } from '../scenarios/messages/burst.ts'
import { SCENARIOS } from '../scenarios/registry.ts'

export const SOAK_RATE = 2000
export const IDLE_SECONDS = 20
export const COMPARED_SECONDS = 10
/** A client of Redis in one program is slower than Redis. */
export const COMPARED_GENERATORS = 2
export const GENERATORS = cpus().length <= 2 ? 1 : Math.min(4, cpus().length >> 1)

const UNITS = { s: 1, m: 60, h: 3600 } as const

/** @returns seconds */
function duration(min: number, max: number): (text: string) => number {
  return (text) => {
    const [, number, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? []
    const seconds = Number(number) * UNITS[unit as keyof typeof UNITS]
    if (seconds >= min && seconds <= max) return seconds
    throw new InvalidArgumentError(`It must be a time like 90s, 20m or 1h, from ${min} to ${max} seconds.`)
  }
}

/** The options as commander returns them. */
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
  DATABASE_URL      a Postgres to use instead of an embedded one
  BROKER_WS_URL     a running broker to use, together with its DATABASE_URL; several of one database with commas
  BROKER_PID        its process id: adds its CPU, memory and descriptors; as many, with commas
  BROKER_KEY        its key; default: what its /version says
  LIMITS            on or off: the rate limits of a broker that is started here; default off
  REDIS_SERVER      the redis-server to compare with; default: the installed one
  NATS_SERVER       the nats-server to compare with; nats-sync needs version 2.10
  DRAIN_MS          how long to wait, after the last answer, for what is still out, in every phase; default 60000

Scenarios, as far as [peers] and --seconds if these are given:
${SCENARIOS.map(({ name, summary }) => `  ${name.padEnd(17)} ${summary}`).join('\n')}

Exit code: 0 all well · 1 something was lost, misdelivered, out of order, refused or timed out, or a soak's figures did
not hold · 2 wrong usage

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
    .description('Sends sealed messages between many peers through a real broker and a real Postgres, and checks each.')
    .argument('[peers]', 'peers, each with a WebSocket of its own', wholeNumber(2, 65_535), 100)
    .argument('[messages]', 'messages that each peer sends to random others', wholeNumber(1, 10_000_000), 1000)
    .option('--rate <R>', 'open loop: R messages a second in all, instead of [messages]', wholeNumber(1, 1_000_000))
    .option(
      '--seconds <S>',
      `how long to keep up the rate; default: 30, of --idle: ${IDLE_SECONDS}, beside other servers: ${COMPARED_SECONDS}`,
      wholeNumber(1, 86_400),
    )
    .option(
      '--soak <TIME>',
      `such a run of 90s, 20m or 1h, watched over time; default rate: ${SOAK_RATE}`,
      duration(5, 86_400),
    )
    .option(
      '--hold-transaction <S>',
      'in the middle of a soak another session holds a snapshot open',
      wholeNumber(1, 86_400),
    )
    .option(
      '--backlog <N>',
      'during a soak N messages wait for absent peers, who fetch them at the end',
      wholeNumber(1, 100_000_000),
    )
    .option('--idle <N>', 'no messages: what N silent sessions cost the broker', wholeNumber(2, 65_535))
    .option(
      '--group <M>',
      'half of the peers write M messages each to one group of all, and the same directly',
      wholeNumber(1, 1_000),
    )
    .option('--through-drain', 'nothing is pushed without a claim (INSERT_LEASE=off for the broker that is started)')
    .option('--sweep', `${SWEEP_PEERS.join(', ')} peers, as far as [peers], × ${SWEEP_MESSAGES}, as one table`)
    .option('--window <W>', "unacknowledged sends per peer; default: the SDK's", wholeNumber(1, 65_535))
    .addOption(
      new Option('--pack <switch>', 'off: in a burst each message is a frame of its own').choices(['on', 'off']),
    )
    .option('--baseline', 'the same as --against relay')
    .option(
      '--against <WHAT>',
      'run the same before against relay (stores nothing) or plain-sql; or compare with the servers redis, nats and nats-sync; those may be repeated',
      oneOf([...Object.keys(YARDSTICK_NAMES), ...Object.keys(RIVAL_NAMES)]),
    )
    .option('--rounds <N>', 'rounds of a comparison with other servers; default: 1', wholeNumber(1, 100))
    .option('--json <FILE>', 'write the result as JSON')
    .option('--html <FILE>', 'write the result as one page with charts, for a browser')
    .option('--cold', 'do not exchange keys before the run: the first message of each pair pays for it')
    .addOption(new Option('--form <form>', 'the form of frames').choices(['binary', 'json']).default('binary'))
    .addOption(
      new Option('--limits <switch>', "the broker's rate limits; default: LIMITS, or off").choices(['on', 'off']),
    )
    .option('--profile <FOLDER>', 'write CPU profiles of broker, relay and generators (.cpuprofile)')
    .option(
      '--generators <N>',
      `load generators, programs of their own; default: ${GENERATORS}, beside other servers: ${COMPARED_GENERATORS}`,
      wholeNumber(1, 64),
    )
    .option(
      '--scenario <NAME>',
      'another workload, with what is asked of its figures; may be repeated',
      oneOf(SCENARIOS.map(({ name }) => name)),
    )
    .option('--all', 'every scenario')
    .option('--quick', 'scenarios in their short form')
    .option('--shards <N>', 'brokers on one Postgres, all started here', wholeNumber(1, 16), 1)
    .option('--meshes <K>', 'peers write within one of K meshes; default: one for each shard', wholeNumber(1, 1_000))
    .option('--cells <C>', 'Postgres servers with that number of shards each, all started here', wholeNumber(1, 8), 1)
    .option('--cross <SHARE>', 'this share of a mesh sits on other shards than the rest of it', share, 0)
    .addHelpText('after', EXAMPLES())
    .showHelpAfterError(true)
    .allowExcessArguments(false)
    .exitOverride()
}
