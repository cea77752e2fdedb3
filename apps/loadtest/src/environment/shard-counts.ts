/** What each broker did, by its metrics. */
import { OperatingError } from '@sealpost/std'
import type { Shard } from './environment.ts'

export interface ShardCounts {
  /** Envelopes committed and acknowledged. */
  readonly accepted: number
  /** Deliveries handed to sessions. */
  readonly pushed: number
  /** Of these, leased by the insert and pushed right after its commit. */
  readonly leasedOnInsert: number
  /** Taken from the queue by a claim. */
  readonly claimed: number
  /** Leased by the insert of another broker, and taken without a claim. */
  readonly collected: number
}

/** How deliveries came to their sessions. */
export type DeliveryPaths = Pick<ShardCounts, 'leasedOnInsert' | 'claimed' | 'collected'>

const NAMES: Readonly<Record<keyof ShardCounts, string>> = {
  accepted: 'sealpost_envelopes_accepted_total',
  pushed: 'sealpost_deliveries_pushed_total',
  leasedOnInsert: 'sealpost_deliveries_leased_on_insert_total',
  claimed: 'sealpost_claim_deliveries_sum',
  collected: 'sealpost_deliveries_collected_total',
}
const WITHIN_MS = 5_000

/** Null for a broker whose metrics can't be read: one that was running before keeps them on its private port. */
export function countsOf(shards: readonly Shard[]): Promise<(ShardCounts | null)[]> {
  return Promise.all(shards.map(({ adminUrl }) => (adminUrl === null ? null : scrape(adminUrl))))
}

export const since = (first: ShardCounts | null | undefined, last: ShardCounts | null | undefined) =>
  first && last ? eachCount((name) => last[name] - first[name]) : null

/** Of all brokers together; null when one of them is unknown. */
export function deliveriesOf(shards: readonly (ShardCounts | null)[]): DeliveryPaths | null {
  const known = shards.filter((counts) => counts !== null)
  if (known.length < shards.length) return null
  const sum = (name: keyof DeliveryPaths) => known.reduce((total, counts) => total + counts[name], 0)
  return { leasedOnInsert: sum('leasedOnInsert'), claimed: sum('claimed'), collected: sum('collected') }
}

/** @throws OperatingError `metric_missing` */
export const countsIn = (scraped: string): ShardCounts => eachCount((name) => figureIn(scraped, NAMES[name]))

async function scrape(adminUrl: string): Promise<ShardCounts | null> {
  const scraped = await fetch(`${adminUrl}/metrics`, { signal: AbortSignal.timeout(WITHIN_MS) })
    .then((answer) => answer.text())
    .catch(() => null) // a broker that hangs; the verdict of the run shows it
  return scraped === null ? null : countsIn(scraped)
}

function eachCount(of: (name: keyof ShardCounts) => number): ShardCounts {
  const names = Object.keys(NAMES) as (keyof ShardCounts)[]
  return Object.fromEntries(names.map((name) => [name, of(name)])) as Record<keyof ShardCounts, number>
}

function figureIn(scraped: string, name: string): number {
  const [, value] = new RegExp(`^${name} (\\S+)$`, 'm').exec(scraped) ?? []
  if (value === undefined) throw new OperatingError('metric_missing', `The broker's /metrics has no ${name}.`)
  return Number(value)
}
