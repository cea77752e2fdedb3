/** How many samples a percentile takes before a scenario judges it. */
import type { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import type { Check } from './scenario.ts'

/** The estimate of a percentile rests on the samples beyond it; with fewer than these, one slow sample decides. */
const BEYOND = 10

/** 200 for p95, 1,000 for p99. */
export function samplesFor(percent: number): number {
  const needed = (BEYOND * 100) / (100 - percent)
  return Math.ceil(Number(needed.toFixed(6))) // 100 - 99.9 is a little less than 0.1
}

/** The seconds that a steady rate needs for a percentile to be judged. */
export const secondsFor = (percent: number, perSecond: number): number => Math.ceil(samplesFor(percent) / perSecond)

export interface Percentile {
  readonly percent: number
  /** How many samples it was taken from; of several percentiles, the fewest. */
  readonly samples: number
  readonly ms: number
  readonly maxMs: number
  /** What was sampled, in the plural. */
  readonly of: string
}

export type Bound = Pick<Percentile, 'percent' | 'maxMs' | 'of'>

/** The check that a percentile keeps its bound; not judged, and so not unmet, with too few samples. */
export function percentileCheck({ percent, samples, ms, maxMs, of }: Percentile): Check {
  const name = `p${percent} of ${count(samples)} ${of}`
  const needed = samplesFor(percent)
  if (samples < needed) {
    const sentence = `${name} is not judged: it takes ${count(needed)} (${figure(ms)} ms here).`
    return { about: 'cost', isMet: true, isJudged: false, sentence }
  }
  const isMet = ms <= maxMs
  return { about: 'cost', isMet, sentence: `${name} is at most ${count(maxMs)} ms (${figure(ms)}).` }
}

export const latencyCheck = (latencies: Latencies, bound: Bound): Check =>
  percentileCheck({ ...bound, samples: latencies.count, ms: latencies.at(bound.percent) })
