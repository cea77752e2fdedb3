/** Renders a plan and its simulation for a terminal, and the tables of docs/CAPACITY.md. */

import { join } from 'node:path'
import {
  count,
  type Fact,
  factList,
  figure,
  fillPage,
  markdownTable,
  percent,
  plural,
} from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import { costAt, type Figures } from './figures.ts'
import { type CapacityPlan, type Hardware, type Load, type Need, planFor, usualHardware, usualLoad } from './model.ts'
import { checkPlacement, type PlacementOutcome, type StormOutcome, weatherStorm } from './simulation.ts'

const paint = createColors(process.stdout.isTTY)

interface Planned {
  readonly load: Load
  readonly hardware: Hardware
  readonly plan: CapacityPlan
}

export function planText({ load, hardware, plan }: Planned): string {
  const { broker, cell, perSecond } = plan
  const lines: Fact[] = [
    [
      'load',
      `${count(load.peers)} peers, ${count(load.peers * load.onlineShare)} of them connected; ${perPeak(perSecond)}`,
    ],
    ['', `${count(load.payloadBytes)} bytes each, ${percent(load.offlineShare)} to offline peers`],
    ['cells', `${count(plan.cells)}: ${needsText(plan.cellNeeds)}`],
    [
      'brokers',
      `${count(plan.brokers)}, ${count(plan.brokersPerCell)} a cell, one of them spare: ${needsText(plan.brokerNeeds)}`,
    ],
    ['databases', `${plural(plan.postgresServers, 'server')}, ${hardware.copies} a cell`],
    ['', ''],
    [
      'a broker',
      `${count(broker.sessions)} sessions, ${figure(broker.perSecond)} messages/s, ${figure(broker.cores)} cores`,
    ],
    ['', `${count(broker.memoryMb)} MB of memory, ${figure(broker.bytesPerSecond / 1e6)} MB/s on the network`],
    [
      'a cell',
      `${figure(cell.perSecond)} messages/s, ${figure(cell.cores)} cores, ${count(cell.connections)} connections`,
    ],
    [
      '',
      `disk ${figure(cell.diskGb)} GB, of which ${figure(cell.hotGb)} GB belong in memory; ${count(cell.waiting)} messages wait`,
    ],
    [
      '',
      `WAL ${figure(cell.walBytesPerSecond / 1e6)} MB/s, ${figure(cell.walGbADay)} GB a day; ${figure(cell.commitsPerSecond)} commits/s`,
    ],
  ]
  return `${factList(lines, paint)}\n${remarkOf(load, plan)}`
}

function remarkOf(load: Load, { brokersOfLargestMesh }: CapacityPlan): string {
  if (brokersOfLargestMesh <= 1) return ''
  return `\n  A mesh of ${count(load.meshPeers)} peers needs ${count(brokersOfLargestMesh)} brokers at once, so it has no home: PLACEMENT=any in its cell.\n`
}

const perPeak = ({ average, peak }: CapacityPlan['perSecond']): string =>
  `${figure(average)} messages/s, ${figure(peak)} at the peak`

/** Lists the needs, the deciding one first. */
const needsText = (needs: readonly Need[]): string =>
  needs.map(({ what, count: n }) => `${what} ${n < 0.01 ? '<0.01' : figure(n)}`).join(', ')

interface Simulated extends Planned {
  readonly figures: Figures
}

/** The maximum sizes in a simulation, beyond which shares hardly change. */
const SHARDS_MAX = 200
const MESHES_MAX = 50_000
const SESSIONS_MAX = 50_000
const SEED = 6

function placementOf(
  { load, plan }: Planned,
  spread: number,
): { shards: number; meshes: number; outcome: PlacementOutcome } {
  const shards = Math.min(SHARDS_MAX, Math.max(2, plan.brokersPerCell))
  const meshes = Math.min(MESHES_MAX, Math.max(shards, Math.round(load.peers / plan.cells / 50)))
  return { shards, meshes, outcome: checkPlacement({ shards, meshes, spread, seed: SEED }) }
}

/** Returns a survivor's handshakes per second, limited by its core and the database. */
function handshakeRate({ plan, hardware, figures }: Simulated): number {
  const survivors = Math.max(1, plan.brokersPerCell - 1)
  const { brokerUs, postgresUs } = figures.handshake
  const ofBroker = ((1 - Math.min(0.9, plan.broker.cores)) * 1e6) / brokerUs
  const cores = 1 + (hardware.cellCores - 1) * hardware.cellCoreShare
  const ofDatabase = ((cores - Math.min(0.9 * cores, plan.cell.cores)) * 1e6) / postgresUs / survivors
  return Math.min(ofBroker, ofDatabase)
}

function stormOf(simulated: Simulated): { sessions: number; survivors: number; outcome: StormOutcome } {
  const { plan, load } = simulated
  const sessions = Math.min(SESSIONS_MAX, Math.max(1, Math.round(plan.broker.sessions)))
  const survivors = Math.max(1, plan.brokersPerCell - 1)
  const handshakesPerSecond = handshakeRate(simulated)
  const meshPeers = Math.max(1, Math.round(Math.min(50, load.meshPeers) * load.onlineShare))
  const setup = { sessions, meshPeers, survivors, handshakesPerSecond, unprovenMax: UNPROVEN_MAX, seed: SEED }
  return { sessions, survivors, outcome: weatherStorm(setup) }
}

const UNPROVEN_MAX = 1000

export function simulationText(simulated: Simulated): string {
  const alike = placementOf(simulated, 0)
  const uneven = placementOf(simulated, 1.5)
  const { sessions, survivors, outcome } = stormOf(simulated)
  const lines: Fact[] = [
    ['homes', `${count(alike.meshes)} meshes over ${count(alike.shards)} shards of a cell`],
    ['', `similar sizes: ${balanceText(alike.outcome)}`],
    ['', `very different sizes: ${balanceText(uneven.outcome)}`],
    [
      '',
      `${percent(alike.outcome.movedByNewShard)} of the peers move when a shard joins, ${percent(alike.outcome.movedByLoss)} when one leaves; ${alike.outcome.movedInVain} meshes move unnecessarily`,
    ],
    ['loss', `of a broker with ${count(sessions)} sessions, to ${plural(survivors, 'survivor')}: ${backText(outcome)}`],
    [
      '',
      `${count(outcome.dialsPerSecondMax)} dials in the busiest second, ${count(outcome.refused)} refused, ${count(outcome.gaveUp)} timed out and reconnected`,
    ],
  ]
  return factList(lines, paint)
}

const balanceText = ({ fullest, emptiest }: PlacementOutcome): string =>
  `the fullest holds ${figure(fullest)} times the mean, the emptiest ${figure(emptiest)} times`

const backText = ({ halfBackSeconds, mostBackSeconds, allBackSeconds }: StormOutcome): string =>
  `half are back after ${figure(halfBackSeconds)} s, 99 % after ${figure(mostBackSeconds)} s, all after ${figure(allBackSeconds)} s`

const PAGE = join(import.meta.dirname, '../../../../docs/CAPACITY.md')

export async function renderPage(figures: Figures): Promise<void> {
  await Bun.write(PAGE, fillPage(await Bun.file(PAGE).text(), capacityTables(figures)))
}

export function capacityTables(figures: Figures): Record<string, string> {
  return {
    costs: costTable(figures),
    sizes: sizeTable(figures),
    plans: planTable(figures),
    placement: placementTable(),
    storm: stormTable(figures),
  }
}

function costTable(figures: Figures): string {
  const head = [
    'messages/s per broker',
    'broker CPU, µs per message',
    'Postgres CPU, µs per message',
    'commits per message',
    'WAL bytes per message',
  ]
  const rows = [100, 1000, 3000, 10_000, 20_000].map((perSecond) => {
    const { brokerUs, postgresUs, commits, walBytes } = costAt(figures, perSecond)
    return [count(perSecond), figure(brokerUs), figure(postgresUs), figure(commits), count(walBytes)]
  })
  return markdownTable(head, rows)
}

function sizeTable(figures: Figures): string {
  const { waiting, ledgerBytes, handshake, claim } = figures
  const at = (bytes: number) => `${count(waiting.base + waiting.perByte * bytes)} bytes`
  return markdownTable(
    ['item', 'cost'],
    [
      ['a member, on disk', `${count(figures.peerBytes)} bytes`],
      ['a waiting message of 200 bytes', at(200)],
      ['a waiting message of 4,000 bytes', at(4000)],
      ['the ledger entry of a message that is committed alone', `${count(ledgerBytes.alone)} bytes`],
      [
        'the ledger entry of a message, if its commit contains five messages from its sender',
        `${count(ledgerBytes.gathered)} bytes`,
      ],
      [
        'additional CPU for a message that waited for its recipient',
        `${figure(claim.brokerUs)} µs broker, ${figure(claim.postgresUs)} µs Postgres`,
      ],
      ['additional WAL for a byte of payload', `${figure(figures.walPerPayloadByte)} bytes`],
      [
        'an idle session',
        `${figure(figures.sessionKb)} kB, ${figure(figures.idleCpuPerSession * 1e6)} µs of CPU per second`,
      ],
      [
        'a broker without sessions; with 100 busy sessions',
        `${count(figures.brokerMbEmpty)} MB; ${count(figures.brokerMbBusy)} MB`,
      ],
      ['a handshake', `${count(handshake.brokerUs)} µs broker, ${count(handshake.postgresUs)} µs Postgres`],
    ],
  )
}

/** The example plans: a row's name, and the difference from the usual load. */
const EXAMPLES: readonly (readonly [name: string, load: Partial<Load>])[] = [
  ['a team', { peers: 1_000 }],
  ['a company', { peers: 100_000 }],
  ['a service', { peers: 1_000_000 }],
  ['a service whose agents talk all day', { peers: 1_000_000, messagesPerPeerADay: 2_000, offlineShare: 0.05 }],
  ['a large service', { peers: 100_000_000, messagesPerPeerADay: 50 }],
  ['a billion people', { peers: 1_000_000_000, messagesPerPeerADay: 50, onlineShare: 0.1 }],
]

function planTable(figures: Figures): string {
  const head = [
    '',
    'peers',
    'connected',
    'peak messages/s',
    'brokers',
    'determined by',
    'cells',
    'determined by',
    'disk per cell',
  ]
  const rows = EXAMPLES.map(([name, differs]) => {
    const load = { ...usualLoad, ...differs }
    const plan = planFor(load, usualHardware, figures)
    return [
      name,
      count(load.peers),
      count(load.peers * load.onlineShare),
      count(plan.perSecond.peak),
      count(plan.brokers),
      plan.brokerNeeds[0]!.count <= 1 ? 'minimum, and a spare' : plan.brokerNeeds[0]!.what,
      count(plan.cells),
      plan.cellNeeds[0]!.count <= 1 ? '–' : plan.cellNeeds[0]!.what,
      `${figure(plan.cell.diskGb)} GB`,
    ]
  })
  return markdownTable(head, rows)
}

function placementTable(): string {
  const head = [
    'shards',
    'meshes',
    'mesh sizes',
    'fullest',
    'emptiest',
    'peers that move when a shard joins',
    'peers that move when a shard leaves',
    'fullest heir',
  ]
  const setups = [
    [3, 1_000, 0],
    [3, 1_000, 1.5],
    [10, 10_000, 0],
    [10, 10_000, 1.5],
    [50, 10_000, 0],
    [50, 10_000, 1.5],
  ] as const
  const rows = setups.map(([shards, meshes, spread]) => {
    const outcome = checkPlacement({ shards, meshes, spread, seed: 6 })
    const { fullest, emptiest, movedByNewShard, movedByLoss, fullestHeir } = outcome
    const sizes = spread === 0 ? 'similar' : 'very different'
    const moved = [movedByNewShard, movedByLoss].map(percent)
    return [
      count(shards),
      count(meshes),
      sizes,
      figure(fullest),
      figure(emptiest),
      ...moved,
      `× ${figure(fullestHeir)}`,
    ]
  })
  return markdownTable(head, rows)
}

function stormTable(figures: Figures): string {
  const head = [
    'sessions lost',
    'survivors',
    'handshakes/s per survivor',
    'half reconnected',
    '99 % reconnected',
    'all reconnected',
    'dials in the busiest second',
    'refused dials',
  ]
  const rate = (1e6 / figures.handshake.brokerUs) * (1 - usualHardware.headroom)
  const setups = [
    [10_000, 2, rate],
    [10_000, 2, rate / 4],
    [10_000, 9, rate],
    [50_000, 9, rate / 4],
  ] as const
  const rows = setups.map(([sessions, survivors, handshakesPerSecond]) => {
    const setup = { sessions, survivors, handshakesPerSecond, meshPeers: 15, unprovenMax: UNPROVEN_MAX, seed: 6 }
    const { halfBackSeconds, mostBackSeconds, allBackSeconds, dialsPerSecondMax, refused } = weatherStorm(setup)
    const seconds = [halfBackSeconds, mostBackSeconds, allBackSeconds].map((value) => `${figure(value)} s`)
    return [
      count(sessions),
      count(survivors),
      count(handshakesPerSecond),
      ...seconds,
      count(dialsPerSecondMax),
      count(refused),
    ]
  })
  return markdownTable(head, rows)
}
