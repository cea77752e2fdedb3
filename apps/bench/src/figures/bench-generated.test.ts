/** Checks that the generated figures in the documents match docs/benchmarks/results.json. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fillPage } from '@sealpost/harness/report/text'
import { expect, test } from 'vitest'
import { PAGES } from './pages.ts'
import { readResults } from './results.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const RESULTS = join(ROOT, 'docs/benchmarks/results.json')

test.each(PAGES)('$path shows the measured figures: bun scripts/bench.ts --render', async ({ path, textsOf }) => {
  const page = readFileSync(join(ROOT, path), 'utf8')
  expect(fillPage(page, textsOf(await readResults(RESULTS)))).toBe(page)
})

test.each(PAGES)(
  '$path has a place for each text, and keeps its text while nothing is measured',
  ({ path, textsOf }) => {
    const page = readFileSync(join(ROOT, path), 'utf8')
    expect(fillPage(page, textsOf({}))).toBe(page)
    const places = [...page.matchAll(/<!-- begin: (\S+) -->/g)].map(([, name]) => name)
    expect(Object.keys(textsOf({})).toSorted()).toEqual(places.toSorted())
  },
)
