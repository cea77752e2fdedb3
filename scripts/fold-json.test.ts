import { expect, test } from 'vitest'
import { foldedFiles } from './fold-json.ts'

test.each(foldedFiles())('$path has few lines (else run `bun scripts/fold-json.ts`)', ({ text, folded }) => {
  expect(text === folded).toBe(true)
})
