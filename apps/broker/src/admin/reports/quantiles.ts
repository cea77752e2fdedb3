/** Percentiles of what a histogram counted between two looks at it. */
import type { Distribution } from '../../telemetry/fast-histogram.ts'

/**
 * In the unit of the bounds, and by a straight line within a bucket, as Prometheus has it; in the last bucket, which has
 * no bound, its lower one. Null: nothing was counted.
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
