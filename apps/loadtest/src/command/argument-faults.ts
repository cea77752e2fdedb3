/** What is wrong with the words and the environment of a load test, as one sentence. */
import { statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { hostPort } from '@sealpost/harness/command/options'
import { AGENT_PLACE, type Given } from './command.ts'

export function faultOf(given: Given, env: Record<string, string | undefined>): string | null {
  return faultOfWords(given) ?? faultOfEnvironment(given, env)
}

/** Words that say different things about one run. */
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

/** They are about one broker. */
const OF_ONE_BROKER = ['idle', 'group', 'scenario', 'all', 'baseline', 'against', 'backlog'] as const

function faultOfWords(given: Given): string | null {
  for (const names of EXCLUSIVE) {
    const [one, other] = names.filter((name) => given[name] !== undefined).map(optionOf)
    if (other) return `${one} and ${other} exclude each other`
  }
  return faultOfMixture(given) ?? faultOfOutput('--json', given.json) ?? faultOfOutput('--html', given.html)
}

/** Words that mean something only with others, or only without them. */
function faultOfMixture(given: Given): string | null {
  const { soak, holdTransaction } = given
  const alone = OF_ONE_BROKER.find((name) => given[name] !== undefined)
  if (alone && (given.shards > 1 || given.cells > 1 || given.meshes !== undefined))
    return `${optionOf(alone)} is about one broker and one mesh`
  const isScenario = given.scenario !== undefined || given.all === true
  if (given.seconds && !given.rate && !given.idle && !isScenario)
    return '--seconds goes with --rate, --idle or --scenario'
  if (given.quick && !isScenario) return '--quick goes with --scenario or --all'
  if (!soak && (holdTransaction || given.backlog)) return '--hold-transaction and --backlog go with --soak'
  if (holdTransaction && holdTransaction >= soak!) return '--hold-transaction must be shorter than the soak'
  if (given.compare && given.compare.length !== 2) return '--compare takes two files'
  if (given.html && (given.idle || given.group)) return '--html is for runs of messages and for scenarios'
  return null
}

const optionOf = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/** Words of the environment with commas between them. */
export const listOf = (text: string | undefined): string[] => (text ?? '').split(',').filter((word) => word !== '')

function faultOfAgents({ agents, agent, group }: Given, env: Record<string, string | undefined>): string | null {
  if (agents && !env.AGENT_TOKEN) return '--agents needs the AGENT_TOKEN that the agents printed'
  if (agents && group) return '--group has its peers here: it goes without --agents'
  if (typeof agent === 'string' && !hostPort(agent))
    return `--agent must be a place like ${AGENT_PLACE}, not "${agent}"`
  return null
}

/** What needs brokers of its own. */
function faultOfShards({ shards, cells, cross }: Given, env: Record<string, string | undefined>): string | null {
  const running = listOf(env.BROKER_WS_URL).length
  if (running > 0 && (shards > 1 || cells > 1)) return '--shards and --cells are for brokers started here'
  if (env.DATABASE_URL && cells > 1) return '--cells starts its own databases: it goes without DATABASE_URL'
  if (cross > 0 && Math.max(shards, running) === 1) return '--cross needs a second shard'
  return null
}

function faultOfEnvironment(given: Given, env: Record<string, string | undefined>): string | null {
  if (env.BROKER_WS_URL && !env.DATABASE_URL)
    return 'BROKER_WS_URL needs the DATABASE_URL of that broker, to seed its peers'
  if (env.BROKER_WS_URL && given.throughDrain) return '--through-drain is for a broker that is started here'
  if (env.BROKER_WS_URL && given.idle && !env.BROKER_PID) return '--idle needs the BROKER_PID of that broker'
  if (!['', 'on', 'off', undefined].includes(env.LIMITS)) return `LIMITS must be on or off, not "${env.LIMITS}"`
  for (const [name, words] of Object.entries({ DRAIN_MS: [env.DRAIN_MS ?? ''], BROKER_PID: listOf(env.BROKER_PID) })) {
    const wrong = words.find((word) => word && !/^\d{1,9}$/.test(word))
    if (wrong !== undefined) return `${name} must be a whole number, not "${wrong}"`
  }
  return faultOfShards(given, env) ?? faultOfAgents(given, env)
}

function faultOfOutput(option: string, file: string | undefined): string | null {
  const fault = file === undefined ? null : faultOfFile(file)
  return fault && `${option} ${file}: ${fault}`
}

/** Why nothing could be written there, told before a run of minutes rather than after it. */
function faultOfFile(file: string): string | null {
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  const path = resolve(file)
  if (!isFolder(dirname(path))) return `there is no folder ${dirname(path)}`
  return isFolder(path) ? 'that is a folder' : null
}
