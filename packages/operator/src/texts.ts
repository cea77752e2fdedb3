/**
 * Formats values for pages and terminals. Imports no schemas, because the console's policy forbids zod's generated
 * code.
 */

/** Explains why a dead letter was not redriven. */
export const redriveRefusals = {
  unknown: 'no dead letter has this ID',
  not_kept: 'it expired, so its envelope was not kept',
  recipient_revoked: 'its recipient is no longer a member',
  pool_ended: 'its pool was deleted',
  busy: 'another change holds it: try again',
} as const

export type RedriveRefusal = keyof typeof redriveRefusals

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
] as const

/** Returns a duration in the largest unit that fits, such as `3 h`. */
export function wholeUnits(ms: number): string {
  const [unitMs, name] = UNITS.find(([unitMs]) => ms >= unitMs) ?? [1000, 's']
  return `${Math.floor(ms / unitMs)} ${name}`
}

export function binaryBytes(count: number): string {
  const power = count < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10))
  const value = count / 1024 ** power
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`
}
