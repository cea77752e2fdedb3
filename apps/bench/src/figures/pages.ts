/** The pages with generated figures. */
import { comparedTable } from './compared.ts'
import type { Results } from './results.ts'
import { tablesOf } from './tables.ts'
import { tortureCell, tortureClause } from './torture-text.ts'

export interface GeneratedPage {
  /** From the root of the repository. */
  readonly path: string
  /** By the names of its markers; null: nothing of it was measured yet. */
  textsOf(results: Results): Readonly<Record<string, string | null>>
}

export const PAGES: readonly GeneratedPage[] = [
  {
    path: 'README.md',
    textsOf: (results) => ({
      compared: comparedTable(results),
      torture: tortureClause(results.torture?.torture),
    }),
  },
  { path: 'docs/BENCHMARKS.md', textsOf: tablesOf },
  { path: 'docs/PROMISES.md', textsOf: (results) => ({ torture: tortureCell(results.torture?.torture) }) },
]
