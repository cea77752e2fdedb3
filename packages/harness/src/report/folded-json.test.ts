import { expect, test } from 'vitest'
import { foldedJson } from './folded-json.ts'

const VALUE = { a: { b: { c: [1, 2] }, d: undefined }, e: [], f: [{ g: null }, 'h'] }

test('it reads back as the same, at any depth, and the same value is the same text', () => {
  for (const depth of [0, 1, 2, 3, 9]) {
    expect(JSON.parse(foldedJson(VALUE, depth))).toEqual(JSON.parse(JSON.stringify(VALUE)))
    expect(foldedJson(JSON.parse(foldedJson(VALUE, depth)), depth)).toBe(foldedJson(VALUE, depth))
  }
})

test('below its depth everything stands in one line', () => {
  expect(foldedJson(VALUE, 2)).toBe(`{
 "a": {
  "b": {"c":[1,2]}
 },
 "e": [],
 "f": [
  {"g":null},
  "h"
 ]
}
`)
})
