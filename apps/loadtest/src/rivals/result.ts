/** Reports the figures of Sealpost and other brokers: medians of all rounds, and ratios per round. */
import { arch, cpus, platform } from 'node:os'
import { count, factList, figure, median, orDash, plural, tableText } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'

export const RIVAL_NAMES = {
  redis: 'Redis Streams, appendfsync always',
  nats: 'NATS JetStream, default (no fsync before the ack)',
  'nats-sync': 'NATS JetStream, sync_interval always',
} as const
export type RivalName = keyof typeof RIVAL_NAMES
export type ContenderName = 'sealpost' | RivalName

const NAMES: Readonly<Record<ContenderName, string>> = { sealpost: 'Sealpost', ...RIVAL_NAMES }

/** A phase's figures. Sealpost's CPU and memory include Postgres. */
export interface ContenderFigures {
  readonly perSecond: number
  /** The latency in ms, from the call to `send` or the due time to the opened message. */
  readonly p50: number
  readonly p99: number
  /** The CPU time per message. */
  readonly serverMicros: number
  readonly clientMicros: number
  readonly rssMb: number
}

/** A phase of one server in one round. */
export interface ContenderRun extends ContenderFigures {
  readonly server: ContenderName
  readonly round: number
  /** Messages per second; null for the burst. */
  readonly rate: number | null
  readonly redelivered: number
}

export interface ComparisonResult {
  readonly peers: number
  readonly messagesPerPeer: number
  readonly seconds: number
  readonly window: number
  readonly payloadBytes: number
  readonly rounds: number
  readonly clients: number
  readonly versions: Readonly<Partial<Record<ContenderName, string>>>
  readonly runs: readonly ContenderRun[]
}

export interface ComparisonRow {
  readonly rate: number | null
  readonly server: ContenderName
  readonly name: string
  readonly medians: ContenderFigures
  /** Sealpost's median ratios to this server; null for Sealpost, or if not measured. */
  readonly ratios: Readonly<Record<keyof ContenderFigures, number | null>> | null
}

const FIGURES = ['perSecond', 'p50', 'p99', 'serverMicros', 'clientMicros', 'rssMb'] as const

/** Returns a row per phase and server, in the order of the runs. */
export function comparisonRows(runs: readonly ContenderRun[]): ComparisonRow[] {
  const rates = [...new Set(runs.map(({ rate }) => rate))]
  const servers = [...new Set(runs.map(({ server }) => server))]
  return rates.flatMap((rate) => {
    const ofPhase = runs.filter((run) => run.rate === rate)
    return servers.map((server) => {
      const own = ofPhase.filter((run) => run.server === server)
      const medians = eachFigure((name) => median(own.map((run) => run[name])))
      const ratios = server === 'sealpost' ? null : eachFigure((name) => medianRatio(ofPhase, own, name))
      return { rate, server, name: NAMES[server], medians, ratios }
    })
  })
}

function medianRatio(
  ofPhase: readonly ContenderRun[],
  others: readonly ContenderRun[],
  name: keyof ContenderFigures,
): number | null {
  const ratios = others.flatMap((other) => {
    const ours = ofPhase.find(({ server, round }) => server === 'sealpost' && round === other.round)
    return ours && other[name] > 0 ? [ours[name] / other[name]] : []
  })
  return ratios.length === 0 ? null : median(ratios)
}

const eachFigure = <T>(figureOf: (name: keyof ContenderFigures) => T) =>
  Object.fromEntries(FIGURES.map((name) => [name, figureOf(name)])) as Record<keyof ContenderFigures, T>

export const phaseName = (rate: number | null): string => (rate === null ? 'burst' : `${count(rate)} messages/s`)

/** Renders medians per phase, ratios and conditions. */
export function comparisonText(result: ComparisonResult, { isColored }: { readonly isColored: boolean }): string {
  const paint = createColors(isColored)
  const rows = comparisonRows(result.runs)
  const head = ['messages/s', 'p50 ms', 'p99 ms', 'server CPU, µs', 'client CPU, µs', 'server RSS MB']
  const phases = [...Map.groupBy(rows, ({ rate }) => rate)].map(([rate, ofPhase]) => {
    const cells = ofPhase.map(({ name, medians }) => [name, ...FIGURES.map((each) => cellOf(each, medians[each]))])
    return `  ${paint.bold(phaseName(rate))}\n${tableText(['', ...head], cells, paint)}`
  })
  const ratioCells = rows.flatMap(({ rate, name, ratios }) =>
    ratios ? [[`${phaseName(rate)}, ${name}`, ...FIGURES.map((each) => orDash(ratios[each]))]] : [],
  )
  const title = `Sealpost / other, median of ${plural(result.rounds, 'round')}`
  const ratioTable = `  ${paint.bold(title)}\n${tableText(['', ...head.map(unitless)], ratioCells, paint)}`
  return `\n${[...phases, ratioTable, factList(factsOf(result), paint)].join('\n\n')}\n`
}

const cellOf = (name: keyof ContenderFigures, value: number): string =>
  name === 'perSecond' || name === 'rssMb' ? count(value) : figure(value)

const unitless = (name: string): string => name.replace(/,? (ms|µs|MB)$/, '')

function factsOf({ peers, messagesPerPeer, seconds, window, payloadBytes, clients, versions, runs }: ComparisonResult) {
  const bytes = plural(payloadBytes, 'byte')
  const redelivered = runs.filter((run) => run.redelivered > 0)
  return [
    ['clients', `${count(peers)} peers in ${plural(clients, 'program')}, ${bytes}, each sealed once and opened once`],
    ['sends', 'one send per turn of the event loop'],
    [
      'phases',
      `burst: ${count(messagesPerPeer)} of each peer, window ${count(window)}; rates: ${count(seconds)} s each`,
    ],
    ['servers', Object.values(versions).join(' · ')],
    ['counted', "Sealpost's server CPU and RSS include its Postgres; CPU is per message"],
    ['machine', `${cpus().length} cores · ${platform()} ${arch()} · Bun ${Bun.version}`],
    ...redelivered.map(
      ({ server, rate, round, redelivered: times }) =>
        [
          'twice',
          `${NAMES[server]}, ${phaseName(rate)}, round ${round}: ${plural(times, 'redelivery', 'redeliveries')}`,
        ] as const,
    ),
  ] as const
}
