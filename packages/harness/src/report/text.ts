/** Formats reports: numbers, lists, tables, parts of Markdown pages, and compact JSON. */
import Table from 'cli-table3'
import type { createColors } from 'picocolors'

export type Colors = ReturnType<typeof createColors>

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

/** Formats a whole number with thousands separators. */
export const count = (value: number): string => whole.format(value)

/** Formats a number with about three significant digits. */
export function figure(value: number): string {
  if (value >= 100) return whole.format(value)
  if (value > 0 && value < 0.1) return value < 0.001 ? '<0.001' : value.toFixed(3)
  return value.toFixed(value >= 10 ? 1 : 2)
}

export const orDash = (value: number | null, format = figure): string => (value === null ? '–' : format(value))

export const plural = (value: number, noun: string, nouns = `${noun}s`): string =>
  `${count(value)} ${value === 1 ? noun : nouns}`

export const percent = (share: number): string => `${figure(share * 100)} %`

/** 0 without values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]]
  return low === undefined || high === undefined ? 0 : (low + high) / 2
}

export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)

export type Fact = readonly [name: string, text: string]

export function factList(facts: readonly Fact[], colors: Colors): string {
  return facts.map(([name, text]) => `  ${colors.dim(name.padEnd(9))} ${text}`).join('\n')
}

/** Formats a table without borders, right-aligned except for the first column. */
export function tableText(head: readonly string[], rows: readonly (readonly string[])[], colors: Colors): string {
  const table = plainTable([...head], colors)
  for (const row of rows) table.push([...row])
  return table.toString()
}

export function plainTable(head: string[], { dim }: Pick<Colors, 'dim'>): Table.Table {
  const borders = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right']
  const lines = [...borders, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid', 'middle']
  return new Table({
    head: head.map((name) => dim(name)),
    chars: Object.fromEntries(lines.map((name) => [name, ''])),
    colAligns: head.map((_, i) => (i === 0 ? 'left' : 'right')),
    style: { head: [], border: [], 'padding-left': 2, 'padding-right': 0 },
  })
}

export const checkMark = (isMet: boolean): string => (isMet ? '✔' : '✘')

/** Replaces the contents between each pair of markers, unless null. @throws Error if a marker is missing */
export function fillPage(page: string, texts: Readonly<Record<string, string | null>>): string {
  let filled = page
  for (const [name, text] of Object.entries(texts)) {
    const [begin, end] = [`<!-- begin: ${name} -->`, `<!-- end: ${name} -->`]
    const from = filled.indexOf(begin)
    const to = filled.indexOf(end, from)
    if (from < 0 || to < 0) throw new Error(`The page has no markers for "${name}": ${begin} … ${end}`)
    const gap = filled.slice(from, to).includes('\n') ? '\n' : ''
    if (text !== null) filled = `${filled.slice(0, from + begin.length)}${gap}${text}${gap}${filled.slice(to)}`
  }
  return filled
}

/** Formats a Markdown table, right-aligned except for the first column. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), `|---|${'---:|'.repeat(head.length - 1)}`, ...rows.map(line)].join('\n')
}

/**
 * Formats JSON with few lines: values below `depth` take one each.
 * @param depth - with 1, each key or item of the outermost value takes a line
 */
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

/** Returns the entries that `JSON.stringify` includes. */
const keysOf = (value: object) => Object.entries(value).filter(([, item]) => item !== undefined)
