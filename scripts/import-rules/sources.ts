/** Reads the sources that the rules are about. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { SourceFile } from './check.ts'

const ROOT = join(import.meta.dirname, '../..')

/** Every TypeScript file of the repository. */
export function readSources(): SourceFile[] {
  const skipped = new Set(['node_modules', '.git', '.turbo', '.sealpost', 'coverage', 'dist'])
  const files: SourceFile[] = []
  const walk = (folder: string) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      if (entry.isDirectory() && !skipped.has(entry.name)) walk(path)
      if (entry.isFile() && /\.[cm]?tsx?$/.test(entry.name)) {
        files.push({ path: relative(ROOT, path).split(sep).join('/'), source: readFileSync(path, 'utf8') })
      }
    }
  }
  walk(ROOT)
  return files
}
