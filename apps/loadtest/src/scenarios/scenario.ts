/** Defines scenarios: a workload with a name, requirements and findings. */

import { cpus, loadavg } from 'node:os'
import type { ProcessUsage, ResourceUsage, UsageSample } from '@sealpost/harness/programs/machine'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { type Axis, type Bars, PERCENTILE_AXIS, spectrumLine } from '@sealpost/harness/report/chart'
import type { Latencies, Percentiles, Quantile } from '@sealpost/harness/report/latencies'
import { count, type Fact, figure, orDash, percent, plural } from '@sealpost/harness/report/text'
import { wasLimit } from '../run/result.ts'
import type { RunContext } from '../run/run.ts'

export interface Scenario {
  readonly name: string
  readonly summary: string
  /** The published figures for this workload, if any. */
  readonly reported: string | null
  /** The requirement for the figure. */
  readonly bar: string
  run(setup: RunContext, teardown: Teardown): Promise<Findings>
}

export interface Sheet {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** A requirement, and whether it is met. */
export interface Check {
  /** `mail`: the fate of messages, whatever the machine's load. `cost`: time and memory. */
  readonly about: 'mail' | 'cost'
  readonly isMet: boolean
  /** False with too few samples, in which case `isMet` means nothing. */
  readonly isJudged?: boolean
  readonly sentence: string
}

export interface GraphLine {
  readonly name: string
  readonly points: readonly (readonly [x: number, y: number])[]
}

export interface Graph {
  readonly title: string
  /** The axis's name, or an axis with labels. */
  readonly x: string | Axis
  readonly y: string
  readonly lines: readonly GraphLine[]
}

export type HistogramChart = Bars

export interface Findings {
  readonly headline: string
  /** The formatted figure that is compared with the requirement. */
  readonly shown: string
  /** False if the run was too small. Default: whether all checks were judged. */
  readonly isBarJudged?: boolean
  readonly sheets: readonly Sheet[]
  readonly facts: readonly Fact[]
  readonly checks: readonly Check[]
  readonly graphs: readonly (Graph | HistogramChart)[]
  /** Figures for programs, by name. */
  readonly figures: ScenarioFigures
}

export interface ScenarioFigures {
  readonly [name: string]: number
  /** The busiest generator's share of a core. */
  readonly generatorShare: number
}

export const isGood = ({ checks }: Findings): boolean => checks.every(({ isMet }) => isMet)

export const isJudged = ({ isJudged: isJudgedHere = true }: Check): boolean => isJudgedHere

interface Size {
  readonly peers: number
  readonly seconds: number
}

/** Returns the scenario's size, or the short one; the command line overrides both. */
export function sizeOf({ options }: RunContext, full: Size, quick: Size): Size {
  const { peers, seconds } = options.asked
  const own = options.isQuick ? quick : full
  return { peers: peers ?? own.peers, seconds: seconds ?? own.seconds }
}

export const mailCheck = (isMet: boolean, sentence: string): Check => ({ about: 'mail', isMet, sentence })
export const costCheck = (isMet: boolean, sentence: string): Check => ({ about: 'cost', isMet, sentence })

/** Measures this process's CPU time, with some scenarios' peers. */
export class Effort {
  readonly #startMs = performance.now()
  readonly #start = process.cpuUsage()

  /** The average share of a core since the start. */
  get share(): number {
    const { user, system } = process.cpuUsage(this.#start)
    return (user + system) / 1000 / Math.max(1, performance.now() - this.#startMs)
  }
}

/** Returns a check that is always met: figures that a generator limits are valid lower bounds. */
export function generatorCheck(share: number): Check {
  const used = `${percent(share)} of a core`
  if (!wasLimit(share)) return costCheck(true, `The load generator was not the limit (${used}).`)
  return costCheck(true, `Warning: the load generator was the limit (${used}). The broker may be faster.`)
}

/** The number of samples beyond a percentile, so that no single one determines it. */
const BEYOND = 10

/** Returns how many samples a percentile needs: 200 for p95, 1,000 for p99. */
export function samplesFor(percent: number): number {
  const needed = (BEYOND * 100) / (100 - percent)
  return Math.ceil(Number(needed.toFixed(6))) // rounded first, because 100 - 99.9 is a little less than 0.1
}

/** Returns how many seconds a rate needs for a percentile. */
export const secondsFor = (percent: number, perSecond: number): number => Math.ceil(samplesFor(percent) / perSecond)

interface PercentileBound {
  readonly percent: number
  /** The number of samples, or the smallest for several percentiles. */
  readonly samples: number
  readonly ms: number
  readonly maxMs: number
  /** The samples, as a plural noun. */
  readonly of: string
}

/** Checks a percentile. With too few samples, it is not judged and counts as met. */
export function percentileCheck({ percent, samples, ms, maxMs, of }: PercentileBound): Check {
  const name = `p${percent} of ${count(samples)} ${of}`
  const needed = samplesFor(percent)
  if (samples >= needed) return costCheck(ms <= maxMs, `${name} is at most ${count(maxMs)} ms (${figure(ms)}).`)
  const sentence = `${name} is not judged: this requires ${count(needed)} samples (${figure(ms)} ms measured).`
  return { ...costCheck(true, sentence), isJudged: false }
}

export const latencyCheck = (latencies: Latencies, bound: Pick<PercentileBound, 'percent' | 'maxMs' | 'of'>): Check =>
  percentileCheck({ ...bound, samples: latencies.count, ms: latencies.at(bound.percent) })

export function latencySheet(rows: readonly (readonly [name: string, of: Latencies])[]): Sheet {
  return {
    head: ['milliseconds', 'messages', 'p50', 'p95', 'p99', 'max'],
    rows: rows.map(([name, of]) => [name, count(of.count), ...[50, 95, 99, 100].map((at) => figure(of.at(at)))]),
  }
}

/** Returns a graph with a line per row, from the median up. */
export function spectrumGraph(rows: readonly (readonly [name: string, spectrum: readonly Quantile[]])[]): Graph {
  const lines = rows.map(([name, spectrum]) => spectrumLine(name, spectrum))
  const title = lines.length === 1 ? `Latency by percentile: ${lines[0]!.name}` : 'Latency by percentile'
  return { title, x: PERCENTILE_AXIS, y: 'ms', lines }
}

type PercentileName = 'p50' | 'p95' | 'p99'

/** Returns a graph with a line per percentile. */
export function percentilesGraph(
  title: string,
  x: string,
  points: readonly (readonly [x: number, of: Partial<Percentiles>])[],
  names: readonly PercentileName[] = ['p50', 'p95', 'p99'],
): Graph {
  const lines = names.map((name) => ({ name, points: points.map(([at, of]) => [at, of[name]!] as const) }))
  return { title, x, y: 'ms', lines }
}

export const BROKER_MEMORY = "The broker's memory"

export const memoryGraph = (x: string, points: GraphLine['points']): Graph => ({
  ...{ title: BROKER_MEMORY, x, y: 'MB', lines: [{ name: 'RSS', points }] },
})

/** Returns graphs of CPU and memory, of the highest broker each. */
export function usageGraphs(samples: readonly UsageSample[]): Graph[] {
  if (samples.length < 2) return []
  const pointsOf = (pick: 'brokerRssMb' | 'brokerFd') =>
    samples.flatMap((sample) => (sample[pick] === null ? [] : [[sample.seconds, sample[pick]] as const]))
  const lines = [{ name: 'open', points: pointsOf('brokerFd') }]
  return [
    memoryGraph('seconds', pointsOf('brokerRssMb')),
    { title: "The broker's descriptors", x: 'seconds', y: 'open', lines },
  ]
}

/** Returns a table of use, without totals of restarted programs. */
export function usageSheet({ brokers: shards, postgres }: ResourceUsage, seconds: number): Sheet {
  const row = (name: string, { cpuSeconds, rssMbPeak, fdMax }: ProcessUsage) => {
    const cores = cpuSeconds === null ? null : cpuSeconds / Math.max(1, seconds)
    return [name, orDash(cpuSeconds), orDash(cores), orDash(rssMbPeak), orDash(fdMax, count)]
  }
  const brokers = shards.map((shard, i) => row(shards.length === 1 ? 'broker' : `broker ${i + 1}`, shard))
  return {
    head: [`CPU over ${figure(seconds)} s`, 'seconds', 'cores', 'peak RSS MB', 'descriptors'],
    rows: [...brokers, row('Postgres', postgres)],
  }
}

/** Reports the machine's load, which affects percentiles too. */
export function machineFact({ machineCoresBusy }: ResourceUsage): Fact {
  const load = `load average ${figure(loadavg()[0]!)} on ${plural(cpus().length, 'core')}`
  const busy = machineCoresBusy === null ? '' : `, of which ${figure(machineCoresBusy)} were busy`
  return ['machine', `${load}${busy}, including other programs`]
}
