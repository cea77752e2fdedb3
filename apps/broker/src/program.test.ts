import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { SMALL_HEAP } from './program.ts'

const ROOT = join(import.meta.dirname, '../../..')

test.each(['package.json', 'README.md'])('whoever starts it by hand is told the same heap by %s', (name) => {
  const [[variable, bytes]] = Object.entries(SMALL_HEAP) as [[string, string]]
  expect(readFileSync(join(ROOT, name), 'utf8')).toContain(`${variable}=${bytes}`)
})
