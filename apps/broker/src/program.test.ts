import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { SMALL_HEAP } from './program.ts'

const ROOT = join(import.meta.dirname, '../../..')

const PLACES = ['README.md', 'package.json', 'Dockerfile', 'docs/deploy/systemd/sealpost.service']

test.each(PLACES)('whoever starts it without us is told the same heap by %s', (name) => {
  const text = readFileSync(join(ROOT, name), 'utf8')
  for (const [variable, value] of Object.entries(SMALL_HEAP)) expect(text).toContain(`${variable}=${value}`)
})
