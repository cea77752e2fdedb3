import punycode from 'node:punycode'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { asciiName, isChosenName, tidyName, unicodeName } from './names.ts'

test.each([
  ['bob  ', 'bob'],
  ['  bob', 'bob'],
  [' Bob   the  Builder ', 'Bob the Builder'],
  ['   ', ''],
  ['bob', 'bob'],
  ['zoe\u0308', 'zo\u00eb'],
  ['日本\u3000太郎', '日本 太郎'],
  ['O\u2019Neill', "O'Neill"],
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
  ...[
    'Zoë Müller',
    'Владимир',
    'ジョン・スミス',
    'ひらがな漢字ABC',
    'Tanaka田中',
    '김철수 2',
    '李小龍 ㄌㄧ',
    'İstanbul',
    'ışık',
  ],
  ...['สมชาย น้ำ', 'नरेंद्र', 'محمد ٣', 'שלום', 'Ελένη', 'ᏣᎳᎩ', 'paral·lel', 'é'.repeat(57), '田'.repeat(30)],
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
  ...['', ' ', 'bob ', ' bob', 'a  b', 'x'.repeat(65), 'é'.repeat(60), 'two\nlines', '\x1b[31m'],
  ...['bob (you)', 'bob/phone', 'bob,carol', '*', '-rf', '--json', 'ab'.repeat(32), 'AB'.repeat(32)],
])('%j is refused', (name) => expect(isChosenName(name)).toBe(false))

test.each([
  ['a Cyrillic letter among Latin ones', 'p\u0430ypal'],
  ['a Greek letter among Latin ones', 'b\u03bfb'],
  ['two scripts', 'api-сервер'],
  ['digits of two systems', 'bob 8\u09ea'],
  ['Arabic digits in a Latin name', 'bob \u0663'],
  ['a zero-width joiner', 'bo\u200db'],
  ['a zero-width space', 'bo\u200bb'],
  ['a soft hyphen', 'bo\u00adb'],
  ['a Hangul filler', '\u3164'],
  ['a variation selector', '田\ufe00'],
  ['a tag', 'bob\u{e0062}'],
  ['a right-to-left override', '\u202ebob'],
  ['an isolate', 'b\u2066ob'],
  ['decomposed letters', 'zoe\u0308'],
  ['fullwidth letters', '\uff42\uff4f\uff42'],
  ['mathematical letters', '\u{1d41b}\u{1d428}\u{1d41b}'],
  ['a ligature', '\ufb01sh'],
  ['a superscript', 'bob\u00b2'],
  ['a line separator', 'bo\u2028b'],
  ['an unassigned character', 'bo\u0378b'],
  ['a private-use character', 'bo\ue000b'],
  ['a lone surrogate', 'bo\ud800b'],
  ['an emoji', 'bob \u{1f600}'],
  ['a mark without a letter', '\u0301bob'],
  ['a mark after a space', 'bob \u0301'],
  ['the same mark twice', 'a\u0300\u0316\u0316'],
  ['many marks', 'z\u0300\u0301\u0302\u0303\u0304'],
  ['a second dot', 'i\u0307'],
  ['a script that nobody writes today', '\u{10300}\u{10301}'],
  ['the prefix of ASCII forms', 'xn--zo-ija'],
  ['the prefix of ASCII forms in a Unicode name', 'XN--zoë'],
])('%s is refused', (_, name) => expect(isChosenName(name)).toBe(false))

const someName = fc.string({
  unit: fc.oneof(fc.constantFrom(...'ab -.éёλの田김'), fc.string({ unit: 'binary', maxLength: 2 })),
  maxLength: 24,
})

test('a tidy name stays the same', () => {
  fc.assert(fc.property(someName, (text) => tidyName(tidyName(text)) === tidyName(text)))
})

test('each name that can be chosen has an ASCII form that every version accepts, and returns from it', () => {
  const isForEarlierVersions = (form: string) => /^[!-~][ -~]*$/.test(form) && !/ {2}| $|^-|[/,*()]/.test(form)
  let chosen = 0
  fc.assert(
    fc.property(someName.map(tidyName).filter(isChosenName), (name) => {
      chosen += 1
      const form = asciiName(name)
      return isForEarlierVersions(form) && form.length <= 64 && unicodeName(form) === name
    }),
  )
  expect(chosen).toBeGreaterThan(50)
})

test('the ASCII form is Punycode', () => {
  const withoutAscii = fc
    .string({ unit: 'grapheme', minLength: 1 })
    .filter((text) => /\P{ASCII}/u.test(text) && !/[ /]/.test(text))
  fc.assert(fc.property(withoutAscii, (text) => asciiName(text) === `xn--${punycode.encode(text)}`))
})

test('no two ASCII forms have the same Unicode form', () => {
  const form = fc.string({ unit: fc.constantFrom(...'abz019-A'), maxLength: 10 }).map((code) => `xn--${code}`)
  fc.assert(fc.property(form, (text) => [text, asciiName(unicodeName(text))].includes(text)))
  for (const text of [
    'xn--ZO-IJA',
    'xn--zo-',
    'xn--',
    'xn---ija',
    'xn--zo-99999999999999',
    'xn--p-\u00e9',
    'xn--bob-gn0a',
  ])
    expect(unicodeName(text)).toBe(text)
})

test('each part of a device name has its own form', () => {
  expect(asciiName('Zoë/api-server')).toBe('xn--Zo-ija/api-server')
  expect(unicodeName('bob/xn--Zo-ija')).toBe('bob/Zoë')
})
