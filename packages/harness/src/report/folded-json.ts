/** JSON with few lines: objects and arrays are open down to a depth, and everything below stands in one line. */

/** @param depth - 1: a line for each key or item of the outermost one */
export const foldedJson = (value: unknown, depth: number): string => `${fold(value, depth, '')}\n`

function fold(value: unknown, depth: number, indent: string): string {
  if (depth === 0 || typeof value !== 'object' || value === null) return JSON.stringify(value)
  const inner = `${indent} `
  const lines = Array.isArray(value)
    ? value.map((item) => fold(item, depth - 1, inner))
    : keysOf(value).map(([key, item]) => `${JSON.stringify(key)}: ${fold(item, depth - 1, inner)}`)
  const [begin, end] = Array.isArray(value) ? ['[', ']'] : ['{', '}']
  return lines.length === 0 ? begin + end : `${begin}\n${inner}${lines.join(`,\n${inner}`)}\n${indent}${end}`
}

/** `JSON.stringify` leaves these out, too. */
const keysOf = (value: object) => Object.entries(value).filter(([, item]) => item !== undefined)
