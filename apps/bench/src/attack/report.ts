/** What was found, and whether it is within the bars. */

import { plainTable } from '@sealpost/harness/report/text'
import { createColors } from 'picocolors'
import type { Attack } from './attack.ts'
import type { Pair, Turn } from './measure.ts'

/** Medians over the pairs. */
export interface Outcome {
  readonly name: string
  readonly pairs: readonly Pair[]
  /** Under the attack minus without it. */
  readonly p99MsMore: number
  readonly cpuShareMore: number
  readonly succeeded: number
  readonly tries: number
  readonly probe: string
  readonly isWithinBars: boolean
}

const P99_MS_MORE_MAX = 50
const UNPROVEN_CPU_SHARE_MAX = 0.05

export function outcomeOf(attack: Attack, pairs: readonly Pair[]): Outcome {
  const more = (pick: (turn: Turn) => number) => median(pairs.map(({ without, under }) => pick(under) - pick(without)))
  const sum = (pick: (turn: Turn) => number) => pairs.reduce((total, { under }) => total + pick(under), 0)
  const [p99MsMore, cpuShareMore] = [more(({ p99Ms }) => p99Ms), more(({ cpuShare }) => cpuShare)]
  const isCheap = !attack.isOneUnprovenAddress || cpuShareMore <= UNPROVEN_CPU_SHARE_MAX
  const [succeeded, tries] = [sum((turn) => turn.succeeded), sum((turn) => turn.tries)]
  return {
    ...{ name: attack.name, pairs, p99MsMore, cpuShareMore, succeeded, tries, probe: attack.probe ?? 'join' },
    isWithinBars: isCheap && p99MsMore <= P99_MS_MORE_MAX && succeeded === tries,
  }
}

export function reportText(outcomes: readonly Outcome[]): string {
  const paint = createColors(process.stdout.isTTY)
  const head = ['attack', 'p99 without', 'p99 under', 'p99 more', 'broker CPU more', 'probes', 'bars', 'answers']
  const table = plainTable(head, paint)
  for (const { name, pairs, p99MsMore, cpuShareMore, succeeded, tries, probe, isWithinBars } of outcomes)
    table.push([
      name,
      ms(median(pairs.map(({ without }) => without.p99Ms))),
      ms(median(pairs.map(({ under }) => under.p99Ms))),
      ms(p99MsMore),
      `${(cpuShareMore * 100).toFixed(1)} %`,
      `${probe} ${succeeded}/${tries}`,
      isWithinBars ? paint.green('ok') : paint.red('over'),
      answersText(pairs.at(-1)?.under.answers ?? {}),
    ])
  const bars = `Bars: p99 at most ${P99_MS_MORE_MAX} ms more (median of the pairs), every probe succeeds, and one unproven address costs at most ${UNPROVEN_CPU_SHARE_MAX * 100} % of a core.`
  return `${table.toString()}\n${bars}`
}

export function listText(attacks: readonly Attack[]): string {
  return attacks.map(({ name, does }) => `${name.padEnd(18)} ${does}`).join('\n')
}

const ms = (value: number): string => `${value.toFixed(1)} ms`

const answersText = (answers: Turn['answers']): string =>
  Object.entries(answers)
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, 4)
    .map(([answer, count]) => `${answer} ×${count}`)
    .join(', ')

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}
