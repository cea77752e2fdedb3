/** Tests slow hostile inputs, which wait for the broker's timeouts. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Arena } from './hostile.ts'
import { HASTY, slowRows } from './hostile-slow.ts'

let arena: Arena
beforeAll(async () => {
  arena = await Arena.open(HASTY)
})
afterAll(() => arena[Symbol.asyncDispose]())

describe('slow inputs that run concurrently', () => {
  const rows = slowRows.map((row) => [`${row.id}: ${row.input}`, row] as const)
  test.concurrent.each(rows)('%s', async (_, row) => {
    expect(await row.act(arena)).toBe(row.answer)
  })
})

test('other clients continued meanwhile, and nothing is left behind', async () => {
  await arena.checkUnharmed()
  await expect.poll(() => arena.rows()).toBe(0)
})
