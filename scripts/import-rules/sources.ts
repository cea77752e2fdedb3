/** Reads the files that the rules apply to. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename, join, relative, sep } from 'node:path'
import type { SourceFile } from './check.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The folders in `.gitignore`, by name or by path. */
const IGNORED = new Set(
  readFileSync(join(ROOT, '.gitignore'), 'utf8')
    .split('\n')
    .filter((line) => line.endsWith('/'))
    .map((line) => line.slice(0, -1)),
)

/** Returns whether a folder, by its path from the root, is not part of the sources. */
export const isIgnored = (path: string): boolean =>
  [path, basename(path)].some((name) => name === '.git' || IGNORED.has(name))

/** Returns the repository's TypeScript files, or those with other extensions. */
export function readSources(extension = /\.[cm]?tsx?$/): SourceFile[] {
  const files: SourceFile[] = []
  const walk = (folder: string) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      const fromRoot = relative(ROOT, path).split(sep).join('/')
      if (entry.isDirectory() && !isIgnored(fromRoot)) walk(path)
      if (entry.isFile() && extension.test(entry.name))
        files.push({ path: fromRoot, source: readFileSync(path, 'utf8') })
    }
  }
  walk(ROOT)
  return files
}
