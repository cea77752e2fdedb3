/** Reports the duration of statements, by `pg_stat_statements` and by the broker. */

import { count, type Fact, figure } from '@sealpost/harness/report/text'
import { p95BoundMs, type StatementStats } from '@sealpost/store'
import type { Environment } from '../environment/environment.ts'
import { scrapeMetrics } from '../run/result.ts'
import { type Check, costCheck, percentileCheck, type Sheet, samplesFor } from './scenario.ts'

const P95_MS_MAX = 100
/** The number of calls below which a statement is hidden, such as those of the startup. */
const CALLS_SHOWN_MIN = 20
const CALLS_JUDGED_MIN = samplesFor(95)
/** Matches statements whose duration depends on their reader. */
const STREAM = /^copy \(/i
const SHOWN = 6
const WORDS_SHOWN = 48

export class StatementCounts {
  readonly #target: Environment
  readonly #before: ReadonlyMap<string, StatementStats>

  static async begin(target: Environment): Promise<StatementCounts> {
    const { first } = target.databases
    if (target.isDatabaseOurs) await first.countStatements()
    return new StatementCounts(target, (await first.statements()) ?? [])
  }

  private constructor(target: Environment, before: readonly StatementStats[]) {
    this.#target = target
    this.#before = new Map(before.map((each) => [each.text, each]))
  }

  /** Returns the statements since the beginning, by total time; null if they are not counted. */
  async end(): Promise<StatementStats[] | null> {
    const after = await this.#target.databases.first.statements().catch(() => null) // the run reports a server that has ended
    if (!after) return null
    const since = after.map((each) => difference(each, this.#before.get(each.text)))
    return since.filter(({ calls }) => calls >= CALLS_SHOWN_MIN).sort((a, b) => b.calls * b.meanMs - a.calls * a.meanMs)
  }
}

/** Subtracts sums of times and squares, because means and deviations can't be subtracted. */
export function difference(after: StatementStats, before: StatementStats | undefined): StatementStats {
  if (!before) return after
  const calls = after.calls - before.calls
  if (calls <= 0) return { ...after, calls: 0, meanMs: 0, deviationMs: 0 }
  const squares = (of: StatementStats) => of.calls * (of.deviationMs ** 2 + of.meanMs ** 2)
  const meanMs = (after.calls * after.meanMs - before.calls * before.meanMs) / calls
  const variance = (squares(after) - squares(before)) / calls - meanMs ** 2
  return { ...after, calls, meanMs, deviationMs: Math.sqrt(Math.max(0, variance)) }
}

export function countedSheet(counted: readonly StatementStats[]): Sheet {
  const rows = counted.slice(0, SHOWN).map((each) => {
    const times = [each.meanMs, p95BoundMs(each), each.maxMs].map(figure)
    return [each.text.slice(0, WORDS_SHOWN).trim(), count(each.calls), ...times]
  })
  return { head: ['time in the server', 'calls', 'mean', 'p95 at most', 'max ms'], rows }
}

/** Returns the checks. A p95 bound above the limit proves nothing, but a mean above it does. */
export function countedChecks(counted: readonly StatementStats[] | null): Check[] {
  const judged = (counted ?? []).filter(({ text, calls }) => calls >= CALLS_JUDGED_MIN && !STREAM.test(text))
  if (judged.length === 0) return []
  const bound = Math.max(...judged.map(p95BoundMs))
  const mean = Math.max(...judged.map(({ meanMs }) => meanMs))
  const fewest = Math.min(...judged.map(({ calls }) => calls))
  const all = `p95 of each of ${count(judged.length)} statements (${count(fewest)} calls and more) by the server itself is at most ${P95_MS_MAX} ms`
  const values =
    bound <= P95_MS_MAX
      ? `(at most ${figure(bound)})`
      : `(unproven: mean up to ${figure(mean)}, p95 at most ${figure(bound)})`
  return [costCheck(mean <= P95_MS_MAX, `${all} ${values}.`)]
}

export interface StatementTimes {
  readonly commits: number
  /** The upper bound of the bucket in ms; a minute for the last. */
  readonly commitMsP95: number
  readonly claims: number
  readonly claimMsP95: number
}

const BEYOND_SECONDS = 60

/** Returns the counts and times of the statements since the broker's start; null without access to its metrics. */
export async function statementTimes(adminUrl: string | null): Promise<StatementTimes | null> {
  const metrics = await scrapeMetrics(adminUrl)
  if (metrics === null) return null
  const [commit, claim] = [timesOf(metrics, 'sealpost_commit_seconds'), timesOf(metrics, 'sealpost_claim_seconds')]
  return { commits: commit.count, commitMsP95: commit.p95, claims: claim.count, claimMsP95: claim.p95 }
}

export function statementChecks(times: StatementTimes | null): Check[] {
  if (!times) return []
  const check = (of: string, samples: number, ms: number) =>
    percentileCheck({ percent: 95, samples, ms, maxMs: P95_MS_MAX, of })
  return [check('commits', times.commits, times.commitMsP95), check('claims', times.claims, times.claimMsP95)]
}

/** Reports the broker's times, which include its waits. */
export function statementFacts(times: StatementTimes | null): Fact[] {
  if (!times || times.commits + times.claims === 0) return []
  const text = (name: string, calls: number, p95: number) => `p95 of ${count(calls)} ${name} within ${figure(p95)} ms`
  const commits = text('commits', times.commits, times.commitMsP95)
  return [['driver', `${commits}, ${text('claims', times.claims, times.claimMsP95)}, as measured by the broker`]]
}

/** Reads a histogram from the metrics. */
export function timesOf(metrics: string, name: string): { readonly count: number; readonly p95: number } {
  const lines = metrics.matchAll(new RegExp(`^${name}_bucket\\{le="([^"]+)"\\} (\\d+)$`, 'gm'))
  const buckets = [...lines].map(
    ([, bound, below]) => [bound === '+Inf' ? BEYOND_SECONDS : Number(bound), Number(below)] as const,
  )
  const total = buckets.at(-1)?.[1] ?? 0
  const [bound] = buckets.find(([, below]) => below >= total * 0.95) ?? [0]
  return { count: total, p95: total === 0 ? 0 : bound * 1000 }
}
