/** Runs the benchmark with a handful of messages, with tables and charts. */
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { count, plural } from '@sealpost/harness/report/text'
import { scratchDatabase } from '@sealpost/schema/testing'
import { expect, test } from 'vitest'
import { PARTS } from './parts.ts'
import type { Results } from './results.ts'

const SCRIPT = join(import.meta.dirname, '../../../../scripts/bench.ts')
const DOCS = join(import.meta.dirname, '../../../../docs')

async function run(words: string[], env: Record<string, string> = {}) {
  const child = Bun.spawn([process.execPath, SCRIPT, ...words], {
    env: { ...process.env, BROKER_WS_URL: '', LIMITS: '', ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const err = await new Response(child.stderr).text()
  return { code: await child.exited, err }
}

/** A part for each kind of result; the committed file has the others. */
const MEASURED = ['burst', 'small', 'pairs', 'shards', 'connections', 'idle', 'torture', 'soak-backlog']

test('a part of each kind runs, and every part fills its table and its chart', { timeout: 600_000 }, async () => {
  const database = await scratchDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-bench-test-'))
  const page = await readFile(join(DOCS, 'BENCHMARKS.md'), 'utf8')
  try {
    const env = { DATABASE_URL: database.url, TMPDIR: folder }
    await mkdir(join(folder, 'benchmarks'))
    await copyFile(join(DOCS, 'benchmarks/results.json'), join(folder, 'benchmarks/results.json'))
    const { code, err } = await run(['--tiny', '--only', MEASURED.join(), '--into', folder], env)
    expect(err).not.toContain('not as it should be')
    expect(code).toBe(0)

    const results = (await Bun.file(join(folder, 'benchmarks/results.json')).json()) as Results
    expect(Object.keys({ ...results, rivals: {} }).toSorted()).toEqual(PARTS.map(({ name }) => name).toSorted())
    for (const name of MEASURED)
      expect(Object.values(results[name]!).map(({ command }) => command)).toEqual(expect.arrayContaining(tinyOf(name)))
    const filled = await readFile(join(folder, 'BENCHMARKS.md'), 'utf8')
    expect(filled.match(/Not measured yet\./g) ?? []).toHaveLength(results.rivals ? 0 : 1)
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
    expect(readme).toContain('4 peers × 10 messages, all sent at once')
    expect(readme).not.toMatch(/NaN|undefined|Infinity/)
    const { faults, acked } = results.torture!.torture!.result.torture!
    expect(faults).toBeGreaterThan(0)
    expect(readme).toContain(`In ${plural(faults, 'fault')} of 1 kind`)
    expect(await readFile(join(folder, 'PROMISES.md'), 'utf8')).toContain(`of ${count(acked)} lost, in `)

    const again = await run(['--render', '--into', folder])
    expect(again.code).toBe(0)
    expect(await readFile(join(folder, 'BENCHMARKS.md'), 'utf8')).toBe(filled)
  } finally {
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
})

const rivalsTest = 'the comparison with Redis and NATS fills its table'
const isMissing =
  ['redis-server', '/usr/sbin/nats-server'].some((program) => !Bun.which(program)) && process.env.CI !== 'true'

if (isMissing) test.skip(`${rivalsTest}: requires an installed redis-server and nats-server`)
else
  test(rivalsTest, { timeout: 300_000 }, async () => {
    const database = await scratchDatabase()
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-bench-test-'))
    try {
      const env = { DATABASE_URL: database.url, TMPDIR: folder }
      const { code, err } = await run(['--tiny', '--only', 'rivals', '--into', folder], env)
      expect([code, err]).toEqual([0, expect.stringContaining('rivals: ')])
      const filled = await readFile(join(folder, 'BENCHMARKS.md'), 'utf8')
      const table = /<!-- begin: rivals -->\n(.*)\n<!-- end: rivals -->/s.exec(filled)![1]!
      const phases = ['burst', '1,000 messages/s', '5,000 messages/s']
      const servers = ['Sealpost', 'Redis Streams', 'NATS JetStream']
      for (const phase of phases) for (const server of servers) expect(table).toContain(`| ${phase}: ${server}`)
      expect(table).toMatch(/Redis \d+\.\d+\.\d+; NATS \d+\.\d+\.\d+\.$/)
      expect(table).not.toMatch(/NaN|undefined|Infinity/)
    } finally {
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    }
  })

const tinyOf = (part: string): string[] =>
  PARTS.find(({ name }) => name === part)!.runs.flatMap(({ tiny, script = 'load-test.ts' }) =>
    tiny === null ? [] : [`bun scripts/${script} ${tiny}`],
  )

test('an unknown part is refused with a list of the known ones', async () => {
  const { code, err } = await run(['--only', 'burst,brust'])
  expect(code).toBe(2)
  expect(err).toContain('There is no part "brust"')
  expect(err).toContain('burst, window8, drain')
})
