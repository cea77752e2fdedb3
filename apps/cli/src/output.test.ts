import { expect, test } from 'vitest'
import { exitCodeOf, exitReasonOf, exitReasons } from './exit-codes.ts'
import { escapeName, escapeText, Output, type OutputOptions } from './output.ts'
import { parseDuration, parseInteger } from './settings.ts'

function outputTo(said: { out: string; err: string }, options: Partial<OutputOptions> = {}): Output {
  const screen = (name: 'out' | 'err') => ({
    write: (text: string, written: () => void) => {
      said[name] += text
      written()
    },
  })
  return new Output(
    { isJson: false, isQuiet: false, hasColors: false, ...options },
    { out: screen('out'), err: screen('err') },
  )
}
const nothing = () => ({ out: '', err: '' })

test('results go to stdout, and everything else to stderr', async () => {
  const said = nothing()
  const output = outputTo(said)
  await output.result({ a: 1 }, () => 'one')
  output.info('nice')
  output.warn('careful')
  output.fail('some_code', 'It broke.')
  expect(said).toEqual({ out: 'one\n', err: 'nice\ncareful\nerror: It broke. (some_code)\n' })
})

test('with --json each result is one object per line, and so is an error', async () => {
  const said = nothing()
  const output = outputTo(said, { isJson: true })
  await output.result({ text: '\u202e\x1b[2J' }, () => '')
  await output.results([{ a: 1 }, { a: 2 }], () => '')
  output.fail('some_code', 'It broke.')
  expect(
    said.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toEqual([{ text: '\u202e\x1b[2J' }, { a: 1 }, { a: 2 }])
  expect(JSON.parse(said.err)).toEqual({ error: { code: 'some_code', message: 'It broke.' } })
})

test('with --json the output contains no terminal control characters, and parses to the original text', async () => {
  const said = nothing()
  const text = '\u009b2J\u007f\u202efdp.exe\u200b\u2028\u{e0041} zoë 👩\u200d🚀'
  const output = outputTo(said, { isJson: true })
  await output.result({ text }, () => '')
  await output.results([{ text }], () => '')
  output.fail('some_code', text)
  expect(said.out + said.err).not.toMatch(/[\u007f-\u009f\p{Cf}\u2028\u2029]/u)
  expect(said.out).toContain('zoë')
  for (const line of said.out.trim().split('\n')) expect(JSON.parse(line)).toEqual({ text })
})

test('--quiet keeps essential output', () => {
  const said = nothing()
  const output = outputTo(said, { isQuiet: true })
  output.info('nice')
  output.show('picture')
  output.warn('careful')
  expect(said.err).toBe('careful\n')
})

test('a closed output stream is an error of the command', async () => {
  const broken = { write: (_: string, written: (error: Error) => void) => written(new Error('EPIPE')) }
  const output = new Output({ isJson: false, isQuiet: false, hasColors: null }, { out: broken, err: broken })
  await expect(output.result({}, () => 'text')).rejects.toThrow('EPIPE')
})

test('tables and facts are columns without a frame or trailing blanks', () => {
  const output = outputTo(nothing())
  expect(
    output.table(
      ['NAME', 'ROLE'],
      [
        ['alexander', 'admin'],
        ['bo', ''],
      ],
    ),
  ).toBe('NAME       ROLE\nalexander  admin\nbo')
  expect(
    output.facts([
      ['a', '1'],
      ['long', '2'],
    ]),
  ).toBe('a     1\nlong  2')
})

test('wide, combining and right-to-left names stay in their column', () => {
  const names = ['bob', '日本太郎', 'zoë', 'नरेंद्र', 'สมชาย น้ำ', 'שלום']
  const lines = outputTo(nothing())
    .table(['NAME', 'ROLE'], [...names.map((name) => [escapeName(name), 'member'])])
    .split('\n')
  const before = lines.map((line) =>
    Bun.stringWidth(line.replace(/(?:ROLE|member)$/, '').replace(/[\u2068\u2069]/g, '')),
  )
  expect(new Set(before)).toEqual(new Set([Bun.stringWidth('สมชาย น้ำ') + 2]))
})

test('a name from right to left is isolated from the rest of the line', () => {
  expect(escapeName('שלום')).toBe('\u2068שלום\u2069')
  expect(escapeName('محمد\u202e')).toBe('\u2068محمد\\u{202e}\u2069')
  expect(escapeName('Зоя')).toBe('Зоя')
})

test('exit codes are distinct, and error codes map to them', () => {
  expect(new Set(exitReasons.map(({ exitCode }) => exitCode)).size).toBe(exitReasons.length)
  const found = [
    'unknown_recipient',
    'auth_failed',
    'superseded',
    'rate_limited',
    'db_unavailable',
    'timeout',
    'new_code',
  ]
  expect(found.map((code) => exitCodeOf(exitReasonOf(code)))).toEqual([3, 4, 5, 6, 7, 124, 1])
})

test('durations are parsed to seconds', () => {
  expect(['30', '30s', '5m', '2h', '14d'].map(parseDuration)).toEqual([30, 30, 300, 7200, 1_209_600])
  for (const text of ['', '0', '-1', '1.5h', '3w', 'soon', '1e3']) expect(() => parseDuration(text)).toThrow()
})

test('integers outside their bounds are refused', () => {
  expect(parseInteger(1, 10)('10')).toBe(10)
  for (const text of ['0', '11', '1.0', ' 1', '0x1', ''])
    expect(() => parseInteger(1, 10)(text)).toThrow('from 1 to 10')
})

test.each([
  ['\x1b[31mred', '\\x1b[31mred'],
  ['a\x07b\x00c\x9b2J', 'a\\x07b\\x00c\\x9b2J'],
  ['abc\u202efed', 'abc\\u{202e}fed'],
  ['zero\u200bwidth\u2066x\u2069\ufeff', 'zero\\u{200b}width\\u{2066}x\\u{2069}\\u{feff}'],
  ['line\u2028sep\u2029par', 'line\\u{2028}sep\\u{2029}par'],
  ['lone \ud800 surrogate', 'lone \\u{d800} surrogate'],
  ['one\rtwo', 'one\\x0dtwo'],
])('%j has no effect on a terminal', (text, shown) => {
  expect(escapeText(text, '  ')).toBe(shown)
  expect(escapeName(text)).toBe(shown)
})

test('further lines of a text are indented, and a trailing line break adds none', () => {
  expect(escapeText('one\ntwo\r\nthree\n', '  ')).toBe('one\n  two\n  three')
})

test('a name stays on one line, and joiners in it are shown', () => {
  expect(escapeName('a\nb\tc\u200d')).toBe('a\\nb\\x09c\\u{200d}')
})

test('letters, emoji with joiners and tabs are unchanged', () => {
  const text = 'Grüße\t你好 👩\u200d💻 می\u200cخواهم'
  expect(escapeText(text, '')).toBe(text)
})
