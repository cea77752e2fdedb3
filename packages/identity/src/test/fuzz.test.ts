import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { fuzzIdentity } from './fuzz.ts'

beforeAll(() => ready())

test('no input of a seeded fuzz run causes an exception or is accepted as something else', () => {
  const reports = fuzzIdentity({ seed: 20_261_121, inputs: 500 })
  // A run is meaningful only if it covers both outcomes.
  for (const [name, { accepted, refused }] of Object.entries(reports)) {
    expect(accepted, name).toBeGreaterThan(10)
    expect(refused, name).toBeGreaterThan(50)
  }
})
