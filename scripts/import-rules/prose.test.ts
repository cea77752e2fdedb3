/** Keeps vague phrases out of code and documents. */
import { expect, test } from 'vitest'
import { lineAt } from './scan.ts'
import { readSources } from './sources.ts'

/** Phrases and their replacements. Brackets hide them from their own search. */
const PHRASES: readonly { readonly found: RegExp; readonly instead: string }[] = [
  { found: /\bwh[o]ever\b/i, instead: 'name the person or the part' },
  { found: /\ban[e]w\b/i, instead: 'again' },
  { found: /\bsome[b]ody\b/i, instead: 'someone, or name them' },
  { found: /\bgoes [o]n\b(?! (?:a|an|the)\b)/i, instead: 'continues, resumes' },
  { found: /\bso [m]any\b/i, instead: 'this number, at most N, enough' },
  { found: /\bm[e]nd(?:s|ed|ing)?\b/i, instead: 'repair, fix' },
  { found: /(?:\/\*\*|^\s*\*) Answers /m, instead: 'Returns, Resolves with' },
]

const files = readSources(/\.(?:tsx?|md)$/)

test.each(PHRASES)('no file contains $found: $instead', ({ found }) => {
  const hits = files.filter(({ source }) => found.test(source))
  expect(hits.map(({ path, source }) => `${path}:${lineAt(source, source.search(found))}`)).toEqual([])
})
