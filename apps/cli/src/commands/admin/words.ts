/** How the commands of operators show figures to people. */
import { isHex } from '@sealpost/std'
import { InvalidArgumentError } from 'commander'
import { escapeName } from '../../terminal-text.ts'

export function hex(bytes: number): (text: string) => string {
  return (text) => {
    if (isHex(text, bytes)) return text
    throw new InvalidArgumentError(`It is ${2 * bytes} hex digits.`)
  }
}

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
] as const

export function age(ms: number | null): string {
  if (ms === null) return ''
  const [unitMs, name] = UNITS.find(([unitMs]) => ms >= unitMs) ?? [1000, 's']
  return `${Math.floor(ms / unitMs)} ${name}`
}

export const instant = (ms: number | null): string =>
  ms === null ? '' : new Date(ms).toISOString().slice(0, 16).replace('T', ' ')

export const bytes = (count: number): string => {
  const power = count < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10))
  return `${(count / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`
}

export const named = (name: string | null, key: string): string => (name ? escapeName(name) : `${key.slice(0, 12)}…`)
export const millis = (ms: number | null): string => (ms === null ? '–' : `${ms} ms`)
