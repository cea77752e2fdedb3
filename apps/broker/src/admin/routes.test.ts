import { expect, test } from 'vitest'
import { adminDocument, adminDocumentText } from './routes.ts'

test('every request needs a token, and the document has no dangling reference', () => {
  const { paths, components } = adminDocument()
  const operations = Object.values(paths ?? {}).flatMap((item) => Object.values(item))
  expect(operations.length).toBeGreaterThan(10)
  for (const { security } of operations) expect(security).toEqual([{ bearer: [] }])
  const referred = [...adminDocumentText().matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name)
  expect(Object.keys(components?.schemas ?? {})).toEqual(expect.arrayContaining(referred))
})
