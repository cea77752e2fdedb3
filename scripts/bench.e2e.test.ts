/** The benchmark with a handful of messages: every part still runs, and tables and charts come of it. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { scratchDatabase } from '@sealpost/db/testing'
import { expect, test } from 'vitest'
import { PARTS } from './bench/parts.ts'
import type { Results } from './bench/results.ts'
import { count, plural } from './load/text.ts'

const SCRIPT = join(import.meta.dirname, 'bench.ts')
const DOCS = join(import.meta.dirname, '../docs')

async function run(words: string[], env: Record<string, string> = {}) {
  const child = Bun.spawn([process.execPath, SCRIPT, ...words], {
    env: { ...process.env, BROKER_WS_URL: '', LIMITS: '', ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const err = await new Response(child.stderr).text()
  return { code: await child.exited, err }
}

test('every part runs, and fills its table and its chart', { timeout: 600_000 }, async () => {
  const database = await scratchDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-bench-test-'))
  const page = await readFile(join(DOCS, 'BENCHMARKS.md'), 'utf8')
  try {
    const env = { DATABASE_URL: database.url, TMPDIR: folder }
    const { code, err } = await run(['--tiny', '--into', folder], env)
    expect(err).not.toContain('not as it should be')
    expect(code).toBe(0)

    const results = (await Bun.file(join(folder, 'benchmarks/results.json')).json()) as Results
    expect(Object.keys(results).toSorted()).toEqual(PARTS.map(({ name }) => name).toSorted())
    const filled = await readFile(join(folder, 'BENCHMARKS.md'), 'utf8')
    expect(filled).not.toContain('Not measured yet.')
    expect(filled).not.toMatch(/NaN|undefined|Infinity/)
    expect(filled).toContain('![Latency by percentile')
    expect((await readdir(join(folder, 'benchmarks'))).toSorted()).toEqual([
      'latency.svg',
      'peers.svg',
      'results.json',
      'soak.svg',
    ])
    expect((await readdir(folder)).toSorted()).toEqual(['BENCHMARKS.md', 'PROMISES.md', 'README.md', 'benchmarks'])
    expect(await readFile(join(DOCS, 'BENCHMARKS.md'), 'utf8')).toBe(page)
    const readme = await readFile(join(folder, 'README.md'), 'utf8')
    expect(readme).toContain('4 peers × 10 messages, all called at once')
    expect(readme).not.toMatch(/NaN|undefined|Infinity/)
    const { faults, acked } = results.torture!.torture!.result.torture!
    expect(faults).toBeGreaterThan(0)
    expect(readme).toContain(`in ${plural(faults, 'fault')} of 1 kind`)
    expect(await readFile(join(folder, 'PROMISES.md'), 'utf8')).toContain(`of ${count(acked)} lost, in `)

    const again = await run(['--render', '--into', folder])
    expect(again.code).toBe(0)
    expect(await readFile(join(folder, 'BENCHMARKS.md'), 'utf8')).toBe(filled)
  } finally {
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
})

test('a part that does not exist is refused, with the ones that do', async () => {
  const { code, err } = await run(['--only', 'burst,brust'])
  expect(code).toBe(2)
  expect(err).toContain('There is no part "brust"')
  expect(err).toContain('burst, window8, drain')
})
