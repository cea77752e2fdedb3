/** What is wrong with the words and the environment of a load test, as one sentence. */
import { statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { Given } from './command.ts'

export function faultOf(given: Given, env: Record<string, string | undefined>): string | null {
  return faultOfWords(given) ?? faultOfEnvironment(given, env)
}

/** Words that say different things about one run. */
const EXCLUSIVE: readonly (readonly (keyof Given)[])[] = [
  ['soak', 'sweep', 'idle', 'group'],
  ['sweep', 'rate'],
  ['idle', 'rate'],
  ['group', 'rate'],
  ['soak', 'seconds'],
  ['soak', 'baseline', 'against'],
  ['idle', 'baseline', 'against'],
  ['group', 'baseline', 'against'],
]

function faultOfWords(given: Given): string | null {
  for (const names of EXCLUSIVE) {
    const [one, other] = names.filter((name) => given[name] !== undefined).map(optionOf)
    if (other) return `${one} and ${other} exclude each other`
  }
  const { soak, holdTransaction, json } = given
  if (given.seconds && !given.rate && !given.idle) return '--seconds goes with --rate or --idle'
  if (!soak && (holdTransaction || given.backlog)) return '--hold-transaction and --backlog go with --soak'
  if (holdTransaction && holdTransaction >= soak!) return '--hold-transaction must be shorter than the soak'
  const fault = json === undefined ? null : faultOfFile(json)
  return fault && `--json ${json}: ${fault}`
}

const optionOf = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

function faultOfEnvironment(given: Given, env: Record<string, string | undefined>): string | null {
  if (env.BROKER_WS_URL && !env.DATABASE_URL)
    return 'BROKER_WS_URL needs the DATABASE_URL of that broker, to seed its peers'
  if (env.BROKER_WS_URL && given.throughDrain) return '--through-drain is for a broker that is started here'
  if (env.BROKER_WS_URL && given.idle && !env.BROKER_PID) return '--idle needs the BROKER_PID of that broker'
  if (!['', 'on', 'off', undefined].includes(env.LIMITS)) return `LIMITS must be on or off, not "${env.LIMITS}"`
  for (const name of ['DRAIN_MS', 'BROKER_PID']) {
    if (env[name] && !/^\d{1,9}$/.test(env[name])) return `${name} must be a whole number, not "${env[name]}"`
  }
  return null
}

/** Why nothing could be written there, told before a run of minutes rather than after it. */
function faultOfFile(file: string): string | null {
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  const path = resolve(file)
  if (!isFolder(dirname(path))) return `there is no folder ${dirname(path)}`
  return isFolder(path) ? 'that is a folder' : null
}
