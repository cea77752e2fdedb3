/**
 * Compares names by their appearance (UTS 39). Separate from the other exports of this package, so that bundles for
 * browsers don't contain the table of confusable characters.
 */
import { TABLE } from './table.ts'

let prototypes: ReadonlyMap<string, string> | undefined
/** Parses the table on first use, because most processes compare no names. */
function prototypeOf(letter: string): string {
  prototypes ??= new Map(
    TABLE.trim()
      .split(/\s/)
      .flatMap((entry) => {
        const [target, sources] = entry.split(':') as [string, string]
        const prototype = target.split('-').map(letterOf).join('')
        return sources.split(',').map((source) => [letterOf(source), prototype] as const)
      }),
  )
  return prototypes.get(letter) ?? letter
}

const letterOf = (code: string): string => String.fromCodePoint(Number.parseInt(code, 36))

/** Returns the name without differences of case. */
export const foldedName = (name: string): string =>
  name.toLowerCase().replaceAll('ς', 'σ').replaceAll('i\u0307', 'i').normalize('NFC')

/**
 * Returns the same text for two names that a reader can't distinguish. Ignores case afterwards, so that `paypaI` with a
 * capital i equals `paypal`. Not for display.
 */
export const skeletonOf = (name: string): string => withPrototypes(foldedName(withPrototypes(name)))

function withPrototypes(name: string): string {
  const letters = [...name.normalize('NFD').replace(/(?<=[ijl])\u0307/gi, '')]
  return letters.map(prototypeOf).join('').normalize('NFD')
}
