/** Tests the pool against the real PgBouncer, from Debian's package `pgbouncer`. */
import { createServer, connect as dial } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openConnection } from './connection.ts'
import { openListener } from './listener.ts'
import { CopyOutPool } from './pipeline/copy-out.ts'
import { StreamingConnection } from './pipeline/streaming.ts'
import { type Database, openDatabase, openPipeline, type Pipeline } from './pool.ts'
import { emptyDatabase, type ScratchDatabase, unhurried } from './test/database.ts'
import { isPgBouncerMissing, PgBouncer, STARTUP_PARAMETERS } from './test/pgbouncer.ts'

let scratch: ScratchDatabase
beforeAll(async () => {
  scratch = await emptyDatabase()
})
afterAll(() => scratch.drop())

const CONNECTING = { applicationName: 'test', connectTimeoutMs: 60_000, session: {} }
const OPENERS: readonly (readonly [string, (url: string) => Promise<void>])[] = [
  ['a pool', (url) => openDatabase(url, unhurried).then((db: Database) => db.close())],
  ['a pipeline', (url) => openPipeline(url, unhurried).then((pipeline: Pipeline) => pipeline.close())],
  ['a listener', (url) => listenOnce(url)],
  ['a stream', (url) => StreamingConnection.open(url, CONNECTING).then((stream) => stream.close())],
  ['a copy', (url) => copyOnce(url)],
  ['a connection', (url) => openConnection(url, CONNECTING).then((connection) => connection.close())],
]

async function listenOnce(url: string): Promise<void> {
  const listener = await openListener(url, 'test', { onNotification: () => undefined, onClosed: () => undefined })
  await listener.close()
}

async function copyOnce(url: string): Promise<void> {
  const options = { applicationName: 'test', settings: {}, statementTimeoutMs: 60_000, idleMax: 0 }
  const copyOut = new CopyOutPool(url, options)
  try {
    for await (const chunk of copyOut.read('copy (select 1) to stdout')) chunk.length
  } finally {
    await copyOut.close()
  }
}

if (isPgBouncerMissing) test.skip('a pooler is refused: there is no pgbouncer here')
else {
  test.each(['transaction', 'session'] as const)(
    'a pooler in %s mode is refused by every kind of connection',
    async (mode) => {
      const pooler = await PgBouncer.start(scratch.url, { mode, ignored: STARTUP_PARAMETERS })
      for (const [name, open] of OPENERS) {
        const error: unknown = await open(pooler.url).catch((reason) => reason)
        expect([name, error]).toMatchObject([name, { code: 'db_pooled', retryable: false }])
        expect((error as Error).message).toContain('PgBouncer')
      }
      await pooler.stop()
    },
  )

  test('a pooler that refuses session settings is reported as one', async () => {
    const pooler = await PgBouncer.start(scratch.url, { mode: 'session' })
    for (const open of [openDatabase, openPipeline])
      await expect(open(pooler.url, unhurried)).rejects.toMatchObject({ code: 'db_pooled' })
    await pooler.stop()
  })

  test('another pooler error is reported as such and is retryable', async () => {
    const { username, password, pathname } = new URL(scratch.url)
    const nowhere = `postgres://${username}:${password}@127.0.0.1:1${pathname}`
    const pooler = await PgBouncer.start(nowhere, { mode: 'session', ignored: STARTUP_PARAMETERS, waitSeconds: 1 })
    await expect(openDatabase(pooler.url, unhurried)).rejects.toMatchObject({
      ...{ code: 'db_not_executed', sqlstate: '08P01', retryable: true },
      message: expect.stringContaining('connection pooler'),
    })
    await pooler.stop()
  })
}

test('a protocol violation during a statement mentions a pooler as its likely cause', async () => {
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

test('a proxy that only forwards bytes is not taken for a pooler', async () => {
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
