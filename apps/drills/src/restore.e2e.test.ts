import { Teardown } from '@sealpost/harness/programs/teardown'
import { expect, test } from 'vitest'
import { drillRestore } from './restore.ts'

test('a restored backup loses no message whose sender lives, shows none twice, and reuses no delivery id', {
  timeout: 300_000,
}, async () => {
  const teardown = new Teardown()
  try {
    expect(await drillRestore({ messages: 50 }, teardown)).toEqual({
      acked: 300,
      ackedAfterBackup: 100,
      reoffered: 200,
      delivered: 300,
      lost: 0,
      duplicates: 0,
      misordered: 0,
      idsReused: 0,
      isNewIncarnation: true,
      recoveredInMs: expect.any(Number),
    })
  } finally {
    await teardown.run()
  }
})
