/** Checks that a plain envelope's path stays short, and that docs/ARCHITECTURE.md lists its files. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Teardown } from '@sealpost/harness/programs/teardown'
import { expect, test } from 'vitest'
import { traceMessage } from './message-trace.ts'

const ARCHITECTURE = join(import.meta.dirname, '../../../../docs/ARCHITECTURE.md')
const ROW = /^\| \d+ \| `([^`]+)` \|/gm

test('a plain envelope passes through the files that the architecture lists, with a limited number of calls', {
  timeout: 120_000,
}, async () => {
  const teardown = new Teardown()
  try {
    const { envelope, settle } = await traceMessage(teardown)
    const listed = [...readFileSync(ARCHITECTURE, 'utf8').matchAll(ROW)].map(([, file]) => file!)
    expect(envelope.files.toSorted()).toEqual(listed.toSorted())
    expect(envelope.files.length, envelope.files.join('\n')).toBeLessThanOrEqual(20)
    expect(envelope.moves).toBeLessThanOrEqual(70)
    expect(envelope.calls, envelope.functions.join('\n')).toBeLessThanOrEqual(150)
    expect(settle.files.length, settle.files.join('\n')).toBeLessThanOrEqual(14)
  } finally {
    await teardown.run()
  }
})
