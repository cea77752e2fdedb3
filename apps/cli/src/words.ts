/** Kinds of words on the command line, for commander: each answers a value or says what it expects. */
import { InvalidArgumentError, Option } from 'commander'

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 } as const
const DURATION = /^(\d{1,9})([smhd])?$/

/** `30s`, `5m`, `2h`, `14d`, or plain seconds. @returns seconds */
export function duration(text: string): number {
  const [, digits, unit = 's'] = DURATION.exec(text) ?? []
  if (digits === undefined || Number(digits) === 0)
    throw new InvalidArgumentError('It is a time like 30s, 5m, 2h or 14d.')
  return Number(digits) * SECONDS[unit as keyof typeof SECONDS]
}

/** An option that takes a `duration`, with the default as a person would write it. */
export function timeOption(flags: string, description: string, fallback: string): Option {
  return new Option(flags, description).argParser(duration).default(duration(fallback), fallback)
}

/** Of `listen` and `mcp`, whose profile remembers what was settled. */
export const maxAgeOption = (): Option =>
  new Option(
    '--max-age <TIME>',
    'reject messages that were sealed longer ago, like 12h or 30d, with a warning: they become dead letters; default: take all',
  ).argParser(duration)

export function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = Number(text)
    if (/^\d{1,15}$/.test(text) && number >= min && number <= max) return number
    throw new InvalidArgumentError(`It is a whole number from ${min} to ${max}.`)
  }
}
