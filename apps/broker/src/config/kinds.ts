/** The types of settings. */
import { z } from 'zod'

/** A schema, and the end of the error sentence "NAME must be …". */
export interface SettingKind<T> {
  readonly parse: z.ZodType<T>
  readonly expects: string
}

/** Timers above this fire at once, and most of these numbers are sent in four bytes. */
export const COUNT_MAX = 2 ** 31 - 1
const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))

export const count = (unit: string, max = COUNT_MAX, min = 1): SettingKind<number> => ({
  parse: wholeNumber(min, max),
  expects: `a whole number of ${unit}, ${max === COUNT_MAX ? `at least ${min}` : `from ${min} to ${max}`}`,
})
export const PORT_MAX = 65_535
export const port: SettingKind<number> = { parse: wholeNumber(0, PORT_MAX), expects: `a port (0-${PORT_MAX})` }
export const words = (expects: string): SettingKind<string> => ({ parse: z.string(), expects })
export const oneOf = <const Word extends string>(...choices: readonly Word[]): SettingKind<Word> => ({
  parse: z.enum(choices),
  expects: `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`,
})
export const list = (expects: string, item: z.ZodType<string, string>): SettingKind<string[]> => ({
  parse: z
    .string()
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .pipe(z.array(item)),
  expects,
})
export const onOff = oneOf('on', 'off')
export const ms = (max?: number) => count('milliseconds', max)

export interface Setting<T> extends SettingKind<T> {
  readonly unit: string
  /** Text, as in the environment; `null` if the setting is required. */
  readonly fallback: string | null
  readonly meaning: string
  readonly isSecret?: boolean
}

interface Words {
  readonly fallback: string | number | null
  readonly unit: string
  readonly meaning: string
  readonly isSecret?: boolean
}
export const setting = <T>(kind: SettingKind<T>, { fallback, ...words }: Words): Setting<T> => ({
  ...kind,
  ...words,
  fallback: fallback === null ? null : String(fallback),
})
