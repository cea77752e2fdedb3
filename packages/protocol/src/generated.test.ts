/**
 * Tests that the generated files are up to date: `vectors/frames.json`, and the tables between markers in
 * `docs/PROTOCOL.md`. To update them:
 *     bun --bun vitest run packages/protocol/src/generated.test.ts -u
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { withTables } from '../vectors/tables.ts'
import { vectorsText } from '../vectors/vectors.ts'

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url))
const specification = pathOf('../../../docs/PROTOCOL.md')
const page = readFileSync(specification, 'utf8')

test('frames.json contains the samples', async () => {
  await expect(vectorsText()).toMatchFileSnapshot(pathOf('../vectors/frames.json'))
})

test('the specification contains the tables of the code', async () => {
  await expect(withTables(page)).toMatchFileSnapshot(specification)
})

test('a table that differs is detected, and so is a missing marker', () => {
  const changed = page
    .replace('| `envelopes.recipient` |', '| `envelopes.to` |')
    .replace('| 5 | `id_reused`', '| 6 | `id_reused`')
  expect(changed).not.toBe(page)
  expect(withTables(changed)).toBe(withTables(page))
  expect(() => withTables(page.replace('<!-- end codes -->', ''))).toThrow('no place for codes')
})
