/**
 * Plans the brokers, databases and disks for a load: `bun scripts/capacity.ts --peers 1M --messages 50`.
 * docs/CAPACITY.md explains the plan.
 */
import { parseArgs, runCommand } from '@sealpost/harness/programs/command'
import { startOwnPostgres } from '@sealpost/harness/programs/postgres'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Command, InvalidArgumentError } from 'commander'
import { readFigures, SIZES_FILE, type Sizes } from './figures.ts'
import { measureHandshakes, measureSizes } from './measure.ts'
import { type Hardware, type Load, planFor, usualHardware, usualLoad } from './model.ts'
import { planText, renderPage, simulationText } from './report.ts'

/** Rows of option, field, parser and meaning. */
const LOAD_ROWS = [
  ['peers', 'peers', count, 'the number of members of all meshes'],
  ['online', 'onlineShare', share, 'the share of members that is connected at the busiest time'],
  [
    'messages',
    'messagesPerPeerADay',
    count,
    'the number of messages that each member sends per day; a message to ten peers counts as ten',
  ],
  ['payload', 'payloadBytes', count, 'the size of a message in bytes, before sealing'],
  ['peak', 'peakFactor', factor, 'the ratio of the busiest second to the average'],
  ['offline', 'offlineShare', share, 'the share of messages whose recipient is offline'],
  ['wait', 'waitHours', factor, 'how many hours these messages wait'],
  ['dedupe', 'dedupeHours', factor, 'how many hours resends are recognized (DEDUPE_MS)'],
  ['mesh', 'meshPeers', count, 'the number of peers of the largest mesh'],
] as const

const HARDWARE_ROWS = [
  ['headroom', 'headroom', share, "the share of a machine's capacity to plan with"],
  ['sessions', 'sessionsPerBroker', count, 'the maximum number of connections of a broker'],
  ['broker-mb', 'brokerMb', count, 'the memory of a broker'],
  ['cores', 'cellCores', count, 'the number of cores of a Postgres server'],
  ['core-share', 'cellCoreShare', share, "the share of a core's capacity that each further core adds to Postgres"],
  ['disk', 'cellDiskGb', count, 'the disk size of a Postgres server in GB, without the WAL'],
  ['memory', 'cellMemoryGb', count, 'the memory of a Postgres server in GB'],
  ['wal', 'walMbPerSecond', count, 'the write rate of its WAL disk in MB per second'],
  ['flushes', 'flushesPerSecond', count, 'the flushes per second of that disk'],
  ['connections', 'connectionsPerCell', count, 'the number of connections that it accepts'],
  ['copies', 'copies', count, 'the number of servers of a cell, standbys included'],
] as const

const command = new Command('bun scripts/capacity.ts').description(
  'Calculate how many brokers, databases and disks a load needs, from the measured costs in docs/benchmarks.',
)
for (const [name, field, parse, meaning] of LOAD_ROWS) command.option(`--${name} <n>`, meaning, parse, usualLoad[field])
for (const [name, field, parse, meaning] of HARDWARE_ROWS)
  command.option(`--${name} <n>`, meaning, parse, usualHardware[field])
command
  .option('--simulate', 'simulate placement and the loss of a broker for this load')
  .option('--json', 'print the plan as JSON')
  .option(
    '--measure',
    'measure the sizes in the database and the handshakes, and write them to docs/benchmarks/sizes.json',
  )
  .option('--render', 'rewrite the tables of docs/CAPACITY.md')

const given = parseArgs<Record<string, number | boolean | undefined>>(command)
const load = picked(LOAD_ROWS) as unknown as Load
const hardware = picked(HARDWARE_ROWS) as unknown as Hardware

await runCommand(async (teardown) => {
  if (given.measure) await Bun.write(SIZES_FILE, `${JSON.stringify(await measured(teardown), null, 1)}\n`)
  const figures = await readFigures()
  if (given.render) await renderPage(figures)
  const plan = planFor(load, hardware, figures)
  if (given.json) console.log(JSON.stringify(plan, null, 2))
  else if (!given.render) console.log(planText({ load, hardware, plan }))
  if (given.simulate) console.log(simulationText({ load, hardware, figures, plan }))
  return 0
})

async function measured(teardown: Teardown): Promise<Sizes> {
  const server = await startOwnPostgres(teardown)
  const sizes = await measureSizes(server.url)
  return { ...sizes, handshake: await measureHandshakes(server, teardown) }
}

function picked(rows: readonly (readonly [name: string, field: string, ...rest: unknown[]])[]) {
  return Object.fromEntries(rows.map(([name, field]) => [field, given[camelCase(name)]]))
}

function camelCase(name: string): string {
  return name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
}

/** Parses a count, such as 100, 1e9, 10k and 2M. */
function count(text: string): number {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?(?:e\d+)?)([kMG]?)$/.exec(text) ?? []
  const value = Number(digits) * { '': 1, k: 1e3, M: 1e6, G: 1e9 }[unit as '' | 'k']!
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('Use a whole number greater than 0.')
  return value
}

function share(text: string): number {
  const value = factor(text)
  if (value > 1) throw new InvalidArgumentError('Use a share from 0 to 1.')
  return value
}

function factor(text: string): number {
  const value = Number(text)
  if (text === '' || !Number.isFinite(value) || value < 0) throw new InvalidArgumentError('Use a number.')
  return value
}
