/** Reads files of the repository for the deployment tests. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../..')

export const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

export function yamlOf(path: string): unknown[] {
  const parsed = Bun.YAML.parse(textOf(path))
  return Array.isArray(parsed) ? parsed : [parsed]
}

export const manifest = JSON.parse(textOf('package.json')) as { version: string }
