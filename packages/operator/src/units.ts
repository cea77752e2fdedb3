/** Durations and sizes as operators read them, on a page and in a terminal. */

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
] as const

/** In the largest unit of which it has one. */
export function wholeUnits(ms: number): string {
  const [unitMs, name] = UNITS.find(([unitMs]) => ms >= unitMs) ?? [1000, 's']
  return `${Math.floor(ms / unitMs)} ${name}`
}

export function binaryBytes(count: number): string {
  const power = count < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10))
  const value = count / 1024 ** power
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`
}
