import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { PLATFORM_SETTINGS } from './program.ts'

const ROOT = join(import.meta.dirname, '../../..')

const PLACES = ['docs/OPERATIONS.md', 'package.json', 'Dockerfile', 'docs/deploy/systemd/sealpost.service']

test.each(PLACES)('%s sets the same platform settings', (name) => {
  const text = readFileSync(join(ROOT, name), 'utf8')
  for (const [variable, value] of Object.entries(PLATFORM_SETTINGS)) expect(text).toContain(`${variable}=${value}`)
})
