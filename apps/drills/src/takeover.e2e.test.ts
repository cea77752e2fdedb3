import { Teardown } from '@sealpost/harness/programs/teardown'
import { expect, test } from 'vitest'
import { drillTakeover } from './takeover.ts'

test("an identity that moves between two brokers under load receives each sender's messages in order", {
  timeout: 300_000,
}, async () => {
  const teardown = new Teardown()
  try {
    const [result] = await drillTakeover({ runs: 1, takeovers: 40, rate: 600 }, teardown)
    expect(result).toMatchObject({ lost: 0, misordered: 0 })
    expect(result!.sent).toBeGreaterThan(0)
  } finally {
    await teardown.run()
  }
})
