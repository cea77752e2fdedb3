import { expect, test } from 'vitest'
import { isChosenName, tidyName } from './ids.ts'

test.each([
  ['bob  ', 'bob'],
  ['  bob', 'bob'],
  [' Bob   the  Builder ', 'Bob the Builder'],
  ['   ', ''],
  ['bob', 'bob'],
])('%j becomes %j', (text, name) => expect(tidyName(text)).toBe(name))

test.each([
  'bob',
  'Bob the Builder',
  'a-b_c.d@e',
  "o'neill",
  'x'.repeat(64),
  'Room 4you',
  'team-2024',
  'east-web1',
  'prod-node-0001',
  'nv2n',
  'h264-encoder',
  '3com',
])('%j is a valid name', (name) => {
  expect(isChosenName(name)).toBe(true)
})

const PRINT = 'NV2N-HQ7V-NFSH-5GNN-1A9Q-EFPN-TNHK-X3ET'
test.each([
  ...[PRINT, PRINT.toLowerCase(), PRINT.replaceAll('-', ''), PRINT.replaceAll('-', ' '), PRINT.replaceAll('-', '.')],
  ...[PRINT.replace('1', 'I'), `${PRINT}.`, `carol ${PRINT}`, `[${PRINT}]`, PRINT.replaceAll(/\d/g, 'A')],
  ...[PRINT.slice(0, 9), PRINT.slice(0, 9).toLowerCase(), PRINT.slice(0, 14), PRINT.slice(5, 34)],
])('%j resembles a fingerprint and is refused', (name) => expect(isChosenName(name)).toBe(false))

test.each([
  ...['', ' ', 'bob ', ' bob', 'a  b', 'x'.repeat(65), 'zoë', 'two\nlines', '\x1b[31m'],
  ...['bob (you)', 'bob/phone', 'bob,carol', '*', '-rf', '--json', 'ab'.repeat(32), 'AB'.repeat(32)],
])('%j is refused', (name) => expect(isChosenName(name)).toBe(false))
