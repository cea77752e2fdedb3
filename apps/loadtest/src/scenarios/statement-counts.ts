/** What the server itself says of its statements while a scenario runs, where it has `pg_stat_statements`. */

import { count, figure } from '@sealpost/harness/report/text'
import { p95BoundMs, type StatementStats } from '@sealpost/store'
import type { Environment } from '../environment/environment.ts'
import { samplesFor } from './percentiles.ts'
import type { Check, Sheet } from './scenario.ts'

const P95_MS_MAX = 100
/** Those of fewer calls are not shown: the calls of the start are among them. */
const CALLS_SHOWN_MIN = 20
const CALLS_JUDGED_MIN = samplesFor(95)
/** It takes as long as its reader does. */
const STREAM = /^copy \(/i
const SHOWN = 6
const WORDS_SHOWN = 48

export class StatementCounts {
  readonly #target: Environment
  readonly #before: ReadonlyMap<string, StatementStats>

  static async begin(target: Environment): Promise<StatementCounts> {
    if (target.isDatabaseOurs) await target.databases.countStatements()
    return new StatementCounts(target, (await target.databases.statements()) ?? [])
  }

  private constructor(target: Environment, before: readonly StatementStats[]) {
    this.#target = target
    this.#before = new Map(before.map((each) => [each.text, each]))
  }

  /** Since the beginning, those that took the most time first; null where the server does not tell. */
  async end(): Promise<StatementStats[] | null> {
    const after = await this.#target.databases.statements().catch(() => null) // a server that ends; the run itself says so
    if (!after) return null
    const since = after.map((each) => difference(each, this.#before.get(each.text)))
    return since.filter(({ calls }) => calls >= CALLS_SHOWN_MIN).sort((a, b) => b.calls * b.meanMs - a.calls * a.meanMs)
  }
}

/** Sums of times and of their squares can be subtracted, means and deviations can't. */
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
  return { head: ["the server's own time", 'calls', 'mean', 'p95 at most', 'max ms'], rows }
}

/** A bound over the limit proves nothing, since the server keeps no percentiles; a mean over it does. */
export function countedChecks(counted: readonly StatementStats[] | null): Check[] {
  const judged = (counted ?? []).filter(({ text, calls }) => calls >= CALLS_JUDGED_MIN && !STREAM.test(text))
  if (judged.length === 0) return []
  const bound = Math.max(...judged.map(p95BoundMs))
  const mean = Math.max(...judged.map(({ meanMs }) => meanMs))
  const fewest = Math.min(...judged.map(({ calls }) => calls))
  const all = `p95 of each of ${count(judged.length)} statements (${count(fewest)} calls and more) by the server itself is at most ${P95_MS_MAX} ms`
  const told =
    bound <= P95_MS_MAX
      ? `(at most ${figure(bound)})`
      : `(unproven: mean up to ${figure(mean)}, p95 at most ${figure(bound)})`
  return [{ about: 'cost', isMet: mean <= P95_MS_MAX, sentence: `${all} ${told}.` }]
}
