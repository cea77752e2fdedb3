/** Tests that other tests cover every refusal. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { refusalCodes } from '@sealpost/protocol'
import { expect, test } from 'vitest'
import { httpRefusals } from '../http/tokens.ts'

const page = readFileSync(join(import.meta.dirname, '../../../../docs/PROTOCOL.md'), 'utf8')
/** The codes in the page's three tables: upgrades, frames and HTTP requests. */
const codes = new Set([...page.matchAll(/^\| \d+ \| `([a-z_]+)` \|/gm)].map(([, code]) => code!))

const SOURCES = join(import.meta.dirname, '..')
/** Test files, including their tables of inputs and replies. */
const suites = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' }).filter((name) =>
  /\.e2e\.test\.ts$|\/hostile-[^/]*\.ts$/.test(name),
)
const texts = suites.map((name) => readFileSync(join(SOURCES, name), 'utf8'))
const isProvoked = (code: string) => texts.some((text) => new RegExp(`['"\`](?:\\d+ )?${code}['"\`]`).test(text))

test('PROTOCOL.md names every code, and this test finds them all', () => {
  expect([...refusalCodes, ...Object.keys(httpRefusals)].filter((code) => !codes.has(code))).toEqual([])
  expect(codes).toContain('wrong_authority')
  expect(isProvoked('no_such_code')).toBe(false)
})

test.each([...codes])('a test provokes %s', (code) => {
  expect(isProvoked(code)).toBe(true)
})
