import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { cliReference } from './reference.ts'

test('the reference page is up to date (bun scripts/reference.ts)', async () => {
  const page = join(import.meta.dirname, '../../../docs/reference/cli.md')
  expect(readFileSync(page, 'utf8')).toBe(await cliReference())
})
