import { expect, test } from 'vitest'
import { isChosenName, tidyName } from './names.ts'

test.each([
  ['bob  ', 'bob'],
  ['  bob', 'bob'],
  [' Bob   the  Builder ', 'Bob the Builder'],
  ['   ', ''],
  ['bob', 'bob'],
])('%j becomes %j', (text, name) => expect(tidyName(text)).toBe(name))

test.each(['bob', 'Bob the Builder', 'a-b_c.d@e', "o'neill", 'x'.repeat(64)])('%j is a name', (name) => {
  expect(isChosenName(name)).toBe(true)
})

test.each([
  ...['', ' ', 'bob ', ' bob', 'a  b', 'x'.repeat(65), 'zoë', 'two\nlines', '\x1b[31m'],
  ...['bob (you)', 'bob/phone', 'bob,carol', '*', '-rf', '--json', 'ab'.repeat(32), 'AB'.repeat(32)],
])('%j is none', (name) => expect(isChosenName(name)).toBe(false))
