import type { Distribution } from '../../telemetry/metrics.ts'

/**
 * Returns the percentile in the unit of the bounds, interpolated linearly within a bucket like Prometheus; in the last,
 * unbounded bucket its lower bound. Null: nothing was counted.
 */
export function quantile(before: Distribution | null, after: Distribution, share: number): number | null {
  const counts = after.counts.map((count, i) => count - (before?.counts[i] ?? 0))
  const total = counts.at(-1) ?? 0
  if (total <= 0) return null
  const rank = share * total
  const i = counts.findIndex((count) => count >= rank)
  const [upper, lower] = [after.bounds[i]!, i === 0 ? 0 : after.bounds[i - 1]!]
  if (!Number.isFinite(upper)) return lower
  const below = i === 0 ? 0 : counts[i - 1]!
  return lower + ((upper - lower) * (rank - below)) / (counts[i]! - below)
}
