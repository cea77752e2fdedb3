/** A moment on the command line: a time, to the microsecond if one likes, or how long ago. */
import { InvalidArgumentError } from 'commander'
import { duration } from './words.ts'

const TIME = /^(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)?$/

/** @returns microseconds since 1970 */
export function moment(text: string): { us: number } {
  const [, time, fraction = '', zone = ''] = TIME.exec(text) ?? []
  const ms = time === undefined ? Number.NaN : new Date(time + zone).getTime()
  if (!Number.isNaN(ms)) return { us: ms * 1000 + Number(fraction.padEnd(6, '0')) }
  if (/^\d{1,9}[smhd]$/.test(text)) return { us: (Date.now() - duration(text) * 1000) * 1000 }
  throw new InvalidArgumentError('It is a time like 2026-11-22T14:03Z, or how long ago, like 2h.')
}
