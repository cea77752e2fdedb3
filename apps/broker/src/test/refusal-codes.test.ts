/** Checks that tests cover every refusal in the protocol. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { refusalCodes } from '@sealpost/protocol'
import { expect, test } from 'vitest'
import { httpRefusals } from '../http/tokens.ts'

const page = readFileSync(join(import.meta.dirname, '../../../../docs/PROTOCOL.md'), 'utf8')
/** The codes in the three tables of the page: refusals of upgrades, frames and HTTP requests. */
const codes = new Set([...page.matchAll(/^\| \d+ \| `([a-z_]+)` \|/gm)].map(([, code]) => code!))

const SOURCES = join(import.meta.dirname, '..')
/** Test files, including the tables of inputs and replies that some of them use. */
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
