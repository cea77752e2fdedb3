import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { toolsTable } from './serve.ts'

test('docs/MCP.md contains the current table of tools', () => {
  const page = join(import.meta.dirname, '../../../../docs/MCP.md')
  expect(readFileSync(page, 'utf8')).toContain(toolsTable())
})
