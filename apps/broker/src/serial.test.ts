import { expect, test } from 'vitest'
import { Serial } from './serial.ts'

test('items that were added during a call end with their own call, and with its outcome', async () => {
  const calls: { items: readonly number[]; end: (isDone: boolean) => void }[] = []
  const serial = new Serial<number>(2, (items) => new Promise((end) => calls.push({ items, end })))
  const ended: [number, boolean][] = []
  const outcomes = [[1], [2, 3, 4], [5]].map((items) =>
    serial.add(items).then((isDone) => void ended.push([items[0]!, isDone])),
  )
  for (const [i, isDone] of [true, false, true].entries()) {
    calls[i]!.end(isDone)
    await new Promise((resolve) => setImmediate(resolve))
    expect(ended).toEqual(
      [
        [[1, true]],
        [[1, true]],
        [
          [1, true],
          [2, false],
          [5, true],
        ],
      ][i],
    )
  }
  await Promise.all(outcomes)
  expect(calls.map(({ items }) => items)).toEqual([[1], [2, 3], [4, 5]])
})
