/** Two results side by side: every figure that both have, and the ratio of the second to the first. */

import { figure, tableText } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import type { LoadResult } from '../run/result.ts'
import type { ScenarioReport } from '../scenarios/run.ts'

/** Series, whose single numbers mean nothing, and numbers that are no figures. */
const SKIPPED = new Set(['samples', 'series', 'rows', 'e2eSpectrum', 'e2eBins', 'startMs', 'seed'])

interface Compared {
  readonly name: string
  readonly first: number
  readonly second: number
}

/** @throws OperatingError `not_comparable` if a file contains no result, or the results have no figure in common */
export async function compareFiles(files: readonly string[], { isColored }: { isColored: boolean }): Promise<string> {
  const results = await Promise.all(files.map(readResult))
  const [first, second] = results
  const rows = compare(first, second)
  if (rows.length === 0) throw failure('The two results have no figure in common.')
  const paint = createColors(isColored)
  const cells = rows.map((row) => {
    const ratio = row.first === 0 ? (row.second === 0 ? '1.00' : '–') : figure(row.second / row.first)
    return [row.name, figure(row.first), figure(row.second), ratio]
  })
  const table = tableText(['', 'first', 'second', 'second / first'], cells, paint)
  const heads = files.map((file, i) => `  ${i === 0 ? 'first' : 'second'}: ${file}`)
  const warnings = results.flatMap((result, i) => limitedIn(result).map((name) => warningOf(i, name)))
  return `\n${heads.join('\n')}\n\n${table}\n${warnings.map((line) => `  ${paint.yellow('!')} ${line}\n`).join('')}`
}

const warningOf = (i: number, name: string): string =>
  `The load generator was the limit of the ${i === 0 ? 'first' : 'second'}${name}: the broker may be faster.`

/** Returns where the load generator was the limit: scenarios by name, any other run as an empty text. */
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

/** The figures of scenarios by name; for any other run all numbers by path. */
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
