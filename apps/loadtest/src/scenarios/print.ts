/** What a scenario found, on a terminal. */

import { factList, plainTable } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import { type Check, type Findings, isGood, isJudged, type Scenario, type Sheet } from './scenario.ts'

export function printFindings(scenario: Scenario, findings: Findings, { isColored }: { isColored: boolean }): string {
  const paint = createColors(isColored)
  const { headline, sheets, facts, checks } = findings
  const title = `${isGood(findings) ? paint.green('✔') : paint.red('✘')} ${paint.bold(scenario.name)}`
  const own = scenario.reported ? [...facts, ['reported', `${scenario.reported}, of another system`] as const] : facts
  const parts = [
    `  ${title}   ${paint.bold(headline)}\n  ${paint.dim(scenario.summary)}`,
    ...sheets.map((sheet) => tableOf(sheet, paint)),
    factList(own, paint),
    checks.map((check) => lineOf(check, paint)).join('\n'),
  ]
  return `\n${parts.filter(Boolean).join('\n\n')}\n`
}

function lineOf(check: Check, paint: ReturnType<typeof createColors>): string {
  const { isMet, sentence } = check
  if (!isJudged(check)) return `  ${paint.dim(`– ${sentence}`)}`
  return isMet ? `  ${paint.green('✔')} ${sentence}` : `  ${paint.red(`✘ ${sentence}`)}`
}

function tableOf({ head, rows }: Sheet, paint: ReturnType<typeof createColors>): string {
  const table = plainTable([...head], paint)
  for (const row of rows) table.push([...row])
  return table.toString()
}
