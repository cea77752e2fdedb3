/** Figures as people read them. */

import { binaryBytes, wholeUnits } from '@sealpost/operator/texts'

export const age = (ms: number | null): string => (ms === null ? '–' : wholeUnits(ms))

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

export const bytes = (value: number | null): string => (value === null ? '–' : binaryBytes(value))

export const instant = (ms: number | null): string =>
  ms === null ? '–' : new Date(ms).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' })

export const short = (key: string): string => `${key.slice(0, 8)}…`
export const named = (name: string | null, key: string): string => name ?? short(key)
export const plain = (code: string): string => code.replaceAll('_', ' ').replaceAll('.', ': ')

/** They are counted up to a thousand. */
export const deadCount = ({ deadLetters }: { deadLetters: number }): string =>
  deadLetters < 1000 ? count(deadLetters) : '1,000+'
