/** Two results beside each other: every figure that both have, and what the second is of the first. */

import { figure, plainTable } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import type { LoadResult } from '../run/result.ts'
import type { ScenarioReport } from '../scenarios/run.ts'

/** Series, of which single numbers say nothing, and what is no figure. */
const SKIPPED = new Set(['samples', 'series', 'rows', 'e2eSpectrum', 'e2eBins', 'startMs', 'seed'])

export interface Compared {
  readonly name: string
  readonly first: number
  readonly second: number
}

/** @throws OperatingError `not_comparable` for what is no result, and when they have nothing in common */
export async function compareFiles(files: readonly string[], { isColored }: { isColored: boolean }): Promise<string> {
  const results = await Promise.all(files.map(readResult))
  const [first, second] = results
  const rows = compare(first, second)
  if (rows.length === 0) throw failure('The two results have no figure in common.')
  const paint = createColors(isColored)
  const table = plainTable(['', 'first', 'second', 'second / first'], paint)
  for (const row of rows) {
    const ratio = row.first === 0 ? (row.second === 0 ? '1.00' : '–') : figure(row.second / row.first)
    table.push([row.name, figure(row.first), figure(row.second), ratio])
  }
  const heads = files.map((file, i) => `  ${i === 0 ? 'first' : 'second'}: ${file}`)
  const warnings = results.flatMap((result, i) => limitedIn(result).map((name) => warningOf(i, name)))
  return `\n${heads.join('\n')}\n\n${table.toString()}\n${warnings.map((line) => `  ${paint.yellow('!')} ${line}\n`).join('')}`
}

const warningOf = (i: number, name: string): string =>
  `The load generator was the limit of the ${i === 0 ? 'first' : 'second'}${name}: the broker may be faster.`

/** Where the load generator was the limit: of scenarios by their names, of any other run as an empty word. */
export function limitedIn(result: unknown): string[] {
  const { scenarios, sweep, loadgenWasLimit } = (result ?? {}) as Partial<ScenarioReport['json']> & {
    readonly sweep?: readonly LoadResult[]
    readonly loadgenWasLimit?: boolean
  }
  if (Array.isArray(scenarios))
    return scenarios.filter(({ generatorWasLimit }) => generatorWasLimit).map(({ scenario }) => ` in ${scenario}`)
  return loadgenWasLimit || sweep?.some((each) => each.loadgenWasLimit) ? [''] : []
}

export function compare(first: unknown, second: unknown): Compared[] {
  const others = new Map(figuresOf(second))
  return figuresOf(first).flatMap(([name, value]) => {
    const other = others.get(name)
    return other === undefined ? [] : [{ name, first: value, second: other }]
  })
}

/** Of scenarios by their names, of any other run all numbers by their path. */
function figuresOf(result: unknown): [string, number][] {
  const { scenarios } = (result ?? {}) as Partial<ScenarioReport['json']>
  if (!Array.isArray(scenarios)) return numbersOf(result, '')
  return scenarios.flatMap(({ scenario, figures }) => numbersOf(figures, scenario))
}

function numbersOf(value: unknown, path: string): [string, number][] {
  if (typeof value === 'number') return [[path, value]]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) =>
    SKIPPED.has(key) ? [] : numbersOf(inner, path === '' ? key : `${path}.${key}`),
  )
}

async function readResult(file: string): Promise<unknown> {
  try {
    return (await Bun.file(file).json()) as unknown
  } catch (cause) {
    throw failure(`There is no result in ${file}.`, cause)
  }
}

const failure = (sentence: string, cause?: unknown) => new OperatingError('not_comparable', sentence, { cause })
