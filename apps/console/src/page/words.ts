/** Figures as people read them. */

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
] as const

export function age(ms: number | null): string {
  if (ms === null) return '–'
  const [unitMs, name] = UNITS.find(([unitMs]) => ms >= unitMs) ?? [1000, 's']
  return `${Math.floor(ms / unitMs)} ${name}`
}

export const count = (value: number): string => Math.round(value).toLocaleString('en')
export const rate = (value: number): string => (value > 0 && value < 10 ? value.toFixed(1) : count(value))
export const millis = (ms: number | null): string =>
  ms === null
    ? '–'
    : ms === 0
      ? '0 ms'
      : ms >= 1000
        ? `${(ms / 1000).toFixed(1)} s`
        : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`

export function bytes(value: number | null): string {
  if (value === null) return '–'
  const power = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10))
  return `${(value / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`
}

export const instant = (ms: number | null): string =>
  ms === null ? '–' : new Date(ms).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' })

export const short = (key: string): string => `${key.slice(0, 8)}…`
export const named = (name: string | null, key: string): string => name ?? short(key)
export const plain = (code: string): string => code.replaceAll('_', ' ').replaceAll('.', ': ')
