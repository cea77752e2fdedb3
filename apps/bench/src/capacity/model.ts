/**
 * From a load to brokers, cells and disks. Every need is computed from measured costs, then divided by what one machine
 * gives; the largest quotient counts and is named, because it says what would have to change.
 */
import { costAt, type Figures } from './figures.ts'

export interface Load {
  readonly peers: number
  /** Of the peers, at the busiest time. */
  readonly onlineShare: number
  readonly messagesPerPeerADay: number
  readonly payloadBytes: number
  /** The busiest second against the average one. */
  readonly peakFactor: number
  /** Of the messages, whose recipient is away: they are claimed when it comes. */
  readonly offlineShare: number
  /** For how long such a message waits. */
  readonly waitHours: number
  /** For how long a resend is known. */
  readonly dedupeHours: number
  /** The largest mesh. */
  readonly meshPeers: number
}

/** What one machine gives; what is not measured by us is an assumption of the plan, and an option. */
export interface Hardware {
  /** Of what a machine can do, how much is planned for. */
  readonly headroom: number
  readonly sessionsPerBroker: number
  readonly brokerMb: number
  readonly cellCores: number
  /** What a Postgres gains by each further core, of a whole one. */
  readonly cellCoreShare: number
  readonly cellDiskGb: number
  readonly cellMemoryGb: number
  readonly walMbPerSecond: number
  readonly flushesPerSecond: number
  readonly connectionsPerCell: number
  /** Copies of each cell, the one that is written to included. */
  readonly copies: number
}

/** One of the things that decide how many there must be. */
export interface Need {
  readonly what: string
  /** Of what one gives; 2.5 means three. */
  readonly count: number
}

export interface CapacityPlan {
  readonly cells: number
  readonly brokersPerCell: number
  /** In all, with one in each cell whose loss the others bear. */
  readonly brokers: number
  readonly postgresServers: number
  /** The first is what decided. */
  readonly brokerNeeds: readonly Need[]
  readonly cellNeeds: readonly Need[]
  readonly perSecond: { readonly average: number; readonly peak: number }
  readonly broker: BrokerShare
  readonly cell: CellShare
  /** Brokers that the largest mesh needs; more than one: it can have no home. */
  readonly brokersOfLargestMesh: number
}

/** What falls on one at the peak, when all but the spare ones serve. */
export interface BrokerShare {
  readonly sessions: number
  readonly perSecond: number
  readonly cores: number
  readonly memoryMb: number
  readonly bytesPerSecond: number
}

export interface CellShare {
  readonly perSecond: number
  readonly cores: number
  readonly commitsPerSecond: number
  readonly walBytesPerSecond: number
  readonly walGbADay: number
  readonly connections: number
  readonly waiting: number
  readonly diskGb: number
  /** Rows that are touched all the time. */
  readonly hotGb: number
}

/**
 * apps/broker opens this number: one that writes mail and one that writes entries, one that claims, three that ask, two for
 * operators, one for hints, two for attachments, two for history, two for its pages and two for long answers of it.
 */
export const CONNECTIONS_PER_BROKER = 17
const DAY_SECONDS = 86_400
const GB = 1e9
/** A disk that is fuller leaves no room for a vacuum that is late, or for a mesh that comes. */
const DISK_FILL = 0.7
/** Settled rows are still there until a vacuum has passed: with a queue of 2,000 messages a second it was as much again. */
const DEAD_SHARE = 2

export function planFor(load: Load, hardware: Hardware, figures: Figures): CapacityPlan {
  const average = (load.peers * load.messagesPerPeerADay) / DAY_SECONDS
  const perSecond = { average, peak: average * load.peakFactor }
  const brokerNeeds = byCount(brokerNeedsOf(load, hardware, { figures, peak: perSecond.peak }))
  const { cells, serving, cellNeeds } = settleCells(Math.ceil(brokerNeeds[0]!.count), { load, hardware, figures })
  const brokersPerCell = serving / cells + 1
  return {
    cells,
    brokersPerCell,
    brokers: brokersPerCell * cells,
    postgresServers: cells * hardware.copies,
    brokerNeeds,
    cellNeeds,
    perSecond,
    broker: brokerShare(load, figures, serving),
    cell: cellShare(load, figures, { cells, serving }),
    brokersOfLargestMesh: Math.ceil(largestMesh(load, hardware, figures)),
  }
}

interface World {
  readonly load: Load
  readonly hardware: Hardware
  readonly figures: Figures
}

/** More cells mean more brokers when each has the same number, and so a smaller rate for each: costs rise, cells too. */
function settleCells(wanted: number, { load, hardware, figures }: World) {
  let cells = 1
  for (;;) {
    const serving = Math.ceil(wanted / cells) * cells
    const total = cellShare(load, figures, { cells: 1, serving })
    const cellNeeds = byCount(cellNeedsOf(total, hardware))
    const needed = Math.ceil(cellNeeds[0]!.count)
    if (needed <= cells) return { cells, serving, cellNeeds }
    cells = needed
  }
}

function brokerNeedsOf(load: Load, hardware: Hardware, { figures, peak }: { figures: Figures; peak: number }): Need[] {
  const online = load.peers * load.onlineShare
  const roomMb = hardware.brokerMb * hardware.headroom - figures.brokerMbBusy
  return [
    { what: 'sessions', count: online / hardware.sessionsPerBroker },
    { what: 'messages', count: peak / (figures.messagesPerSecondMax * hardware.headroom) },
    { what: 'memory', count: (online * figures.sessionKb) / 1024 / Math.max(1, roomMb) },
    { what: 'heartbeats', count: (online * figures.idleCpuPerSession) / hardware.headroom },
  ]
}

/** `total`: all of the load on one cell. */
function cellNeedsOf(total: CellShare, hardware: Hardware): Need[] {
  const { headroom } = hardware
  const cores = 1 + (hardware.cellCores - 1) * hardware.cellCoreShare
  return [
    { what: 'CPU', count: total.cores / (cores * headroom) },
    { what: 'WAL', count: total.walBytesPerSecond / (hardware.walMbPerSecond * 1e6 * headroom) },
    { what: 'flushes', count: total.commitsPerSecond / (hardware.flushesPerSecond * headroom) },
    { what: 'disk', count: total.diskGb / (hardware.cellDiskGb * DISK_FILL) },
    { what: 'memory', count: total.hotGb / (hardware.cellMemoryGb * headroom) },
    // A spare broker in each cell takes its share too.
    {
      what: 'connections',
      count: total.connections / (hardware.connectionsPerCell - CONNECTIONS_PER_BROKER),
    },
  ]
}

const byCount = (needs: readonly Need[]): Need[] => needs.toSorted((a, b) => b.count - a.count)

const peakOf = (load: Load) => ((load.peers * load.messagesPerPeerADay) / DAY_SECONDS) * load.peakFactor

function brokerShare(load: Load, figures: Figures, serving: number): BrokerShare {
  const sessions = (load.peers * load.onlineShare) / serving
  const perSecond = peakOf(load) / serving
  const cost = costAt(figures, perSecond)
  const messageUs = cost.brokerUs + load.offlineShare * figures.claim.brokerUs
  return {
    sessions,
    perSecond,
    cores: (perSecond * messageUs) / 1e6 + sessions * figures.idleCpuPerSession,
    memoryMb: figures.brokerMbBusy + (sessions * figures.sessionKb) / 1024,
    bytesPerSecond: perSecond * 2 * (load.payloadBytes + WIRE_BYTES),
  }
}

/** Sealing adds 197 bytes, and frame, TLS and TCP about as many. */
const WIRE_BYTES = 400

function cellShare(load: Load, figures: Figures, of: { cells: number; serving: number }): CellShare {
  const perSecond = peakOf(load) / of.cells
  const cost = costAt(figures, peakOf(load) / of.serving)
  const walBytes = walOf(load, figures, cost.walBytes)
  const aDay = (load.peers * load.messagesPerPeerADay) / of.cells
  const waiting = aDay * load.offlineShare * (load.waitHours / 24)
  return {
    perSecond,
    cores: (perSecond * (cost.postgresUs + load.offlineShare * figures.claim.postgresUs)) / 1e6,
    commitsPerSecond: perSecond * cost.commits,
    walBytesPerSecond: perSecond * walBytes,
    walGbADay: (aDay * walBytes) / GB,
    connections: (of.serving / of.cells) * CONNECTIONS_PER_BROKER,
    waiting,
    ...storedIn(load, figures, { waiting, aDay, commits: cost.commits, peers: load.peers / of.cells }),
  }
}

function walOf(load: Load, figures: Figures, walBytes: number): number {
  const further = (load.payloadBytes - figures.payloadBytes) * figures.walPerPayloadByte
  return Math.max(0, walBytes + further + load.offlineShare * figures.claim.walBytes)
}

interface Held {
  readonly waiting: number
  readonly aDay: number
  /** Of a message: 1 means that each has one of its own. */
  readonly commits: number
  readonly peers: number
}

function storedIn(load: Load, figures: Figures, { waiting, aDay, commits, peers }: Held) {
  const { alone, gathered } = figures.ledgerBytes
  const remembered = gathered + (alone - gathered) * Math.min(1, commits)
  const queue = waiting * (figures.waiting.base + figures.waiting.perByte * load.payloadBytes) * DEAD_SHARE
  const ledger = aDay * (load.dedupeHours / 24) * remembered
  return {
    diskGb: (peers * figures.peerBytes + queue + ledger) / GB,
    hotGb: (peers * load.onlineShare * figures.peerBytes + queue) / GB,
  }
}

function largestMesh(load: Load, hardware: Hardware, figures: Figures): number {
  const share = load.meshPeers / load.peers
  const needs = brokerNeedsOf({ ...load, peers: load.meshPeers }, hardware, { figures, peak: peakOf(load) * share })
  return Math.max(...needs.map(({ count }) => count))
}
