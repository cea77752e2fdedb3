/**
 * Text of peers on its way to a terminal. What could move the cursor, colour, turn the direction of reading or hide is
 * shown as an escape, so that nobody can write a line that looks like another one's. `output.ts` escapes JSON output in the way of JSON.
 */

/** Controls (ANSI begins with one), format characters such as direction overrides, line separators, lone surrogates. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** Joiners shape letters of some scripts and emoji; in running text they stay. */
const JOINERS = ['\u200c', '\u200d']

/** A name, or anything else that must stay in one line and look like nothing else. */
export function escapeName(text: string): string {
  return text.replace(UNSAFE, escaped)
}

/** Running text. Further lines begin with `indent`, so that none can be taken for a line of ours. */
export function escapeText(text: string, indent: string): string {
  return text
    .replace(/\r?\n$/, '')
    .split(/\r?\n/)
    .map((line) => line.replace(UNSAFE, (unsafe) => (isHarmless(unsafe) ? unsafe : escaped(unsafe))))
    .join(`\n${indent}`)
}

const isHarmless = (character: string): boolean => character === '\t' || JOINERS.includes(character)

function escaped(character: string): string {
  const point = character.codePointAt(0)!
  if (character === '\n') return '\\n'
  return point <= 0xff ? `\\x${point.toString(16).padStart(2, '0')}` : `\\u{${point.toString(16)}}`
}
