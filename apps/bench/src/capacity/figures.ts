/** Reads a plan's figures, all measured, from docs/benchmarks. */
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Results, readResults } from '../figures/results.ts'

/** A message's cost at a broker's rate. At a low rate, it has its own commit; at a high one, hundreds share it. */
export interface CostPoint {
  /** The number of messages per second. */
  readonly perSecond: number
  readonly brokerUs: number
  readonly postgresUs: number
  readonly commits: number
  readonly walBytes: number
}

/** The results of `measure.ts`, in bytes with indexes. */
export interface Stored {
  readonly payloadBytes: number
  readonly commitRows: number
  readonly waitingBytes: number
  readonly ledgerBytes: number
  readonly walBytes: number
}

export interface Sizes {
  /** A member's size, with session and high-water mark. */
  readonly peerBytes: number
  readonly stored: readonly Stored[]
  /** The CPU time of a connecting peer, up to its first claim. */
  readonly handshake: { readonly brokerUs: number; readonly postgresUs: number }
}

export interface Figures {
  /** The costs, ascending by rate. */
  readonly costs: readonly CostPoint[]
  /** The payload of `costs`. */
  readonly payloadBytes: number
  /** The additional cost of a claim. */
  readonly claim: { readonly brokerUs: number; readonly postgresUs: number; readonly walBytes: number }
  /** The highest measured rate of a broker. */
  readonly messagesPerSecondMax: number
  readonly idleCpuPerSession: number
  readonly brokerMbEmpty: number
  /** A busy broker's memory, with a hundred peers. */
  readonly brokerMbBusy: number
  readonly sessionKb: number
  readonly peerBytes: number
  readonly waiting: LinearCost
  /** Bytes of WAL per payload byte: in the row, and again in page images after a checkpoint. */
  readonly walPerPayloadByte: number
  /** Bytes per remembered message: `alone` in its commit, or `gathered` with others from its sender. */
  readonly ledgerBytes: { readonly alone: number; readonly gathered: number }
  readonly handshake: Sizes['handshake']
}

/** A cost of `base + perByte × payload bytes`. */
export interface LinearCost {
  readonly base: number
  readonly perByte: number
}

const DOCS = join(import.meta.dirname, '../../../../docs/benchmarks')
export const SIZES_FILE = join(DOCS, 'sizes.json')

/** Reads the figures. @throws OperatingError `figures_missing` */
export async function readFigures(): Promise<Figures> {
  const results = await readResults(join(DOCS, 'results.json'))
  const sizes = Bun.file(SIZES_FILE)
  if (!(await sizes.exists())) throw missing('docs/benchmarks/sizes.json')
  return figuresOf(results, (await sizes.json()) as Sizes)
}

function figuresOf(results: Results, sizes: Sizes): Figures {
  const [burst, drain, idle] = [resultOf(results, 'burst'), resultOf(results, 'drain'), resultOf(results, 'idle')]
  const paced = Object.values(results.paced ?? {}).map(({ result }) => costOf(result as Run))
  if (paced.length === 0) throw missing('paced')
  const [direct, claimed] = [costOf(burst), costOf(drain)]
  const seen = ['burst', 'burst-800k', 'drain', 'peers'].flatMap((part) => Object.values(results[part] ?? {}))
  const rates = seen.map(({ result }) => result.messagesPerSecond ?? 0)
  return {
    costs: paced.toSorted((a, b) => a.perSecond - b.perSecond),
    payloadBytes: burst.payloadBytes,
    claim: {
      brokerUs: Math.max(0, claimed.brokerUs - direct.brokerUs),
      postgresUs: Math.max(0, claimed.postgresUs - direct.postgresUs),
      walBytes: Math.max(0, claimed.walBytes - direct.walBytes),
    },
    messagesPerSecondMax: Math.max(...rates),
    idleCpuPerSession: idle.cpuShare / idle.sessions,
    brokerMbEmpty: idle.rssMbBefore,
    brokerMbBusy: Math.max(...seen.map(({ result }) => result.brokerRssMbPeak ?? 0)),
    sessionKb: idle.rssKbPerSession,
    ...sizeFigures(sizes),
  }
}

interface Run {
  readonly messagesPerSecond: number
  readonly total: number
  readonly brokerCpuSeconds: number
  readonly postgresCpuSeconds: number
  readonly transactionsPerMessage: number
  readonly walBytesPerMessage: number
  readonly payloadBytes: number
  readonly cpuShare: number
  readonly sessions: number
  readonly rssMbBefore: number
  readonly rssKbPerSession: number
}

function resultOf(results: Results, part: string): Run {
  const run = results[part]?.[part]
  if (!run) throw missing(part)
  return run.result as unknown as Run
}

const missing = (what: string) =>
  new OperatingError(
    'figures_missing',
    `The figures of "${what}" are missing: see bun scripts/bench.ts --help and --measure.`,
  )

function costOf(run: Run): CostPoint {
  return {
    perSecond: run.messagesPerSecond,
    brokerUs: (run.brokerCpuSeconds * 1e6) / run.total,
    postgresUs: (run.postgresCpuSeconds * 1e6) / run.total,
    commits: run.transactionsPerMessage,
    walBytes: run.walBytesPerMessage,
  }
}

function sizeFigures({ peerBytes, stored, handshake }: Sizes) {
  const gathered = stored.filter(({ commitRows }) => commitRows > 1).toSorted((a, b) => a.payloadBytes - b.payloadBytes)
  const [small, large] = [gathered.at(0)!, gathered.at(-1)!]
  const alone = stored.find(({ commitRows }) => commitRows === 1)!
  const span = large.payloadBytes - small.payloadBytes
  const perByte = (large.waitingBytes - small.waitingBytes) / span
  return {
    peerBytes,
    handshake,
    waiting: { base: small.waitingBytes - perByte * small.payloadBytes, perByte },
    walPerPayloadByte: (large.walBytes - small.walBytes) / span,
    ledgerBytes: { alone: alone.ledgerBytes, gathered: small.ledgerBytes },
  }
}

/** Returns a message's cost at this rate, interpolated on a logarithmic scale between measured ones. */
export function costAt({ costs }: Figures, perSecond: number): CostPoint {
  const above = costs.findIndex((point) => point.perSecond >= perSecond)
  if (above <= 0) return { ...(above === 0 ? costs[0]! : costs.at(-1)!), perSecond }
  const [from, to] = [costs[above - 1]!, costs[above]!]
  const share = Math.log(perSecond / from.perSecond) / Math.log(to.perSecond / from.perSecond)
  const between = (pick: (point: CostPoint) => number) => pick(from) ** (1 - share) * pick(to) ** share
  return {
    perSecond,
    brokerUs: between((point) => point.brokerUs),
    postgresUs: between((point) => point.postgresUs),
    commits: between((point) => point.commits),
    walBytes: between((point) => point.walBytes),
  }
}
