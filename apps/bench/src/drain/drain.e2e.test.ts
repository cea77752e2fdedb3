/** Tests the drain probe as an engineer runs it. */
import { join } from 'node:path'
import { scratchDatabase } from '@sealpost/schema/testing'
import { expect, test } from 'vitest'

const SCRIPT = join(import.meta.dirname, '../../../../scripts/drain.ts')

test('a drain is measured to its end, with and without a floor', { timeout: 60_000 }, async () => {
  const database = await scratchDatabase()
  try {
    for (const words of [[], ['--floor', '--table', 'fillfactor = 50']]) {
      const child = Bun.spawn([process.execPath, SCRIPT, '--rows', '6000', '--recipients', '3', ...words], {
        env: { ...process.env, DATABASE_URL: database.url },
        stdout: 'pipe',
        stderr: 'pipe',
      })
      const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
      expect([code, err]).toEqual([0, ''])
      expect(out).toMatch(/^ +6,000 +[\d,]+ +\d/m)
    }
  } finally {
    await database.drop()
  }
})
