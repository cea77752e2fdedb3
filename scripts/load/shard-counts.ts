/** What each broker says it did, from its metrics. */
import type { Shard } from './environment.ts'

export interface ShardCounts {
  /** Envelopes committed and acknowledged. */
  readonly accepted: number
  /** Deliveries handed to sessions. */
  readonly pushed: number
}

const NAMES: Readonly<Record<keyof ShardCounts, string>> = {
  accepted: 'sealpost_envelopes_accepted_total',
  pushed: 'sealpost_deliveries_pushed_total',
}
const WITHIN_MS = 5_000

/** Null where nobody answers: a broker that was there before keeps its metrics to itself. */
export function countsOf(shards: readonly Shard[]): Promise<(ShardCounts | null)[]> {
  return Promise.all(shards.map(({ adminUrl }) => (adminUrl === null ? null : scrape(adminUrl))))
}

export const since = (first: ShardCounts | null | undefined, last: ShardCounts | null | undefined) =>
  first && last ? { accepted: last.accepted - first.accepted, pushed: last.pushed - first.pushed } : null

async function scrape(adminUrl: string): Promise<ShardCounts | null> {
  try {
    const answer = await fetch(`${adminUrl}/metrics`, { signal: AbortSignal.timeout(WITHIN_MS) })
    const text = await answer.text()
    return { accepted: figureIn(text, NAMES.accepted), pushed: figureIn(text, NAMES.pushed) }
  } catch {
    return null // a broker that hangs; the run itself says so
  }
}

const figureIn = (text: string, name: string): number =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0)
