/** The command line of the capacity model. */
import { Command, InvalidArgumentError } from 'commander'
import type { Hardware, Load } from './model.ts'

export interface CapacityOptions {
  readonly load: Load
  readonly hardware: Hardware
  readonly isSimulating: boolean
  readonly isMeasuring: boolean
  readonly isRendering: boolean
  readonly isJson: boolean
}

export const usualLoad: Load = {
  peers: 100_000,
  onlineShare: 0.3,
  messagesPerPeerADay: 100,
  payloadBytes: 500,
  peakFactor: 3,
  offlineShare: 0.3,
  waitHours: 8,
  dedupeHours: 24,
  meshPeers: 200,
}

export const usualHardware: Hardware = {
  headroom: 0.5,
  sessionsPerBroker: 10_000,
  brokerMb: 1024,
  cellCores: 16,
  cellCoreShare: 0.6,
  cellDiskGb: 2000,
  cellMemoryGb: 64,
  walMbPerSecond: 200,
  flushesPerSecond: 10_000,
  connectionsPerCell: 500,
  copies: 2,
}

/** Option, whose field, what its number is, and what it means. */
const LOAD_ROWS = [
  ['peers', 'peers', count, 'members of all meshes'],
  ['online', 'onlineShare', share, 'share of them that is connected at the busiest time'],
  ['messages', 'messagesPerPeerADay', count, 'messages that each sends a day; one to ten peers counts as ten'],
  ['payload', 'payloadBytes', count, 'bytes of a message before it is sealed'],
  ['peak', 'peakFactor', factor, 'the busiest second against the average one'],
  ['offline', 'offlineShare', share, 'share of the messages whose recipient is away'],
  ['wait', 'waitHours', factor, 'hours that these wait'],
  ['dedupe', 'dedupeHours', factor, 'hours that a resend is known, DEDUPE_MS'],
  ['mesh', 'meshPeers', count, 'peers of the largest mesh'],
] as const

const HARDWARE_ROWS = [
  ['headroom', 'headroom', share, 'how much of what a machine can do is planned for'],
  ['sessions', 'sessionsPerBroker', count, 'connections of a broker'],
  ['broker-mb', 'brokerMb', count, 'memory of a broker'],
  ['cores', 'cellCores', count, 'cores of a Postgres server'],
  ['core-share', 'cellCoreShare', share, 'what a further core adds to a Postgres, of a whole one'],
  ['disk', 'cellDiskGb', count, 'disk of a Postgres server in GB, without the WAL'],
  ['memory', 'cellMemoryGb', count, 'its memory in GB'],
  ['wal', 'walMbPerSecond', count, 'MB a second that its disk for the WAL writes'],
  ['flushes', 'flushesPerSecond', count, 'flushes a second of that disk'],
  ['connections', 'connectionsPerCell', count, 'connections that it takes'],
  ['copies', 'copies', count, 'servers of a cell, standbys included'],
] as const

/** Exits for help, and with 2 for wrong usage. */
export function readOptions(words: readonly string[]): CapacityOptions {
  const command = new Command('bun scripts/capacity.ts')
    .description('Says how many brokers, databases and disks a load needs, from the measured costs in docs/benchmarks.')
    .showHelpAfterError(true)
    .allowExcessArguments(false)
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
  for (const [name, field, parse, meaning] of LOAD_ROWS)
    command.option(`--${name} <n>`, meaning, parse, usualLoad[field])
  for (const [name, field, parse, meaning] of HARDWARE_ROWS)
    command.option(`--${name} <n>`, meaning, parse, usualHardware[field])
  const given = command
    .option('--simulate', 'check placement and the loss of a broker by simulation, for this load')
    .option('--json', 'the plan as JSON')
    .option('--measure', 'measure sizes in the database and handshakes again, into docs/benchmarks/sizes.json')
    .option('--render', 'rewrite the tables of docs/CAPACITY.md')
    .parse(words, { from: 'user' })
    .opts<Record<string, number | boolean | undefined>>()
  return {
    load: picked(LOAD_ROWS, given) as unknown as Load,
    hardware: picked(HARDWARE_ROWS, given) as unknown as Hardware,
    isSimulating: given.simulate === true,
    isMeasuring: given.measure === true,
    isRendering: given.render === true,
    isJson: given.json === true,
  }
}

type Rows = readonly (readonly [name: string, field: string, ...rest: unknown[]])[]

const picked = (rows: Rows, given: Record<string, unknown>) =>
  Object.fromEntries(rows.map(([name, field]) => [field, given[camelCase(name)]]))

const camelCase = (name: string) => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())

/** Also as 1e9, 10k or 2M. */
function count(text: string): number {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?(?:e\d+)?)([kMG]?)$/.exec(text) ?? []
  const value = Number(digits) * { '': 1, k: 1e3, M: 1e6, G: 1e9 }[unit as '' | 'k']!
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('a whole number above 0, please')
  return value
}

function share(text: string): number {
  const value = factor(text)
  if (value > 1) throw new InvalidArgumentError('a share of 1 at most, please')
  return value
}

function factor(text: string): number {
  const value = Number(text)
  if (text === '' || !Number.isFinite(value) || value < 0) throw new InvalidArgumentError('a number, please')
  return value
}
