/**
 * Computes brokers, cells and disks from a load. The largest ratio of cost to capacity decides, and the plan names it.
 */
import { costAt, type Figures } from './figures.ts'

export interface Load {
  readonly peers: number
  /** The share of peers online at the busiest time. */
  readonly onlineShare: number
  readonly messagesPerPeerADay: number
  readonly payloadBytes: number
  /** The busiest second's rate divided by the average. */
  readonly peakFactor: number
  /** The share of messages to offline recipients, which claim them later. */
  readonly offlineShare: number
  /** How long a message for an offline recipient waits. */
  readonly waitHours: number
  /** The period within which resends are detected. */
  readonly dedupeHours: number
  /** The largest mesh's number of members. */
  readonly meshPeers: number
}

/** A machine's capacity. Unmeasured values are assumptions, which options can change. */
export interface Hardware {
  /** The share of a machine's capacity that a plan uses. */
  readonly headroom: number
  readonly sessionsPerBroker: number
  readonly brokerMb: number
  readonly cellCores: number
  /** An additional core's capacity for Postgres, as a share of the first. */
  readonly cellCoreShare: number
  readonly cellDiskGb: number
  readonly cellMemoryGb: number
  readonly walMbPerSecond: number
  readonly flushesPerSecond: number
  readonly connectionsPerCell: number
  /** The number of servers per cell, with the primary. */
  readonly copies: number
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

/** A resource, and how many machines it requires. */
export interface Need {
  readonly what: string
  /** The number of machines; 2.5 means three. */
  readonly count: number
}

export interface CapacityPlan {
  readonly cells: number
  readonly brokersPerCell: number
  /** The number of brokers, with a spare per cell. */
  readonly brokers: number
  readonly postgresServers: number
  /** The needs, largest first. */
  readonly brokerNeeds: readonly Need[]
  readonly cellNeeds: readonly Need[]
  readonly perSecond: { readonly average: number; readonly peak: number }
  readonly broker: BrokerShare
  readonly cell: CellShare
  /** Above one, no broker can be the largest mesh's home. */
  readonly brokersOfLargestMesh: number
}

/** A broker's load at the peak; spares have none. */
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
  /** The size of the rows that should be in memory. */
  readonly hotGb: number
}

/**
 * The database connections of a broker: one each for writing messages, writing entries, claims and hints; three for
 * lookups; two each for operators, attachments, history, pages of history and long replies.
 */
export const CONNECTIONS_PER_BROKER = 17
const DAY_SECONDS = 86_400
const GB = 1e9
/** The maximum use of a disk, which leaves room for a late vacuum or a mesh that moves in. */
const DISK_FILL = 0.7
/** How much settled rows enlarge the queue until a vacuum, as measured at 2,000 messages per second. */
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

/**
 * Increases the number of cells until they carry the load. Rounding adds brokers, which lowers each one's rate and
 * increases the cost per message.
 */
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

/** Returns a cell's needs. @param total - the load on one cell */
function cellNeedsOf(total: CellShare, hardware: Hardware): Need[] {
  const { headroom } = hardware
  const cores = 1 + (hardware.cellCores - 1) * hardware.cellCoreShare
  return [
    { what: 'CPU', count: total.cores / (cores * headroom) },
    { what: 'WAL', count: total.walBytesPerSecond / (hardware.walMbPerSecond * 1e6 * headroom) },
    { what: 'flushes', count: total.commitsPerSecond / (hardware.flushesPerSecond * headroom) },
    { what: 'disk', count: total.diskGb / (hardware.cellDiskGb * DISK_FILL) },
    { what: 'memory', count: total.hotGb / (hardware.cellMemoryGb * headroom) },
    // The spare brokers have connections too.
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

/** A message's overhead on the wire: 197 bytes for sealing, and as much for frame, TLS and TCP. */
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
  /** The number of commits per message. */
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
