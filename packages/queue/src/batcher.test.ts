import { expect, test } from 'vitest'
import { Batcher } from './batcher.ts'

/** Records the items of each statement, and completes the statement on command. */
function statements(max: number, keyOf?: (item: number) => string) {
  const asked: { items: readonly number[]; answer: () => void; fail: (error: Error) => void }[] = []
  const batcher = new Batcher<number, string>(
    (items) => {
      const { promise, resolve, reject } = Promise.withResolvers<string[]>()
      asked.push({ items, answer: () => resolve(items.map((item) => `of ${item}`)), fail: reject })
      return promise
    },
    keyOf ? { max, keyOf } : { max },
  )
  return { asked, batcher }
}

const untilAsked = async (asked: readonly unknown[], count: number) => {
  while (asked.length < count) await Promise.resolve()
}

test('items added while a statement runs share the next one, and each gets its own result', async () => {
  const { asked, batcher } = statements(10)
  const first = batcher.add(1)
  await untilAsked(asked, 1)
  const others = [2, 3, 4].map((item) => batcher.add(item))
  asked[0]!.answer()
  expect(await first).toBe('of 1')
  await untilAsked(asked, 2)
  asked[1]!.answer()
  expect(await Promise.all(others)).toEqual(['of 2', 'of 3', 'of 4'])
  expect(asked.map(({ items }) => items)).toEqual([[1], [2, 3, 4]])
})

test('one statement takes at most its limit of items', async () => {
  const { asked, batcher } = statements(2)
  const answers = Promise.all([1, 2, 3].map((item) => batcher.add(item)))
  for (const no of [0, 1]) {
    await untilAsked(asked, no + 1)
    asked[no]!.answer()
  }
  expect(await answers).toEqual(['of 1', 'of 2', 'of 3'])
  expect(asked.map(({ items }) => items)).toEqual([[1, 2], [3]])
})

test('a failed statement fails its items, and the next one runs', async () => {
  const { asked, batcher } = statements(2)
  const answers = Promise.allSettled([1, 2, 3].map((item) => batcher.add(item)))
  await untilAsked(asked, 1)
  asked[0]!.fail(new Error('away'))
  await untilAsked(asked, 2)
  asked[1]!.answer()
  expect((await answers).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled'])
})

test('items of one key share a result, but only while they wait', async () => {
  const { asked, batcher } = statements(10, String)
  const first = batcher.add(1)
  await untilAsked(asked, 1)
  const others = [1, 2, 2, 2, 1].map((item) => batcher.add(item))
  asked[0]!.answer()
  await first
  await untilAsked(asked, 2)
  asked[1]!.answer()
  expect(await Promise.all(others)).toEqual(['of 1', 'of 2', 'of 2', 'of 2', 'of 1'])
  expect(asked.map(({ items }) => items)).toEqual([[1], [1, 2]])
})

test('a batcher is idle again when its last result arrives', async () => {
  const { asked, batcher } = statements(10)
  expect(batcher.isIdle).toBe(true)
  const answer = batcher.add(1)
  expect(batcher.isIdle).toBe(false)
  await untilAsked(asked, 1)
  asked[0]!.answer()
  await answer
  expect(batcher.isIdle).toBe(true)
})
