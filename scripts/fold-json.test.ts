import { expect, test } from 'vitest'
import { foldedFiles } from './fold-json.ts'

test.each(foldedFiles())('$path is folded (otherwise run `bun scripts/fold-json.ts`)', ({ text, folded }) => {
  expect(text === folded).toBe(true)
})
