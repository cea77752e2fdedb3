import { expect, test } from 'vitest'
import { fillPage, foldedJson, markdownTable } from './text.ts'

const PAGE = 'a\n<!-- begin: one -->\nold\n<!-- end: one -->\nb\n<!-- begin: two -->\nkept\n<!-- end: two -->\n'

test('the text between markers is replaced, and the rest stays', () => {
  const filled = fillPage(PAGE, { one: 'new\nlines', two: null })
  expect(filled).toBe(PAGE.replace('old', 'new\nlines'))
  expect(fillPage(filled, { one: 'new\nlines' })).toBe(filled)
})

test('a page without markers for a text is refused', () => {
  expect(() => fillPage(PAGE, { three: 'x' })).toThrow('no markers for "three"')
  expect(() => fillPage(PAGE.replace('<!-- end: two -->', ''), { two: 'x' })).toThrow('no markers for "two"')
})

test('text between markers of one line stays in that line', () => {
  const line = 'a <!-- begin: one -->old<!-- end: one -->, b\n'
  expect(fillPage(line, { one: 'new' })).toBe(line.replace('old', 'new'))
})

test('a table aligns its first column to the left', () => {
  expect(markdownTable(['a', 'b'], [['c', '1']])).toBe('| a | b |\n|---|---:|\n| c | 1 |')
})

const VALUE = { a: { b: { c: [1, 2] }, d: undefined }, e: [], f: [{ g: null }, 'h'] }

test('formatted JSON parses to the same value at any depth, and equal values give equal text', () => {
  for (const depth of [0, 1, 2, 3, 9]) {
    expect(JSON.parse(foldedJson(VALUE, depth))).toEqual(JSON.parse(JSON.stringify(VALUE)))
    expect(foldedJson(JSON.parse(foldedJson(VALUE, depth)), depth)).toBe(foldedJson(VALUE, depth))
  }
})

test('everything below its depth is on one line', () => {
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
