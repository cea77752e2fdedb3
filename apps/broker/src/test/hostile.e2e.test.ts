/** Tests hostile inputs, one per row: the reply, the live process, undisturbed peers, the stored rows and the log. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Arena } from './hostile.ts'
import { hostileInputs } from './hostile-inputs.ts'

let arena: Arena
beforeAll(async () => {
  arena = await Arena.open()
})
afterAll(() => arena[Symbol.asyncDispose]())

test.each(hostileInputs.map((row) => [`${row.id}: ${row.input}`, row] as const))('%s', async (_, row) => {
  const before = await arena.rows()
  expect(await row.act(arena)).toBe(row.answer)
  await arena.checkUnharmed()
  await expect.poll(() => arena.rows()).toBe(before + row.stores)
})
