/** A plan, and what its simulation showed, as text for a terminal. */

import { count, type Fact, factList, figure, plural } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import type { Figures } from './figures.ts'
import type { CapacityPlan, Hardware, Load, Need } from './model.ts'
import { checkPlacement, type PlacementOutcome } from './placement-check.ts'
import { type StormOutcome, weatherStorm } from './storm.ts'

const paint = createColors(process.stdout.isTTY)

export interface Planned {
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
    ['', `${count(load.payloadBytes)} bytes each, ${percent(load.offlineShare)} to peers that are away`],
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

export const percent = (share: number): string => `${figure(share * 100)} %`

const perPeak = ({ average, peak }: CapacityPlan['perSecond']): string =>
  `${figure(average)} messages/s, ${figure(peak)} at the peak`

/** The one that decides, then the others. */
const needsText = (needs: readonly Need[]): string =>
  needs.map(({ what, count: n }) => `${what} ${n < 0.01 ? '<0.01' : figure(n)}`).join(', ')

export interface Simulated extends Planned {
  readonly figures: Figures
}

/** Large ones are played in small: shares hardly change beyond this. */
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

/** What a survivor has left for handshakes: its own core, and its share of what the database has left. */
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

/** `UNAUTHENTICATED_MAX` as it is unless set. */
export const UNPROVEN_MAX = 1000

export function simulationText(simulated: Simulated): string {
  const alike = placementOf(simulated, 0)
  const uneven = placementOf(simulated, 1.5)
  const { sessions, survivors, outcome } = stormOf(simulated)
  const lines: Fact[] = [
    ['homes', `${count(alike.meshes)} meshes over ${count(alike.shards)} shards of a cell`],
    ['', `alike: ${balanceText(alike.outcome)}`],
    ['', `of very different sizes: ${balanceText(uneven.outcome)}`],
    [
      '',
      `${percent(alike.outcome.movedByNewcomer)} of the peers move when a shard comes, ${percent(alike.outcome.movedByLoss)} when one goes; ${alike.outcome.movedInVain} meshes in vain`,
    ],
    ['loss', `of a broker with ${count(sessions)} sessions, to ${plural(survivors, 'survivor')}: ${backText(outcome)}`],
    [
      '',
      `${count(outcome.dialsPerSecondMax)} dials in the worst second, ${count(outcome.refused)} refused, ${count(outcome.gaveUp)} gave up and came again`,
    ],
  ]
  return factList(lines, paint)
}

const balanceText = ({ fullest, emptiest }: PlacementOutcome): string =>
  `the fullest holds ${figure(fullest)} of the mean, the emptiest ${figure(emptiest)}`

const backText = ({ halfBackSeconds, mostBackSeconds, allBackSeconds }: StormOutcome): string =>
  `half are back after ${figure(halfBackSeconds)} s, 99 % after ${figure(mostBackSeconds)} s, all after ${figure(allBackSeconds)} s`
