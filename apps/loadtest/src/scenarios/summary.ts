/** All that ran as one table: what each shows, what is asked of that, and what a published report measured with it. */

import { plainTable } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import type { ScenarioResult } from './run.ts'

const HEAD = ['scenario', 'shown here', 'bar', "a published report's own", '']

export function printSummary(results: readonly ScenarioResult[], { isColored }: { isColored: boolean }): string {
  const paint = createColors(isColored)
  const table = plainTable(HEAD, paint)
  for (const result of results) {
    const { scenario, shown, bar, reported, isGood, isBarJudged = true } = result
    const held = isBarJudged ? paint.green('✔ held') : paint.dim('– not judged')
    const verdict = isGood ? held : paint.red('✘ not held')
    table.push([scenario, shown, bar, reported ?? '–', `${verdict}${result.generatorWasLimit ? ' *' : ''}`])
  }
  const seconds = results.reduce((sum, result) => sum + result.seconds, 0)
  const lines = [`  ${results.length} scenarios in ${Math.round(seconds)} s, without the starts of broker and database`]
  if (results.some(({ isShort }) => isShort))
    lines.push('  in their short form (--quick): smaller and shorter than the workload they stand for')
  if (results.some(({ isBarJudged = true }) => !isBarJudged))
    lines.push('  – not judged: too small a form for its bar; that all arrived was judged')
  if (results.some(({ generatorWasLimit }) => generatorWasLimit))
    lines.push('  * the load generator was the limit: the broker may be faster')
  return `\n${table.toString()}\n\n${lines.map((line) => paint.dim(line)).join('\n')}\n`
}
