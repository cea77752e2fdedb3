import fc from 'fast-check'
import { expect, test } from 'vitest'
import { foldedName, skeletonOf } from './skeleton.ts'

test.each([
  ['paypal', 'p\u0430yp\u0430l'],
  ['paypal', 'paypaI'],
  ['paypal', 'PAYPAL'],
  ['scope', '\u0455\u0441\u043e\u0440\u0435'],
  ['BOT', '\u0412\u041e\u0422'],
  ['modem', 'Modern'],
  ['node-0', 'node-O'],
  ['worker-1', 'worker-l'],
  ['zoë', 'zoe\u0308'],
  ['ali', 'al\u0131'],
  ["o'neill", 'oʼneill'],
])('%s looks like %s', (one, other) => {
  expect(skeletonOf(one)).toBe(skeletonOf(other))
})

test.each([
  ['alice', 'alicia'],
  ['bob-i', 'bob-1'],
  ['ışık', 'isik'],
  ['zoe', 'zoë'],
  ['田中', '田口'],
  ['вот', 'bot'],
])('%s does not look like %s', (one, other) => {
  expect(skeletonOf(one)).not.toBe(skeletonOf(other))
})

test.each([
  ['ВОТ', 'вот'],
  ['ΣΑΣ', 'σας'],
  ['İSTANBUL', 'istanbul'],
  ['ZOË', 'zoe\u0308'],
])('%s differs from %s only in case', (one, other) => {
  expect(foldedName(one)).toBe(foldedName(other))
})

const name = fc.string({ unit: fc.constantFrom(...'abIl1O0mrn-\u0430\u0440\u043e\u0412éİı田'), maxLength: 12 })

/** Each pair looks alike. */
const twins = fc.constantFrom<[string, string]>(
  ...(
    [
      ['a', '\u0430'],
      ['o', '\u043e'],
      ['O', '0'],
      ['I', 'l'],
      ['1', 'l'],
      ['m', 'rn'],
      ['田', '田'],
    ] as const
  ).map(([one, other]): [string, string] => [one, other]),
)

test('names whose parts look alike look alike, and a skeleton stays the same', () => {
  fc.assert(
    fc.property(fc.array(twins, { minLength: 1, maxLength: 12 }), name, (pairs, start) => {
      const [one, other] = [0, 1].map((side) => start + pairs.map((pair) => pair[side]).join(''))
      expect(skeletonOf(one!)).toBe(skeletonOf(other!))
      expect(skeletonOf(`${one}田`)).not.toBe(skeletonOf(other!))
    }),
  )
  fc.assert(fc.property(name, (text) => skeletonOf(skeletonOf(text)) === skeletonOf(text)))
  fc.assert(fc.property(name, (text) => foldedName(foldedName(text)) === foldedName(text)))
})
