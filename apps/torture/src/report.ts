/** The report a person reads: one line for each scenario, and below them why one did not hold. */
import type { Colors } from '@sealpost/harness/report/text'
import { count, orDash, plainTable } from '@sealpost/harness/report/text'
import type { VerdictLine } from './judgement/verdict.ts'

const HEAD = [
  'scenario',
  '',
  'rounds',
  'acked',
  'delivered',
  'queued',
  'expired',
  'dead',
  'lost',
  'unexplained',
  'misordered',
  'misdelivered',
  'other',
  'pause s',
  'recovery s',
  'came again',
]

export function printLines(lines: readonly VerdictLine[], paint: Colors): string {
  const table = plainTable(HEAD, paint)
  for (const line of lines) table.push(cellsOf(line, paint))
  if (lines.length > 1) table.push(cellsOf(totalOf(lines), paint))
  const reasons = lines.flatMap(({ scenario, reasons: why, outcome }) =>
    why.map((reason) => `  ${outcome === 'broken' ? paint.red('✘') : paint.yellow('!')} ${scenario}: ${reason}`),
  )
  return [table.toString(), ...(reasons.length > 0 ? ['', ...reasons] : [])].join('\n')
}

export function totalOf(lines: readonly VerdictLine[]): VerdictLine {
  const sum = (of: (line: VerdictLine) => number) => lines.reduce((total, line) => total + of(line), 0)
  const sums = <K extends string>(of: (line: VerdictLine) => Readonly<Record<K, number>>): Record<K, number> => {
    const names = Object.keys(of(lines[0]!)) as K[]
    return Object.fromEntries(names.map((name) => [name, sum((line) => of(line)[name])])) as Record<K, number>
  }
  const recoveries = lines.flatMap(({ recoveryMs }) => recoveryMs ?? [])
  return {
    scenario: 'all',
    outcome: lines.every(({ outcome }) => outcome === 'held' || outcome === 'skipped') ? 'held' : 'broken',
    reasons: [],
    rounds: sum((line) => line.rounds),
    acked: sum((line) => line.acked),
    delivered: sum((line) => line.delivered),
    queued: sum((line) => line.queued),
    expired: sum((line) => line.expired),
    dead: sum((line) => line.dead),
    breaches: sums((line) => line.breaches),
    repeats: sums((line) => line.repeats),
    longestPauseMs: Math.max(...lines.map(({ longestPauseMs }) => longestPauseMs)),
    recoveryMs: recoveries.length > 0 ? Math.max(...recoveries) : null,
    brokerRssMb: null,
  }
}

function cellsOf(line: VerdictLine, paint: Colors): string[] {
  const { breaches, repeats, scenario, outcome } = line
  const bad = (n: number) => (n === 0 ? '0' : paint.red(count(n)))
  const seconds = (ms: number | null) => orDash(ms, (value) => (value / 1000).toFixed(1))
  const numbers = [line.rounds, line.acked, line.delivered, line.queued, line.expired, line.dead].map(count)
  const { lost, duplicated, misordered, misdelivered, tampered, struck, unanswered } = breaches
  const broken = [lost, duplicated, misordered, misdelivered, tampered + struck + unanswered].map(bad)
  const again = Object.entries(repeats).filter(([, n]) => n > 0)
  const causes = again.map(([cause, n]) => `${cause} ${count(n)}`).join(', ') || '0'
  return [
    scenario,
    marks(paint)[outcome],
    ...numbers,
    ...broken,
    seconds(line.longestPauseMs),
    seconds(line.recoveryMs),
    causes,
  ]
}

const marks = (paint: Colors): Record<VerdictLine['outcome'], string> => ({
  held: paint.green('✔'),
  broken: paint.red('✘'),
  invalid: paint.yellow('?'),
  skipped: paint.dim('–'),
})
