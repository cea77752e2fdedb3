/** Runs the attack bench as an engineer would, with one attack. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { scratchDatabase } from '@sealpost/schema/testing'
import { expect, test } from 'vitest'
import type { AttackOutcome } from './measure.ts'

const SCRIPT = join(import.meta.dirname, '../../../../scripts/attack.ts')

async function run(words: readonly string[], env: Record<string, string> = {}) {
  const child = Bun.spawn([process.execPath, SCRIPT, ...words], {
    env: { ...process.env, ...env },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { out, err, code }
}

test('an attack is measured against honest peers, with and without it', { timeout: 120_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-attack-test-'))
  const database = await scratchDatabase()
  try {
    const file = join(folder, 'result.json')
    const words = ['--only', 'socket-deep', '--pairs', '1', '--seconds', '1', '--json', file]
    const { out, err } = await run(words, { DATABASE_URL: database.url, TMPDIR: folder })
    expect(err).toMatch(/^socket-deep: p99 /)
    expect(out).toContain('Bars: p99 at most 50 ms more')
    const [outcome] = (await Bun.file(file).json()) as AttackOutcome[]
    expect(outcome!.pairs).toHaveLength(1)
    expect(outcome!.tries).toBeGreaterThan(0)
    expect(outcome!.pairs[0]!.under.answers['1009']).toBeGreaterThan(0)
  } finally {
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
})

test('an unknown attack is refused with a sentence', async () => {
  const { err, code } = await run(['--only', 'nothing'])
  expect(err).toBe('There is no attack "nothing". --list prints the attacks.\n')
  expect(code).toBe(1)
})
