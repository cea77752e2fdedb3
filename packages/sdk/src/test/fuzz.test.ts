import { ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { fuzzPeer } from './fuzz.ts'

beforeAll(() => ready())

/** In seeds 3 and 74, the broker pushes a rejected message again, as after a redrive. */
test.each([20_261_121, 3, 74])(
  'whatever a broker sends, a peer throws nothing and hands out only what was sealed for it, once (seed %i)',
  (seed) => {
    const report = fuzzPeer({ seed, inputs: 10_000 })
    // A run without sessions, mail or forgeries would prove nothing.
    expect(report.sessions).toBeGreaterThan(20)
    expect(report.delivered).toBeGreaterThan(100)
    expect(report.tampered).toBeGreaterThan(20)
  },
)
