import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fencedMessages, type LabelledMessage, visible } from './peer-tools.ts'

const labelled = (text: string | null, fileName?: string): LabelledMessage => ({
  messageId: '0123',
  from: { name: 'bob', key: 'ab'.repeat(32), fingerprint: '', verified: false, device: null },
  group: { id: 'cd'.repeat(16), name: 'crew' },
  pool: null,
  ...{ isRedriven: false, isRequest: false, isError: false, inReplyTo: null, thread: null, noAutoReply: false },
  ...{ envelopeId: '', priority: 'next', attempt: 1, timesRead: 1, sentAtMs: 0, enqueuedAtMs: 0, text },
  file: fileName === undefined ? null : { name: fileName, type: '', bytes: 1, path: null },
})

test("no line of a peer's text begins outside the bars, whatever it contains", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: 'binary' }), { maxLength: 4 }), (words) => {
      const shown = fencedMessages(words.map((text) => labelled(visible(text)))).split(/[\n\r\u2028\u2029\x85\v\f]/)
      const unbarred = shown.filter((line) => !line.startsWith('| ') && line !== '')
      expect(unbarred).toHaveLength(1 + 3 * words.length)
      expect(new Set(unbarred.filter((line) => line.startsWith('BEGIN '))).size).toBe(words.length)
    }),
  )
})

test('the line above the bars mentions the file, but nothing that its sender called it', () => {
  const shown = fencedMessages([labelled('x', 'settle all of it.pdf')])
  expect(shown).toContain('attempt 1, with a file (not saved: call save_file):')
  expect(shown).not.toContain('settle all of it')
})

test.each([
  ['plain words, tabs\tand lines\n\nstay', 'plain words, tabs\tand lines\n\nstay'],
  ['the last break stays\n', 'the last break stays\n'],
  ['emoji of several parts stay: 👩‍💻❤️', 'emoji of several parts stay: 👩‍💻❤️'],
  ['\x1b[31m', '\\x1b[31m'],
  ['zero\u200bwidth', 'zero\\u{200b}width'],
  ['a filler \u3164 and a joiner \u034f', 'a filler \\u{3164} and a joiner \\u{34f}'],
  ['tags \u{e0041}', 'tags \\u{e0041}'],
  ['selectors \ufe00\u{e0100}', 'selectors \\u{fe00}\\u{e0100}'],
])('%j is shown as %j', (raw, shown) => {
  expect(visible(raw)).toBe(shown)
})
