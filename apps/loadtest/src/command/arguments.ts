/** The command line and the environment of the load test, checked before anything starts. */

import { hostPort } from '@sealpost/harness/command/options'
import type { Form } from '@sealpost/protocol'
import { type Command, CommanderError, type OutputConfiguration } from 'commander'
import type { AgentOptions } from '../generators/agent.ts'
import { EXCHANGE } from '../generators/body.ts'
import type { Agents } from '../generators/fleet.ts'
import type { Spread } from '../generators/spread.ts'
import { SWEEP_MESSAGES, SWEEP_PEERS } from '../scenarios/messages/sweep.ts'
import { SCENARIOS } from '../scenarios/registry.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { faultOf, listOf } from './argument-faults.ts'
import { AGENT_PLACE, type Given, IDLE_SECONDS, loadTestCommand, SOAK_RATE, type Yardstick } from './command.ts'

export interface LoadOptions {
  readonly peers: number
  readonly messages: number
  /** Messages a second, of all peers together; null: as fast as the window admits. */
  readonly rate: number | null
  readonly seconds: number
  readonly isSweep: boolean
  readonly window: number | null
  readonly against: Yardstick | null
  readonly soak: SoakOptions | null
  /** Sessions that do nothing, instead of messages. */
  readonly idle: number | null
  /** Messages of each sender to one group, instead of to random others. */
  readonly group: number | null
  readonly isThroughDrain: boolean
  readonly jsonFile: string | null
  readonly htmlFile: string | null
  /** Two results to print beside each other, instead of a run. */
  readonly compared: readonly string[] | null
  /** As it was typed. */
  readonly command: string
  readonly payloadBytes: number
  readonly isCold: boolean
  readonly form: Form
  readonly limits: 'on' | 'off'
  readonly generators: number
  readonly seed: number
  readonly drainMs: number
  readonly profileFolder: string | null
  readonly databaseUrl: string | undefined
  /** Of running brokers; empty: they are started. */
  readonly brokerUrls: readonly string[]
  readonly brokerKey: string | undefined
  readonly brokerPids: readonly number[]
  readonly spread: Spread
  /** Instead of a run by the options above. */
  readonly scenarios: readonly Scenario[]
  readonly isQuick: boolean
  /** As far as the command line says; null: it does not. */
  readonly asked: Asked
  /** Null: the generators are here. */
  readonly agents: Agents | null
  /** To be one, instead of a test. */
  readonly agent: AgentOptions | null
}

export interface Asked {
  readonly peers: number | null
  /** Of each peer, where a scenario counts messages. */
  readonly messages: number | null
  readonly seconds: number | null
}

export interface SoakOptions {
  readonly seconds: number
  /** Another session of the database holds a snapshot this long, in the middle of the run. */
  readonly holdSeconds: number | null
  /** Messages that wait for absent peers meanwhile. */
  readonly backlog: number
}

const DRAIN_MS = 60_000

/**
 * Prints help or usage itself.
 *
 * @param output - takes what is printed; default: the streams of this process
 * @returns the exit code instead of options when there is nothing to run
 */
export function readArguments(
  words: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  output: OutputConfiguration = {},
): LoadOptions | number {
  const command = loadTestCommand().configureOutput(output)
  try {
    command.parse(words, { from: 'user' })
    return { ...toOptions(command, env), command: [command.name(), ...words].join(' ') }
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return error.exitCode === 0 ? 0 : 2
  }
}

/** The runs that are asked for, in order: one, or those of a sweep. */
export function shapesOf({ isSweep, peers, messages }: LoadOptions): { peers: number; messages: number }[] {
  if (!isSweep) return [{ peers, messages }]
  return SWEEP_PEERS.filter((each) => each <= peers).map((each) => ({ peers: each, messages: SWEEP_MESSAGES }))
}

function toOptions(command: Command, env: Readonly<Record<string, string | undefined>>): Omit<LoadOptions, 'command'> {
  const given = command.opts<Given>()
  const fail = (sentence: string): never => command.error(`error: ${sentence}`, { exitCode: 2 })
  const [peers, messages] = given.idle ? [given.idle, 1] : (command.processedArgs as [number, number])
  const pace = paceOf(given)
  const surroundings = surroundingsOf(given, env)
  const spread = spreadOf(given, surroundings.brokerUrls.length)
  const fault = faultOf(given, env) ?? faultOfSize(given, { ...pace, peers, spread })
  if (fault) fail(fault)
  return {
    peers,
    messages,
    ...pace,
    ...kindOf(given),
    asked: askedOf(command, given.seconds),
    spread,
    window: given.window ?? null,
    isThroughDrain: given.throughDrain === true,
    jsonFile: given.json ?? null,
    htmlFile: given.html ?? null,
    compared: given.compare ?? null,
    payloadBytes: given.payload,
    isCold: given.cold === true,
    form: given.form,
    generators: Math.min(given.generators * (given.agents?.length ?? 1), given.sweep ? SWEEP_PEERS[0]! : peers),
    seed: given.seed,
    profileFolder: given.profile ?? null,
    ...surroundings,
  }
}

function askedOf({ args, processedArgs }: Command, seconds: number | undefined): Asked {
  const [peers, messages] = processedArgs as [number, number]
  return {
    peers: args.length > 0 ? peers : null,
    messages: args.length > 1 ? messages : null,
    seconds: seconds ?? null,
  }
}

/** Which of the runs it is. */
function kindOf({ sweep, idle, group, against, baseline, all, scenario, quick }: Given) {
  return {
    isSweep: sweep === true,
    idle: idle ?? null,
    group: group ?? null,
    against: against ?? (baseline ? ('relay' as const) : null),
    scenarios: all ? SCENARIOS : (scenario ?? []).map(scenarioNamed),
    isQuick: quick === true,
  }
}

const scenarioNamed = (named: string): Scenario => SCENARIOS.find(({ name }) => name === named)!

/** What the environment has a say in. */
function surroundingsOf(given: Given, env: Readonly<Record<string, string | undefined>>) {
  return {
    limits: given.limits ?? ((env.LIMITS || 'off') as 'on' | 'off'),
    drainMs: Number(env.DRAIN_MS || DRAIN_MS),
    databaseUrl: env.DATABASE_URL || undefined,
    brokerUrls: listOf(env.BROKER_WS_URL),
    brokerKey: env.BROKER_KEY || undefined,
    brokerPids: listOf(env.BROKER_PID).map(Number),
    agents: given.agents ? { places: given.agents, token: env.AGENT_TOKEN! } : null,
    agent: agentOf(given, env),
  }
}

function paceOf(given: Given): Pick<LoadOptions, 'rate' | 'seconds' | 'soak'> {
  const { soak, rate, holdTransaction, backlog } = given
  if (!soak) return { rate: rate ?? null, seconds: given.seconds ?? (given.idle ? IDLE_SECONDS : 30), soak: null }
  const options = { seconds: soak, holdSeconds: holdTransaction ?? null, backlog: backlog ?? 0 }
  return { rate: rate ?? SOAK_RATE, seconds: soak, soak: options }
}

function spreadOf({ shards, cells, meshes, cross }: Given, runningBrokers: number): Spread {
  const shardsThere = Math.max(shards, runningBrokers)
  return { shards: shardsThere, cells, meshes: meshes ?? shardsThere * cells, cross }
}

function agentOf({ agent }: Given, env: Readonly<Record<string, string | undefined>>): AgentOptions | null {
  if (agent === undefined) return null
  return { ...hostPort(agent === true ? AGENT_PLACE : agent)!, token: env.AGENT_TOKEN || undefined }
}

type Sized = Pick<LoadOptions, 'rate' | 'seconds' | 'peers' | 'spread'>

function faultOfSize({ sweep }: Given, of: Sized): string | null {
  const fewest = sweep ? SWEEP_PEERS[0]! : of.peers
  if (fewest < of.spread.meshes * 2) return `${of.spread.meshes} meshes need two peers each`
  if (sweep && of.peers < SWEEP_PEERS[0]!) return `--sweep begins with ${SWEEP_PEERS[0]} peers`
  const hasNumbers = (of.rate ?? 0) * of.seconds < EXCHANGE
  return hasNumbers ? null : 'too many messages to number: choose a lower rate or less time'
}
