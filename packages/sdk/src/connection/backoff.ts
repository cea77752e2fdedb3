/** How long to wait before the next dial: full jitter, so that peers cut off together don't come back together. */
import type { Millis } from '@sealpost/std'

const BACKOFF_BASE_MS = 500
export const BACKOFF_MAX_MS = 30_000
/**
 * In the first minute of an outage, which is what a restart takes: a waiting peer is back within this time of the broker.
 * Who comes from a herd is spread by being put off: a broker that has enough to do names a time, which counts below.
 */
export const BRIEF_MAX_MS = 5_000
/** With waits of 2.5 seconds on average that is about a minute. */
const BRIEF_FAILURES = 24
/** A broker may name a longer time than our own bound; not one that amounts to never. */
export const HINT_MAX_MS = 10 * 60_000

/** After this number of failures in a row without a reply of the broker, 0 for the first. */
export function backoffMs(failures: number, random: () => number): Millis {
  const most = failures < BRIEF_FAILURES ? BRIEF_MAX_MS : BACKOFF_MAX_MS
  return Math.min(most, spreadMs(failures)) * random()
}

/** Behind the time that the broker named, when it has put us off so often in a row. */
export function putOffMs(putOffs: number, random: () => number): Millis {
  return Math.min(BACKOFF_MAX_MS, spreadMs(putOffs)) * random()
}

const spreadMs = (times: number): Millis => BACKOFF_BASE_MS * 2 ** Math.min(times, 16)
