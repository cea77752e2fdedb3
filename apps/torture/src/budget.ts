/** How the time of a run is divided: start-up, faults, drain and check of every part end within it, as far as that can be known. */
import { clockMs } from '@sealpost/sdk'

/** One that has a Postgres of its own is broken again and again for no longer. */
const ALONE_MS_MAX = 60_000
/** Of the whole, all of those together. */
const ALONE_SHARE = 0.4
/** A part needs so much to start, break something and be checked. */
const PART_MS_MIN = 10_000
/** Of each part, for the drain and the check. */
const REST_SHARE = 0.15

export interface Budget {
  /** When the part that begins now is to be over, with this number of parts to come. */
  partEndMs(part: { readonly isAlone: boolean; readonly aloneAfter: number }): number
  /** Whether a part that must end then can still begin. */
  hasRoom(endMs: number): boolean
  /** The last moment at which a fault may begin in a part. */
  faultsEndMs(endMs: number): number
}

/** @param now - the time, for tests */
export function budgetOf(totalMs: number, aloneCount: number, now: () => number = clockMs): Budget {
  const endMs = now() + totalMs
  const aloneMs = Math.min(ALONE_MS_MAX, (ALONE_SHARE * totalMs) / Math.max(1, aloneCount))
  return {
    partEndMs: ({ isAlone, aloneAfter }) => {
      if (!isAlone) return endMs - aloneCount * aloneMs
      // What the parts before left over, or took too much of, is shared by all that are to come.
      return now() + Math.min(ALONE_MS_MAX, (endMs - now()) / (aloneAfter + 1))
    },
    hasRoom: (partEndMs) => partEndMs - now() >= PART_MS_MIN,
    faultsEndMs: (partEndMs) => partEndMs - REST_SHARE * (partEndMs - now()),
  }
}

/** 65,000 ms as `1:05`. */
export function minutesText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
}
