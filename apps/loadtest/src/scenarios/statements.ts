/** The database's part: what a commit and a claim took, as the broker measured them at its driver. */
import type { Fact } from '@sealpost/harness/report/text'
import { count, figure } from '@sealpost/harness/report/text'
import { percentileCheck } from './percentiles.ts'
import type { Check } from './scenario.ts'

export interface StatementTimes {
  readonly commits: number
  /** In milliseconds, from above: the bound of the histogram's bucket; a minute for what is beyond the last one. */
  readonly commitMsP95: number
  readonly claims: number
  readonly claimMsP95: number
}

const P95_MS_MAX = 100
const WITHIN_MS = 5_000
const BEYOND_SECONDS = 60

/** Since the broker's start; null where nobody tells. */
export async function statementTimes(adminUrl: string | null): Promise<StatementTimes | null> {
  if (adminUrl === null) return null
  try {
    const answer = await fetch(`${adminUrl}/metrics`, { signal: AbortSignal.timeout(WITHIN_MS) })
    const text = await answer.text()
    const [commit, claim] = [timesOf(text, 'sealpost_commit_seconds'), timesOf(text, 'sealpost_claim_seconds')]
    return { commits: commit.count, commitMsP95: commit.p95, claims: claim.count, claimMsP95: claim.p95 }
  } catch {
    return null // a broker that ends; the run itself says so
  }
}

export function statementChecks(times: StatementTimes | null): Check[] {
  if (!times) return []
  const check = (of: string, samples: number, ms: number) =>
    percentileCheck({ percent: 95, samples, ms, maxMs: P95_MS_MAX, of })
  return [check('commits', times.commits, times.commitMsP95), check('claims', times.claims, times.claimMsP95)]
}

/** Beside the server's own word: the broker's waits for its own turn are in these. */
export function statementFacts(times: StatementTimes | null): Fact[] {
  if (!times || times.commits + times.claims === 0) return []
  const told = (name: string, calls: number, p95: number) => `p95 of ${count(calls)} ${name} within ${figure(p95)} ms`
  const commits = told('commits', times.commits, times.commitMsP95)
  return [['driver', `${commits}, ${told('claims', times.claims, times.claimMsP95)}, as the broker saw them`]]
}

/** Of a histogram in the text of a scrape. */
export function timesOf(text: string, name: string): { readonly count: number; readonly p95: number } {
  const lines = text.matchAll(new RegExp(`^${name}_bucket\\{le="([^"]+)"\\} (\\d+)$`, 'gm'))
  const buckets = [...lines].map(
    ([, bound, below]) => [bound === '+Inf' ? BEYOND_SECONDS : Number(bound), Number(below)] as const,
  )
  const total = buckets.at(-1)?.[1] ?? 0
  const [bound] = buckets.find(([, below]) => below >= total * 0.95) ?? [0]
  return { count: total, p95: total === 0 ? 0 : bound * 1000 }
}
