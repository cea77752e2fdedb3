/** Against the real PgBouncer: Debian's `pgbouncer`. */
import { createServer, connect as dial } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Database, openDatabase, openPipeline, type Pipeline } from './connect.ts'
import { CopyLanes } from './copy-lanes.ts'
import { openListener } from './listener.ts'
import { migrate } from './migrate.ts'
import { MoverLink } from './mover-link.ts'
import { type ScratchDatabase, scratchDatabase, unhurried } from './testing.ts'
import { isPgBouncerMissing, PgBouncer, STARTUP_PARAMETERS } from './testing-pgbouncer.ts'

let scratch: ScratchDatabase
beforeAll(async () => {
  scratch = await scratchDatabase()
})
afterAll(() => scratch.drop())

const OPENERS: readonly (readonly [string, (url: string) => Promise<void>])[] = [
  ['a pool', (url) => openDatabase(url, unhurried).then((db: Database) => db.close())],
  ['a pipeline', (url) => openPipeline(url, unhurried).then((pipeline: Pipeline) => pipeline.close())],
  ['a listener', (url) => listenOnce(url)],
  ['a mover', (url) => MoverLink.open(url).then((link) => link.close())],
  ['a copy', (url) => copyOnce(url)],
  ['a migration', (url) => migrate(url)],
]

async function listenOnce(url: string): Promise<void> {
  const listener = await openListener(url, 'test', { heard: () => undefined, gone: () => undefined })
  await listener.close()
}

async function copyOnce(url: string): Promise<void> {
  const options = { applicationName: 'test', settings: {}, statementTimeoutMs: 60_000, idleMax: 0 }
  const lanes = new CopyLanes(url, options)
  try {
    for await (const chunk of lanes.read('copy (select 1) to stdout')) chunk.length
  } finally {
    await lanes.close()
  }
}

if (isPgBouncerMissing) test.skip('a pooler is refused: there is no pgbouncer here')
else {
  test.each(['transaction', 'session'] as const)('a pooler by the %s is refused by whatever connects', async (mode) => {
    const pooler = await PgBouncer.start(scratch.url, { mode, ignored: STARTUP_PARAMETERS })
    for (const [name, open] of OPENERS) {
      const error: unknown = await open(pooler.url).catch((reason) => reason)
      expect([name, error]).toMatchObject([name, { code: 'db_pooled', retryable: false }])
      expect((error as Error).message).toContain('PgBouncer')
    }
    await pooler.stop()
  })

  test('one that refuses the settings of a session is named for it', async () => {
    const pooler = await PgBouncer.start(scratch.url, { mode: 'session' })
    for (const open of [openDatabase, openPipeline])
      await expect(open(pooler.url, unhurried)).rejects.toMatchObject({ code: 'db_pooled' })
    await pooler.stop()
  })

  test('another fault of a pooler is said to be one, and may pass', async () => {
    const { username, password, pathname } = new URL(scratch.url)
    const nowhere = `postgres://${username}:${password}@127.0.0.1:1${pathname}`
    const pooler = await PgBouncer.start(nowhere, { mode: 'session', ignored: STARTUP_PARAMETERS, waitSeconds: 1 })
    await expect(openDatabase(pooler.url, unhurried)).rejects.toMatchObject({
      ...{ code: 'db_not_done', sqlstate: '08P01', retryable: true },
      message: expect.stringContaining('connection pooler'),
    })
    await pooler.stop()
  })
}

test('a protocol violation in answer to a statement is explained by the pooler that it mostly comes from', async () => {
  const fail = "do $$ begin raise exception 'no' using errcode = '08P01'; end $$"
  const [db, pipeline] = [await openDatabase(scratch.url, unhurried), await openPipeline(scratch.url, unhurried)]
  const runs = [() => db.run((sql) => sql.unsafe(fail)), () => pipeline.run((pipe) => pipe.run([{ text: fail }]))]
  for (const run of runs)
    await expect(run()).rejects.toMatchObject({
      sqlstate: '08P01',
      message: expect.stringContaining('usually comes from a connection pooler'),
    })
  await Promise.all([db.close(), pipeline.close()])
})

test('what only passes bytes on is no pooler', async () => {
  const { hostname, port } = new URL(scratch.url)
  const proxy = createServer((near) => {
    const far = dial(Number(port), hostname)
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const)
      from.pipe(to).on('error', () => from.destroy())
  })
  await new Promise<void>((listening) => proxy.listen(0, '127.0.0.1', listening))
  const through = new URL(scratch.url)
  through.port = String((proxy.address() as { port: number }).port)
  for (const [, open] of OPENERS) await open(through.href)
  await new Promise((closed) => proxy.close(closed))
})
