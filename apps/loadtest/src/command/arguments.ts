/** Parses the arguments and environment variables of the load test. Checks them before anything starts. */

import { statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { type Command, CommanderError, type OutputConfiguration } from 'commander'
import { YARDSTICK_NAMES, type Yardstick } from '../environment/environment.ts'
import { EXCHANGE, type Spread } from '../generators/plan.ts'
import type { ReportOutput } from '../report/page.ts'
import type { ComparisonOptions } from '../rivals/comparison.ts'
import { RIVAL_NAMES, type RivalName } from '../rivals/result.ts'
import type { Asked, WorkloadOptions } from '../run/run.ts'
import { SWEEP_MESSAGES, SWEEP_PEERS } from '../scenarios/messages/burst.ts'
import { SCENARIOS } from '../scenarios/registry.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import type { SoakOptions } from '../soak/soak.ts'
import {
  COMPARED_GENERATORS,
  COMPARED_SECONDS,
  GENERATORS,
  type Given,
  IDLE_SECONDS,
  loadTestCommand,
  SOAK_RATE,
} from './command.ts'

export interface LoadOptions extends WorkloadOptions, ReportOutput {
  readonly against: Yardstick | null
  /** The comparison with other servers that replaces the run, if any. */
  readonly comparison: ComparisonOptions | null
  readonly soak: SoakOptions | null
  /** The number of silent sessions that replace the messages. */
  readonly idle: number | null
  /** The scenarios that replace the run. */
  readonly scenarios: readonly Scenario[]
}

type Variables = Readonly<Record<string, string | undefined>>

const DRAIN_MS = 60_000

/**
 * Reads the options. Prints help and errors.
 * @param output - for the printed text; default: this process's streams
 * @returns the exit code if there is nothing to run
 */
export function readArguments(
  args: readonly string[],
  env: Variables,
  output: OutputConfiguration = {},
): LoadOptions | number {
  const command = loadTestCommand().configureOutput(output)
  try {
    command.parse(args, { from: 'user' })
    return { ...optionsOf(command, env), command: [command.name(), ...args].join(' ') }
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return error.exitCode === 0 ? 0 : 2
  }
}

/** Returns the plans of the run or sweep. */
export function shapesOf({ isSweep, peers, messages }: LoadOptions): { peers: number; messages: number }[] {
  if (!isSweep) return [{ peers, messages }]
  return SWEEP_PEERS.filter((each) => each <= peers).map((each) => ({ peers: each, messages: SWEEP_MESSAGES }))
}

function optionsOf(command: Command, env: Variables): Omit<LoadOptions, 'command'> {
  const given = command.opts<Given>()
  const [peers, messages] = given.idle ? [given.idle, 1] : (command.processedArgs as [number, number])
  const brokerUrls = listOf(env.BROKER_WS_URL)
  const pace = paceOf(given)
  const spread = spreadOf(given, brokerUrls.length)
  const fault =
    faultOfArguments(given) ?? faultOfVariables(given, env) ?? faultOfSize(given, { ...pace, peers, spread })
  if (fault) command.error(`error: ${fault}`, { exitCode: 2 })
  return {
    peers,
    messages,
    ...pace,
    ...kindOf(given),
    asked: askedOf(command, given.seconds),
    spread,
    window: given.window ?? null,
    isPacking: given.pack !== 'off',
    isRatcheted: given.ratchets === true,
    isThroughDrain: given.throughDrain === true,
    jsonFile: given.json ?? null,
    htmlFile: given.html ?? null,
    isCold: given.cold === true,
    form: given.form,
    comparison: comparisonOf(given, env),
    generators: Math.min(generatorsOf(given), given.sweep ? SWEEP_PEERS[0]! : peers),
    runtimeArgs: given.profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${resolve(given.profile)}`],
    limits: given.limits ?? ((env.LIMITS || 'off') as 'on' | 'off'),
    drainMs: Number(env.DRAIN_MS || DRAIN_MS),
    databaseUrl: env.DATABASE_URL || undefined,
    brokerUrls,
    brokerKey: env.BROKER_KEY || undefined,
    brokerPids: listOf(env.BROKER_PID).map(Number),
  }
}

function kindOf({ sweep, idle, group, against, baseline, all, scenario, quick }: Given) {
  return {
    isSweep: sweep === true,
    idle: idle ?? null,
    group: group ?? null,
    against: (against ?? []).find(isYardstick) ?? (baseline ? ('relay' as const) : null),
    scenarios: all ? SCENARIOS : (scenario ?? []).map(scenarioNamed),
    isQuick: quick === true,
  }
}

const isYardstick = (name: string): name is Yardstick => name in YARDSTICK_NAMES
const isRival = (name: string): name is RivalName => name in RIVAL_NAMES

/** Returns the servers to compare with, once each. */
const rivalsOf = ({ against = [] }: Given): RivalName[] => [...new Set(against.filter(isRival))]

function comparisonOf(given: Given, env: Variables): ComparisonOptions | null {
  const rivals = rivalsOf(given)
  if (rivals.length === 0) return null
  const programs = { redis: env.REDIS_SERVER || undefined, nats: env.NATS_SERVER || undefined }
  return { rivals, rounds: given.rounds ?? 1, programs }
}

const generatorsOf = (given: Given): number =>
  given.generators ?? (rivalsOf(given).length > 0 ? COMPARED_GENERATORS : GENERATORS)

function askedOf({ args, processedArgs }: Command, seconds: number | undefined): Asked {
  const [peers, messages] = processedArgs as [number, number]
  return {
    peers: args.length > 0 ? peers : null,
    messages: args.length > 1 ? messages : null,
    seconds: seconds ?? null,
  }
}

const scenarioNamed = (named: string): Scenario => SCENARIOS.find(({ name }) => name === named)!

/** Splits the value of a variable at its commas. */
const listOf = (text = ''): string[] => text.split(',').filter((item) => item !== '')

function paceOf(given: Given): Pick<LoadOptions, 'rate' | 'seconds' | 'soak'> {
  const { soak, rate, holdTransaction, backlog } = given
  const usual = given.idle ? IDLE_SECONDS : rivalsOf(given).length > 0 ? COMPARED_SECONDS : 30
  if (!soak) return { rate: rate ?? null, seconds: given.seconds ?? usual, soak: null }
  const options = { seconds: soak, holdSeconds: holdTransaction ?? null, backlog: backlog ?? 0 }
  return { rate: rate ?? SOAK_RATE, seconds: soak, soak: options }
}

function spreadOf({ shards, cells, meshes, cross }: Given, runningBrokers: number): Spread {
  const allShards = Math.max(shards, runningBrokers)
  return { shards: allShards, cells, meshes: meshes ?? allShards * cells, cross }
}

/** Groups of options that exclude each other. */
const EXCLUSIVE: readonly (readonly (keyof Given)[])[] = [
  ['soak', 'sweep', 'idle', 'group', 'scenario', 'all'],
  ['sweep', 'rate'],
  ['idle', 'rate'],
  ['group', 'rate'],
  ['soak', 'seconds'],
  ['soak', 'baseline', 'against'],
  ['scenario', 'all', 'baseline', 'against'],
  ['idle', 'baseline', 'against'],
  ['group', 'baseline', 'against'],
]
/** Options that can't be combined with a burst. */
const NO_BURST = ['rate', 'soak', 'idle', 'group', 'scenario', 'all'] as const

const FOR_ONE_BROKER = ['idle', 'group', 'scenario', 'all', 'baseline', 'against', 'backlog'] as const

/** Returns why the arguments are invalid, if they are. */
function faultOfArguments(given: Given): string | null {
  for (const names of EXCLUSIVE) {
    const [one, other] = names.filter((name) => given[name] !== undefined).map(optionNamed)
    if (other) return `${one} and ${other} exclude each other`
  }
  return (
    faultOfCombination(given) ??
    faultOfComparison(given) ??
    faultOfOutput('--json', given.json) ??
    faultOfOutput('--html', given.html)
  )
}

/** Checks options that require or exclude another. */
function faultOfCombination(given: Given): string | null {
  const { soak, holdTransaction } = given
  if (given.pack && NO_BURST.some((name) => given[name] !== undefined)) return '--pack requires a burst'
  const alone = FOR_ONE_BROKER.find((name) => given[name] !== undefined)
  if (alone && (given.shards > 1 || given.cells > 1 || given.meshes !== undefined))
    return `${optionNamed(alone)} requires one broker and one mesh`
  const isScenario = given.scenario !== undefined || given.all === true
  const isComparison = rivalsOf(given).length > 0
  if (given.seconds && !given.rate && !given.idle && !isScenario && !isComparison)
    return '--seconds requires --rate, --idle, --scenario or a comparison with other servers'
  if (given.quick && !isScenario) return '--quick requires --scenario or --all'
  if (!soak && (holdTransaction || given.backlog)) return '--hold-transaction and --backlog require --soak'
  if (holdTransaction && holdTransaction >= soak!) return '--hold-transaction must be shorter than the soak'
  if (given.html && (given.idle || given.group)) return '--html is not available with --idle and --group'
  return null
}

/** Options without effect on a comparison. */
const NOT_COMPARED = ['rate', 'sweep', 'html', 'cold', 'ratchets', 'pack', 'throughDrain', 'limits', 'profile'] as const

function faultOfComparison(given: Given): string | null {
  const { against = [], rounds } = given
  const [yardstick, [rival]] = [against.find(isYardstick), rivalsOf(given)]
  if (yardstick && against.length > 1) return `--against ${yardstick} excludes any other --against`
  if (rounds && !rival) return '--rounds requires --against redis, nats or nats-sync'
  if (!rival) return null
  const excluded = NOT_COMPARED.find((name) => given[name] !== undefined)
  if (excluded) return `${optionNamed(excluded)} and --against ${rival} exclude each other`
  return given.form === 'binary' ? null : `--form ${given.form} and --against ${rival} exclude each other`
}

const optionNamed = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/** Checks the output file at startup, so that a long run does not fail at its end. */
function faultOfOutput(option: string, file: string | undefined): string | null {
  if (file === undefined) return null
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  const path = resolve(file)
  if (!isFolder(dirname(path))) return `${option} ${file}: there is no folder ${dirname(path)}`
  return isFolder(path) ? `${option} ${file}: this is a folder` : null
}

function faultOfVariables(given: Given, env: Variables): string | null {
  if (env.BROKER_WS_URL && !env.DATABASE_URL)
    return 'BROKER_WS_URL requires the DATABASE_URL of that broker, to create its peers'
  if (env.BROKER_WS_URL && rivalsOf(given).length > 0)
    return 'a comparison with other servers starts its own broker and excludes BROKER_WS_URL'
  if (env.BROKER_WS_URL && given.throughDrain) return '--through-drain excludes BROKER_WS_URL'
  if (env.BROKER_WS_URL && given.idle && !env.BROKER_PID) return '--idle with BROKER_WS_URL requires BROKER_PID'
  if (!['', 'on', 'off', undefined].includes(env.LIMITS)) return `LIMITS must be on or off, not "${env.LIMITS}"`
  const numbers = { DRAIN_MS: [env.DRAIN_MS ?? ''], BROKER_PID: listOf(env.BROKER_PID) }
  for (const [name, values] of Object.entries(numbers)) {
    const wrong = values.find((value) => value && !/^\d{1,9}$/.test(value))
    if (wrong !== undefined) return `${name} must be a whole number, not "${wrong}"`
  }
  return faultOfShards(given, env)
}

function faultOfShards({ shards, cells, cross }: Given, env: Variables): string | null {
  const running = listOf(env.BROKER_WS_URL).length
  if (running > 0 && (shards > 1 || cells > 1)) return '--shards and --cells exclude BROKER_WS_URL'
  if (env.DATABASE_URL && cells > 1) return '--cells starts its own databases and excludes DATABASE_URL'
  if (cross > 0 && Math.max(shards, running) === 1) return '--cross requires a second shard'
  return null
}

type Sized = Pick<LoadOptions, 'rate' | 'seconds' | 'peers' | 'spread'>

function faultOfSize({ sweep }: Given, { rate, seconds, peers, spread }: Sized): string | null {
  const fewest = sweep ? SWEEP_PEERS[0]! : peers
  if (fewest < spread.meshes * 2) return `${spread.meshes} meshes require at least two peers each`
  if (sweep && peers < SWEEP_PEERS[0]!) return `--sweep requires at least ${SWEEP_PEERS[0]} peers`
  const hasNumbers = (rate ?? 0) * seconds < EXCHANGE
  return hasNumbers ? null : 'too many messages: choose a lower rate or a shorter time'
}
