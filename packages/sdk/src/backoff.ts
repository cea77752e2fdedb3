/** How long to wait before the next dial: full jitter, so that peers cut off together don't come back together. */
import type { Millis } from '@sealpost/std'

const BACKOFF_BASE_MS = 500
export const BACKOFF_MAX_MS = 30_000
/** A broker may name a longer time than our own bound; not one that amounts to never. */
export const HINT_MAX_MS = 10 * 60_000

/** After so many failures in a row, 0 for the first. */
export function backoffMs(failures: number, random: () => number): Millis {
  return random() * Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** Math.min(failures, 16))
}
