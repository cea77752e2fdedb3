import { expect, test } from 'vitest'
import { SharedReads } from './shared-reads.ts'

/** Answers are made when the test says so; each is the number of its making. */
function world() {
  const reads = new SharedReads<number>()
  const made: PromiseWithResolvers<number>[] = []
  const make = () => {
    const next = Promise.withResolvers<number>()
    made.push(next)
    return next.promise
  }
  return { reads, made, read: (name = 'a page') => reads.read(name, make) }
}

test('who asks while an answer is being made shares the next one, which begins when that is there', async () => {
  const { made, read } = world()
  const first = read()
  const others = [read(), read(), read()]
  expect(made).toHaveLength(1)
  made[0]!.resolve(1)
  expect(await first).toBe(1)
  await expect.poll(() => made.length).toBe(2)
  const late = read()
  made[1]!.resolve(2)
  expect(await Promise.all(others)).toEqual([2, 2, 2])
  await expect.poll(() => made.length).toBe(3) // they were told what stood before the late one asked
  made[2]!.resolve(3)
  expect(await late).toBe(3)
})

test('a failure is told to those who share it, and to nobody after them', async () => {
  const { made, read } = world()
  const first = read()
  const second = read()
  made[0]!.reject(new Error('away'))
  await expect(first).rejects.toThrow('away')
  await expect.poll(() => made.length).toBe(2)
  made[1]!.resolve(2)
  expect(await second).toBe(2)
})

test('answers of other names are made beside it, and nothing is kept of what is over', async () => {
  const { reads, made, read } = world()
  const both = [read('one'), read('other')]
  expect([made.length, reads.size]).toEqual([2, 2])
  for (const [i, { resolve }] of made.entries()) resolve(i)
  expect(await Promise.all(both)).toEqual([0, 1])
  await expect.poll(() => reads.size).toBe(0)
})
