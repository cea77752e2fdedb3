/** What the documents say about a run of `scripts/torture.ts`. */
import { count, plural } from '@sealpost/harness/report/text'
import type { Measured } from './results.ts'
import type { TortureFigures } from './torture-figures.ts'

/** For a sentence: "in 9 faults of 3 kinds (`…`) none of 100 acknowledged messages was lost, misplaced or out of order" */
export function tortureClause(measured: Measured | undefined): string | null {
  const figures = measured?.result.torture
  if (!figures) return null
  const { acked, lost, misdelivered, misordered } = figures
  const how = `in ${faultsText(figures)} (\`${wordsOf(measured)}\`)`
  if (lost + misdelivered + misordered === 0)
    return `${how} none of ${count(acked)} acknowledged messages was lost, misplaced or out of order`
  const broken = `${count(lost)} were lost, ${count(misdelivered)} misplaced and ${count(misordered)} out of order`
  return `${how}, of ${count(acked)} acknowledged messages ${broken}`
}

/** For a cell. */
export function tortureCell(measured: Measured | undefined): string | null {
  const figures = measured?.result.torture
  if (!figures) return null
  const { acked, lost } = figures
  return `${count(lost)} of ${count(acked)} lost, in ${faultsText(figures)} (\`${measured.command}\`)`
}

const faultsText = ({ faults, kinds }: TortureFigures): string =>
  `${plural(faults, 'fault')} of ${plural(kinds, 'kind')}`

/** The sentence names the program itself. */
const wordsOf = ({ command }: Measured): string => command.replace('bun scripts/torture.ts ', '')
