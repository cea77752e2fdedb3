/** When the next commit begins: at once, or after a pause in which it grows. */
import type { Batch } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

const FROM = 64
const BELOW = 1_000
const REST_MAX_MS = 15

/**
 * Each commit with mail for another shard makes that one collect, and has a mark and a row of the ledger for each sender and
 * frames for each peer, however few messages it carries. One of many is followed after as long as it took, by a larger one;
 * one of few at once, and so is one of very many.
 */
export function restAfter({ appends }: Pick<Batch, 'appends'>, tookMs: Millis): Millis {
  if (appends.length < FROM || appends.length >= BELOW) return 0
  return appends.some(({ epochElsewhere }) => epochElsewhere !== 0) ? Math.min(REST_MAX_MS, tookMs) : 0
}
