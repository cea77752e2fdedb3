import { expect, test } from 'vitest'
import { highestGood, lowestBad, searchCeiling } from './ceiling.ts'

/** Searches with rates above `ceiling` failing. @param spoilt - attempts that fail at any rate, from 0 */
async function search(ceiling: number, { rates = [100, 1_000, 10_000], splits = 3, spoilt = [] as number[] } = {}) {
  let made = 0
  const attempts = await searchCeiling({ rates, splits }, async (rate) => {
    const isGood = rate <= ceiling && !spoilt.includes(made)
    made += 1
    return { rate, isGood, found: null }
  })
  return { tried: attempts.map(({ rate }) => rate), best: highestGood(attempts)?.rate, bad: lowestBad(attempts) }
}

test('a bad rate gets a second attempt, and then the interval below it is split', async () => {
  expect(await search(2_000)).toEqual({
    tried: [100, 1_000, 10_000, 10_000, 3_200, 3_200, 1_800, 2_400, 2_400],
    ...{ best: 1_800, bad: 2_400 },
  })
})

test('one spoilt attempt does not end the search', async () => {
  expect(await search(Infinity, { spoilt: [1] })).toEqual({
    tried: [100, 1_000, 1_000, 10_000],
    ...{ best: 10_000, bad: undefined },
  })
})

test('a rate that is bad twice does not end the search if the next one is held', async () => {
  expect(await search(Infinity, { spoilt: [1, 2] })).toEqual({
    tried: [100, 1_000, 1_000, 10_000],
    ...{ best: 10_000, bad: undefined },
  })
  expect((await search(100)).tried.slice(0, 6)).toEqual([100, 1_000, 1_000, 10_000, 10_000, 320])
})

test('the ceiling may lie below the first rate, or not exist', async () => {
  expect(await search(30)).toMatchObject({ best: 25, bad: 35 })
  expect(await search(0, { rates: [2] })).toEqual({ tried: [2, 2, 1, 1], best: undefined, bad: 1 })
})

test('a single requested rate is not split', async () => {
  expect(await search(100, { rates: [200], splits: 0 })).toEqual({ tried: [200, 200], best: undefined, bad: 200 })
})

test('a narrow interval is not split', async () => {
  expect((await search(100, { rates: [100, 109] })).tried).toEqual([100, 109, 109])
})
