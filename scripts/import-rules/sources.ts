/** Reads the files that the rules apply to. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { SourceFile } from './check.ts'

const ROOT = join(import.meta.dirname, '../..')
const SKIPPED = new Set(['node_modules', '.git', '.turbo', '.sealpost', 'coverage', 'dist'])

/** Returns the repository's TypeScript files, or those with other extensions. */
export function readSources(extension = /\.[cm]?tsx?$/): SourceFile[] {
  const files: SourceFile[] = []
  const walk = (folder: string) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      if (entry.isDirectory() && !SKIPPED.has(entry.name)) walk(path)
      if (entry.isFile() && extension.test(entry.name)) {
        files.push({ path: relative(ROOT, path).split(sep).join('/'), source: readFileSync(path, 'utf8') })
      }
    }
  }
  walk(ROOT)
  return files
}
