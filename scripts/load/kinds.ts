/** The kinds of words on the command line, for commander. */
import { InvalidArgumentError } from 'commander'

export function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

const UNITS = { s: 1, m: 60, h: 3600 } as const

/** @returns seconds */
export function duration(min: number, max: number): (text: string) => number {
  return (text) => {
    const [, number, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? []
    const seconds = Number(number) * UNITS[unit as keyof typeof UNITS]
    if (seconds >= min && seconds <= max) return seconds
    throw new InvalidArgumentError(`It must be a time like 90s, 20m or 1h, from ${min} to ${max} seconds.`)
  }
}
