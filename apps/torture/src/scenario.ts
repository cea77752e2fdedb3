/** What a scenario is: something that breaks, and the moment from which it no longer does. */
import { OperatingError } from '@sealpost/std'
import type { Measure, TortureCluster, TortureClusterOptions } from './cluster/stage.ts'

export interface TortureScenario {
  readonly name: string
  /** One line for `--list`. */
  readonly summary: string
  /** It can't share its Postgres and brokers with others, and what it needs of its own. Without it: it is mixed. */
  readonly alone?: (measure: Measure) => Alone | Promise<Alone>
  /** It needs these many peers that are silent until it calls them, in a short and in a full run. */
  readonly crowd?: { readonly short: number; readonly full: number }
  /** Why it can't be done on this machine; null: it can. */
  readonly obstacle?: () => string | null
  /** One round. */
  strike(stage: TortureCluster, fault: Fault): Promise<void>
}

export interface Alone {
  readonly setting?: Partial<TortureClusterOptions>
  /** A path that its strikes need. */
  readonly place?: string
  /** Takes away what was made for it. */
  readonly end?: () => Promise<unknown>
}

/** What the scenario tells of its fault. */
export interface Fault {
  /** From now on it is broken, for these programs of peers or for all. */
  begins(programs?: readonly number[]): void
  /** From now on it is not. */
  ends(): void
}

/** The fault fell into nothing: a run with it would show nothing. */
export function missed(sentence: string): OperatingError {
  return new OperatingError('fault_missed', sentence)
}
