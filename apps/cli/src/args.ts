/** Kinds of words on the command line, for commander: each answers a value or says what it expects. */
import { InvalidArgumentError, Option } from 'commander'

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 } as const
const DURATION = /^(\d{1,9})([smhd])?$/

/** `30s`, `5m`, `2h`, `14d`, or plain seconds. @returns seconds */
export function parseDuration(text: string): number {
  const [, digits, unit = 's'] = DURATION.exec(text) ?? []
  if (digits === undefined || Number(digits) === 0)
    throw new InvalidArgumentError('It is a time like 30s, 5m, 2h or 14d.')
  return Number(digits) * SECONDS[unit as keyof typeof SECONDS]
}

/** An option that takes a `duration`, with the default as a person would write it. */
export function durationOption(flags: string, description: string, fallback: string): Option {
  return new Option(flags, description).argParser(parseDuration).default(parseDuration(fallback), fallback)
}

/** Of `listen` and `mcp`, whose profile remembers what was settled. */
export const maxAgeOption = (): Option =>
  new Option(
    '--max-age <TIME>',
    'reject messages that were sealed longer ago, like 12h or 30d, with a warning: they become dead letters; default: take all',
  ).argParser(parseDuration)

export function parseInteger(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = Number(text)
    if (/^\d{1,15}$/.test(text) && number >= min && number <= max) return number
    throw new InvalidArgumentError(`It is a whole number from ${min} to ${max}.`)
  }
}

const TIME = /^(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)?$/

/** @returns microseconds since 1970 */
export function parseTimestamp(text: string): { us: number } {
  const [, time, fraction = '', zone = ''] = TIME.exec(text) ?? []
  const ms = time === undefined ? Number.NaN : new Date(time + zone).getTime()
  if (!Number.isNaN(ms)) return { us: ms * 1000 + Number(fraction.padEnd(6, '0')) }
  if (/^\d{1,9}[smhd]$/.test(text)) return { us: (Date.now() - parseDuration(text) * 1000) * 1000 }
  throw new InvalidArgumentError('It is a time like 2026-11-22T14:03Z, or how long ago, like 2h.')
}
