import { Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { openBar } from './files.ts'

/** Returns a terminal's output for a half-transferred file. */
function shownOn(isInteractive: boolean): string {
  let shown = ''
  const write = (chunk: Buffer, _: string, done: () => void) => {
    shown += chunk.toString()
    done()
  }
  const terminal = Object.assign(new Writable({ write }), { isTTY: true, columns: 80 })
  using bar = openBar({ isInteractive }, 'plan.pdf', terminal)
  bar.update({ bytes: 5 * 2 ** 20, total: 10 * 2 ** 20 })
  bar.update({ bytes: 10 * 2 ** 20, total: 10 * 2 ** 20 })
  return stripVTControlCharacters(shown)
}

test('a bar shows how much of the file has been transferred', () => {
  expect(shownOn(true)).toMatch(/50 % {2}5\.0 of 10\.0 MB {2}plan\.pdf/)
})

test('without a terminal there is no bar', () => {
  expect(shownOn(false)).toBe('')
})
