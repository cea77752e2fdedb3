/** How spaces and times are written into statements: `COPY` takes no parameters. */
import { assert, type Micros, type SpaceRef } from '@sealpost/std'

const MOMENT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/

/**
 * Reads RFC 3339 in UTC, with up to six digits of a second; clamps times after 2255. @returns null for anything else
 */
export function parseTimestamp(text: string): Micros | null {
  const [, seconds, digits = ''] = MOMENT.exec(text) ?? []
  if (seconds === undefined) return null
  const ms = Date.parse(`${seconds}Z`)
  // February 31 would become a day of March.
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(seconds)) return null
  return Math.min(Number.MAX_SAFE_INTEGER, ms * 1000 + Number(digits.padEnd(6, '0')))
}

const DAY: Micros = 86_400e6
/** A cache of the last day: consecutive times share it. */
let day = Number.NaN
let dayText = ''

/** `2026-11-22T01:02:03.123456Z` */
export function formatTimestamp(at: Micros): string {
  const ofDay = ((at % DAY) + DAY) % DAY
  if (at - ofDay !== day) {
    day = at - ofDay
    dayText = new Date(day / 1000).toISOString().slice(0, 11)
  }
  const seconds = Math.floor(ofDay / 1e6)
  const micros = String(ofDay % 1e6).padStart(6, '0')
  return `${dayText}${two(seconds / 3600)}:${two((seconds / 60) % 60)}:${two(seconds % 60)}.${micros}Z`
}

const two = (value: number): string => (value < 10 ? `0${Math.floor(value)}` : String(Math.floor(value)))

export const literal = {
  uuid(id: string): string {
    assert(/^[0-9a-f]{32}$/.test(id), 'an id is 32 hex digits')
    return `'${id}'::uuid`
  },
  moment(at: Micros): string {
    assert(Number.isSafeInteger(at), 'a moment is a whole number of microseconds')
    return `'${formatTimestamp(at)}'::timestamptz`
  },
  number(value: number): string {
    assert(Number.isSafeInteger(value), 'a number in a statement is whole')
    return String(value)
  },
}

export const ofSpace = ({ meshId, spaceId }: SpaceRef): string =>
  `mesh_id = ${literal.uuid(meshId)} and space_id = ${literal.uuid(spaceId)}`

/** `date_part` returns a double, exact to a quarter of a microsecond, at a fifth of the cost of `extract`. */
export const microsOf = (column: string): string => `round(date_part('epoch', ${column}) * 1000000)::bigint`
