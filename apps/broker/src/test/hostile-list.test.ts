/** Checks that the list of hostile inputs and their tests match. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { elsewhere, hostileInputs, INPUTS } from './hostile-inputs.ts'
import { slowRows } from './hostile-slow.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const numbers = Array.from({ length: INPUTS }, (_, i) => `H${String(i + 1).padStart(2, '0')}`)
const rows = [...hostileInputs, ...slowRows]

/** Returns the numbers of test titles (`test('H50, H63: a settle …`) and rows (`['H89: what …`). */
function named(file: string): string[] {
  const titles = readFileSync(join(ROOT, file), 'utf8').matchAll(/['"`]((?:H\d\d(?:, )?)+):/g)
  return [...titles].flatMap(([, ids]) => ids!.split(', '))
}

test.each(numbers)('%s has a row in the table or a test that names it', (id) => {
  const file = elsewhere[id]
  expect(file ? named(file) : rows.map((row) => row.id)).toContain(id)
})

test("every row's number is in the list, and no two rows are equal", () => {
  expect(rows.filter(({ id }) => !numbers.includes(id))).toEqual([])
  const titles = rows.map(({ id, input }) => `${id}: ${input}`)
  expect(titles.filter((title, i) => titles.indexOf(title) !== i)).toEqual([])
})
