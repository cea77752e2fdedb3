/** Numbers as people read them. */
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export const count = (value: number): string => whole.format(value)

/** About three digits that mean something. */
export function figure(value: number): string {
  if (value >= 100) return whole.format(value)
  if (value > 0 && value < 0.1) return value < 0.001 ? '<0.001' : value.toFixed(3)
  return value.toFixed(value >= 10 ? 1 : 2)
}

export const orDash = (value: number | null, format = figure): string => (value === null ? '–' : format(value))

export const plural = (value: number, noun: string, nouns = `${noun}s`): string =>
  `${count(value)} ${value === 1 ? noun : nouns}`
