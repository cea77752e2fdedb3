import { ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { fuzzPeer } from './testing-fuzz.ts'

beforeAll(() => ready())

test('whatever a broker says, a peer throws nothing and hands out only what was sealed for it, once', () => {
  const report = fuzzPeer({ seed: 20_261_121, inputs: 10_000 })
  // The run is worth something only while sessions are live, mail comes through, and forgeries are met.
  expect(report.sessions).toBeGreaterThan(20)
  expect(report.delivered).toBeGreaterThan(100)
  expect(report.tampered).toBeGreaterThan(20)
})
