/** Slow hostile inputs: the rows that wait for a timeout of the broker. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Arena } from './hostile.ts'
import { HASTY, slowRows } from './hostile-slow.ts'

let arena: Arena
beforeAll(async () => {
  arena = await Arena.open(HASTY)
})
afterAll(() => arena[Symbol.asyncDispose]())

describe('side by side', () => {
  const rows = slowRows.map((row) => [`${row.id}: ${row.input}`, row] as const)
  test.concurrent.each(rows)('%s', async (_, row) => {
    expect(await row.act(arena)).toBe(row.answer)
  })
})

test('the others went on meanwhile, and nothing is left', async () => {
  await arena.checkUnharmed()
  await expect.poll(() => arena.rows()).toBe(0)
})
