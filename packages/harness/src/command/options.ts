/** Parsers of option values, for commander. */
import { InvalidArgumentError } from 'commander'

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

/** A share from 0 to 1. */
export function share(text: string): number {
  const number = /^(0|1|0?\.\d{1,4})$/.test(text) ? Number(text) : Number.NaN
  if (number >= 0 && number <= 1) return number
  throw new InvalidArgumentError('It must be a share like 0.5, from 0 to 1.')
}

/** One of the names, for an option that may be repeated. */
export const oneOf =
  (names: readonly string[]) =>
  (name: string, before: readonly string[] = []): readonly string[] => {
    if (names.includes(name)) return [...before, name]
    throw new InvalidArgumentError(`There is no "${name}"; choose from ${names.join(', ')}.`)
  }
