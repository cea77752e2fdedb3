import { expect, test } from 'vitest'
import { escapeName, escapeText } from './terminal-text.ts'

test.each([
  ['\x1b[31mred', '\\x1b[31mred'],
  ['a\x07b\x00c\x9b2J', 'a\\x07b\\x00c\\x9b2J'],
  ['abc\u202efed', 'abc\\u{202e}fed'],
  ['zero\u200bwidth\u2066x\u2069\ufeff', 'zero\\u{200b}width\\u{2066}x\\u{2069}\\u{feff}'],
  ['line\u2028sep\u2029par', 'line\\u{2028}sep\\u{2029}par'],
  ['lone \ud800 surrogate', 'lone \\u{d800} surrogate'],
  ['one\rtwo', 'one\\x0dtwo'],
])('%j can do nothing to a terminal', (text, shown) => {
  expect(escapeText(text, '  ')).toBe(shown)
  expect(escapeName(text)).toBe(shown)
})

test('further lines of a text are indented, and the last line break is not one', () => {
  expect(escapeText('one\ntwo\r\nthree\n', '  ')).toBe('one\n  two\n  three')
})

test('a name stays in one line, and joiners do not hide in it', () => {
  expect(escapeName('a\nb\tc\u200d')).toBe('a\\nb\\x09c\\u{200d}')
})

test('letters, emoji with joiners and tabs are text', () => {
  const text = 'Grüße\t你好 👩\u200d💻 می\u200cخواهم'
  expect(escapeText(text, '')).toBe(text)
})
