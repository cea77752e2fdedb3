import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { fillPage, markdownTable } from './page.ts'
import { tablesOf } from './tables.ts'

const PAGE = 'a\n<!-- begin: one -->\nold\n<!-- end: one -->\nb\n<!-- begin: two -->\nkept\n<!-- end: two -->\n'

test('text between markers is replaced, and the rest stays', () => {
  const filled = fillPage(PAGE, { one: 'new\nlines', two: null })
  expect(filled).toBe(PAGE.replace('old', 'new\nlines'))
  expect(fillPage(filled, { one: 'new\nlines' })).toBe(filled)
})

test('a page without a place for something is refused', () => {
  expect(() => fillPage(PAGE, { three: 'x' })).toThrow('no place for "three"')
  expect(() => fillPage(PAGE.replace('<!-- end: two -->', ''), { two: 'x' })).toThrow('no place for "two"')
})

test('docs/BENCHMARKS.md has a place for every table, and keeps its text while nothing was measured', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/BENCHMARKS.md'), 'utf8')
  expect(fillPage(page, tablesOf({}))).toBe(page)
  const places = [...page.matchAll(/<!-- begin: (\S+) -->/g)].map(([, name]) => name)
  expect(Object.keys(tablesOf({})).toSorted()).toEqual(places.toSorted())
})

test('a table has its first column to the left', () => {
  expect(markdownTable(['a', 'b'], [['c', '1']])).toBe('| a | b |\n|---|---:|\n| c | 1 |')
})
