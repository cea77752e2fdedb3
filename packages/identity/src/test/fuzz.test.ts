import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { fuzzIdentity } from './fuzz.ts'

beforeAll(() => ready())

test('no input of a seeded fuzz run is thrown at, or accepted as something else', () => {
  const reports = fuzzIdentity({ seed: 20_261_121, inputs: 500 })
  // The run is worth something only while it reaches both sides.
  for (const [name, { accepted, refused }] of Object.entries(reports)) {
    expect(accepted, name).toBeGreaterThan(10)
    expect(refused, name).toBeGreaterThan(50)
  }
})
