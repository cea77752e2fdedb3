/** The command line and the environment of the load test, checked before anything starts. */
import { statSync } from 'node:fs'
import { cpus } from 'node:os'
import { dirname, resolve } from 'node:path'
import { BODY_BYTES_MAX, type Form } from '@sealpost/protocol'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { BODY_BYTES_MIN } from './body.ts'

export interface LoadOptions {
  readonly peers: number
  readonly messages: number
  /** Messages a second, of all peers together; null: as fast as the window admits. */
  readonly rate: number | null
  readonly seconds: number
  readonly isSweep: boolean
  readonly window: number | null
  readonly hasBaseline: boolean
  readonly jsonFile: string | null
  readonly payloadBytes: number
  readonly isKept: boolean
  readonly isCold: boolean
  readonly form: Form
  readonly limits: 'on' | 'off'
  readonly generators: number
  readonly seed: number
  readonly drainMs: number
  readonly profileFolder: string | null
  readonly databaseUrl: string | undefined
  readonly brokerUrl: string | undefined
  readonly brokerKey: string | undefined
  readonly brokerPid: number | undefined
}

const SWEEP_PEERS = [10, 25, 50, 100]
const SWEEP_MESSAGES = 100
const DRAIN_MS = 60_000

const EXAMPLES = `
Environment:
  DATABASE_URL      a Postgres to use instead of an embedded one
  BROKER_WS_URL     a running broker to use, together with its DATABASE_URL
  BROKER_PID        its process id: adds its CPU, memory and descriptors
  BROKER_KEY        its key; default: what its /version says
  LIMITS            on or off: the rate limits of a broker that is started here; default off
  DRAIN_MS          how long to wait, after the last answer, for what is still out, in every phase; default 60000

Exit code: 0 all well · 1 something was lost, misdelivered, out of order, refused or timed out · 2 wrong usage

Examples:
  bun scripts/load-test.ts
  bun scripts/load-test.ts 100 1000 --baseline
  bun scripts/load-test.ts 100 --rate 1000 --seconds 30 --json result.json
  bun scripts/load-test.ts --sweep`

/** Prints help or usage itself. @returns the exit code instead of options when there is nothing to run */
export function readArguments(words: readonly string[], env: Record<string, string | undefined>): LoadOptions | number {
  const command = describe()
  try {
    command.parse(words, { from: 'user' })
    return toOptions(command, env)
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return error.exitCode === 0 ? 0 : 2
  }
}

/** The runs that are asked for, in order: one, or the four of a sweep. */
export function shapesOf({ isSweep, peers, messages }: LoadOptions): { peers: number; messages: number }[] {
  return isSweep ? SWEEP_PEERS.map((each) => ({ peers: each, messages: SWEEP_MESSAGES })) : [{ peers, messages }]
}

function describe(): Command {
  const generators = cpus().length <= 2 ? 1 : Math.min(4, cpus().length >> 1)
  return new Command('bun scripts/load-test.ts')
    .description('Sends sealed messages between many peers through a real broker and a real Postgres, and checks each.')
    .argument('[peers]', 'peers, each with a WebSocket of its own', whole(2, 65_535), 100)
    .argument('[messages]', 'messages that each peer sends to random others', whole(1, 10_000_000), 1000)
    .option('--rate <R>', 'open loop: R messages a second in all, instead of [messages]', whole(1, 1_000_000))
    .option('--seconds <S>', 'how long to keep up the rate; default: 30', whole(1, 86_400))
    .option('--sweep', `${SWEEP_PEERS.join(', ')} peers × ${SWEEP_MESSAGES}, as one table`)
    .option('--window <W>', "unacknowledged sends per peer; default: the SDK's", whole(1, 65_535))
    .option('--baseline', 'also run against a relay that stores nothing, and compare')
    .option('--json <FILE>', 'write the result as JSON')
    .option('--payload <BYTES>', 'bytes of each message', whole(BODY_BYTES_MIN, BODY_BYTES_MAX), 200)
    .option('--keep', 'leave broker and database running until Ctrl-C, and say how to reach them')
    .option('--cold', 'do not exchange keys before the run: the first message of each pair pays for it')
    .addOption(new Option('--form <form>', 'the form of frames').choices(['binary', 'json']).default('binary'))
    .addOption(
      new Option('--limits <switch>', "the broker's rate limits; default: LIMITS, or off").choices(['on', 'off']),
    )
    .option('--profile <FOLDER>', 'write CPU profiles of broker, relay and generators (.cpuprofile)')
    .option('--generators <N>', 'load generators, programs of their own', whole(1, 64), generators)
    .option('--seed <N>', 'chooses who writes to whom, and the bodies', whole(0, 0xffff_ffff), 1)
    .addHelpText('after', EXAMPLES)
    .showHelpAfterError(true)
    .allowExcessArguments(false)
    .exitOverride()
}

function toOptions(command: Command, env: Record<string, string | undefined>): LoadOptions {
  const [peers, messages] = command.processedArgs as [number, number]
  const given = command.opts()
  const fail = (sentence: string): never => command.error(`error: ${sentence}`, { exitCode: 2 })
  if (given.seconds && !given.rate) fail('--seconds goes with --rate')
  if (given.sweep && given.rate) fail('--sweep and --rate exclude each other')
  if (env.BROKER_WS_URL && !env.DATABASE_URL)
    fail('BROKER_WS_URL needs the DATABASE_URL of that broker, to seed its peers')
  const jsonFault = given.json === undefined ? null : faultOfFile(given.json)
  if (jsonFault) fail(`--json ${given.json}: ${jsonFault}`)
  if (!['', 'on', 'off', undefined].includes(env.LIMITS)) fail(`LIMITS must be on or off, not "${env.LIMITS}"`)
  const number = (name: string, fallback?: number) => {
    const text = env[name]
    if (!text) return fallback
    return /^\d{1,9}$/.test(text) ? Number(text) : fail(`${name} must be a whole number, not "${text}"`)
  }
  return {
    peers,
    messages,
    rate: given.rate ?? null,
    seconds: given.seconds ?? 30,
    isSweep: given.sweep === true,
    window: given.window ?? null,
    hasBaseline: given.baseline === true,
    jsonFile: given.json ?? null,
    payloadBytes: given.payload,
    isKept: given.keep === true,
    isCold: given.cold === true,
    form: given.form,
    limits: given.limits ?? (env.LIMITS || 'off'),
    generators: Math.min(given.generators, given.sweep ? SWEEP_PEERS[0]! : peers),
    seed: given.seed,
    drainMs: number('DRAIN_MS', DRAIN_MS)!,
    profileFolder: given.profile ?? null,
    databaseUrl: env.DATABASE_URL || undefined,
    brokerUrl: env.BROKER_WS_URL || undefined,
    brokerKey: env.BROKER_KEY || undefined,
    brokerPid: number('BROKER_PID'),
  }
}

/** Why nothing could be written there, told before a run of minutes rather than after it. */
function faultOfFile(file: string): string | null {
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  const path = resolve(file)
  if (!isFolder(dirname(path))) return `there is no folder ${dirname(path)}`
  return isFolder(path) ? 'that is a folder' : null
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

/** Words for Bun that make a program write its CPU profile when it ends. */
export function profileWords({ profileFolder }: Pick<LoadOptions, 'profileFolder'>): string[] {
  return profileFolder === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${resolve(profileFolder)}`]
}
