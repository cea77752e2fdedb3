import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fillPage } from '@sealpost/harness/report/text'
import { expect, test } from 'vitest'
import { readFigures } from './figures.ts'
import { capacityTables } from './report.ts'

const PAGE = join(import.meta.dirname, '../../../../docs/CAPACITY.md')

test('the tables of docs/CAPACITY.md match the current benchmarks: bun scripts/capacity.ts --render', async () => {
  const page = readFileSync(PAGE, 'utf8')
  expect(page).toBe(fillPage(page, capacityTables(await readFigures())))
})
