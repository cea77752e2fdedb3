/** What every scenario is: a workload with a name, what it asks of the figures, and findings of one form. */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import type { Axis } from '@sealpost/harness/report/chart'
import type { Fact } from '@sealpost/harness/report/text'
import type { LoadOptions } from '../command/arguments.ts'
import type { Display } from '../command/progress.ts'
import type { Environment } from '../environment/environment.ts'

export interface Scenario {
  readonly name: string
  /** A line of the help. */
  readonly summary: string
  /** What a published performance report measured with this workload; null: no such report. */
  readonly reported: string | null
  /** What is asked of the figure it shows. */
  readonly bar: string
  run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings>
}

export interface ScenarioSetup {
  readonly target: Environment
  readonly options: LoadOptions
  readonly display: Display
}

export interface Sheet {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** Something that is asked of the figures. */
export interface Check {
  /** `mail`: what became of it, however busy the machine is. `cost`: time, memory and the like. */
  readonly about: 'mail' | 'cost'
  readonly isMet: boolean
  /** False: there were too few samples to say, and `isMet` means nothing. */
  readonly isJudged?: boolean
  readonly sentence: string
}

export interface GraphLine {
  readonly name: string
  readonly points: readonly (readonly [x: number, y: number])[]
}

export interface Graph {
  readonly title: string
  /** What it counts; or an axis with labels of its own. */
  readonly x: string | Axis
  readonly y: string
  readonly lines: readonly GraphLine[]
}

/** Bars of a histogram. */
export interface HistogramChart {
  readonly title: string
  readonly x: string
  readonly y: string
  readonly bars: readonly (readonly [label: string, value: number])[]
}

export interface Findings {
  /** What came of it, in a few words. */
  readonly headline: string
  /** The figure that its bar is about. */
  readonly shown: string
  /** False: it ran too small for its bar to say anything. Default: whether all of its own checks were judged. */
  readonly isBarJudged?: boolean
  readonly sheets: readonly Sheet[]
  readonly facts: readonly Fact[]
  readonly checks: readonly Check[]
  readonly graphs: readonly (Graph | HistogramChart)[]
  /** Whatever a program may want to compare, by name. */
  readonly figures: ScenarioFigures
}

export interface ScenarioFigures {
  readonly [name: string]: number
  /** Of a core, of the busiest program that made the load. */
  readonly generatorShare: number
}

export const isGood = ({ checks }: Findings): boolean => checks.every(({ isMet }) => isMet)

export const isJudged = ({ isJudged: isJudgedHere = true }: Check): boolean => isJudgedHere

/** The scenario's own size, the short one of `--quick`, and what the command line asks for instead. */
export function sizeOf({ options }: ScenarioSetup, full: Size, quick: Size): Size {
  const { peers, seconds } = options.asked
  const own = options.isQuick ? quick : full
  return { peers: peers ?? own.peers, seconds: seconds ?? own.seconds }
}

export interface Size {
  readonly peers: number
  readonly seconds: number
}
