/** Rewrites large JSON files with fewer lines: `bun scripts/fold-json.ts`, after each change. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { foldedJson } from '@sealpost/harness/report/text'

const ROOT = join(import.meta.dirname, '..')

/** The depth to which each glob's files are expanded. */
const FOLDED: Readonly<Record<string, number>> = {
  'docs/benchmarks/results.json': 3, // one line per result of a run
  'docs/grafana/board.json': 3, // one line per property of a panel
  'packages/*/migrations/meta/*_snapshot.json': 3, // one line per column of a table
}

interface FoldedFile {
  /** The path relative to the repository root. */
  readonly path: string
  readonly text: string
  readonly folded: string
}

export const foldedFiles = (): readonly FoldedFile[] =>
  Object.entries(FOLDED).flatMap(([glob, depth]) =>
    [...new Bun.Glob(glob).scanSync(ROOT)].map((path) => {
      const text = readFileSync(join(ROOT, path), 'utf8')
      return { path, text, folded: foldedJson(JSON.parse(text), depth) }
    }),
  )

if (import.meta.main) for (const { path, folded } of foldedFiles()) writeFileSync(join(ROOT, path), folded)
