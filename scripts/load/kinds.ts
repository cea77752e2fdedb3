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

/** One more of them: the option may be repeated. */
export const scenarioOf =
  (names: readonly string[]) =>
  (name: string, before: readonly string[] = []): readonly string[] => {
    if (names.includes(name)) return [...before, name]
    throw new InvalidArgumentError(`There is no such scenario; there are ${names.join(', ')}.`)
  }

/** From 0 to 1. */
export function share(text: string): number {
  const number = /^(0|1|0?\.\d{1,4})$/.test(text) ? Number(text) : Number.NaN
  if (number >= 0 && number <= 1) return number
  throw new InvalidArgumentError('It must be a share like 0.5, from 0 to 1.')
}

/** host:port of each; brackets around an IPv6 address. */
export function places(text: string): string[] {
  const all = text.split(',')
  if (all.every((place) => placeOf(place) !== null)) return all
  throw new InvalidArgumentError('It must be places like 10.0.0.5:7460, separated by commas.')
}

export function placeOf(text: string): { readonly host: string; readonly port: number } | null {
  const [, host, port] = /^(\[[0-9a-f:]+\]|[\w.-]+):(\d{1,5})$/i.exec(text) ?? []
  return host && Number(port) <= 65_535 ? { host: host.replace(/[[\]]/g, ''), port: Number(port) } : null
}
