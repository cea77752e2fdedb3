/** Tests a URL with several hosts, against a primary and its streaming standby. */
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { backUp, followPrimary } from '@sealpost/harness/programs/postgres'
import { type Database, openDatabase, openListener, openPipeline } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { migrate, prepareDatabase } from '@sealpost/schema'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const SMALL = { settings: { shared_buffers: '64MB' } }
const IS_STANDBY = 'select pg_is_in_recovery()::text as it'

let folder: string
let primary: EmbeddedPostgres
let standby: EmbeddedPostgres
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-hosts-'))
  primary = await startEmbedded(SMALL)
  await backUp(primary, join(folder, 'standby'), 'standby')
  standby = await followPrimary(join(folder, 'standby'), primary, primary.port)
})
afterAll(async () => {
  await standby.stop()
  await primary.stop()
  await rm(folder, { recursive: true, force: true })
})

function urlOf(ports: readonly number[], target?: string): string {
  const { username, password } = new URL(primary.url)
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join()
  return `postgres://${username}:${password}@${hosts}/postgres${target ? `?target_session_attrs=${target}` : ''}`
}

async function isStandby(db: Pick<Database, 'run'>): Promise<boolean> {
  return (await db.run((sql) => sql.unsafe(IS_STANDBY)))[0]!.it === 'true'
}

async function foundBy(url: string): Promise<readonly string[]> {
  const db = await openDatabase(url, { ...unhurried, connections: 1 })
  const pipeline = await openPipeline(url, unhurried)
  const [[answer]] = (await pipeline.run((pipe) => pipe.run([{ text: IS_STANDBY }])))[0] as [[string]]
  const answers = [String(await isStandby(db)), answer]
  await Promise.all([db.close(), pipeline.close()])
  return answers.map((it) => (it === 'true' ? 'standby' : 'primary'))
}

describe('each driver selects a suitable host', () => {
  test.each([
    [undefined, 'primary'],
    ['read-write', 'primary'],
    ['primary', 'primary'],
    ['any', 'standby'],
    ['standby', 'standby'],
    ['read-only', 'standby'],
    ['prefer-standby', 'standby'],
  ])('for target_session_attrs=%s, a standby and a primary it selects the %s', async (target, expected) => {
    expect(await foundBy(urlOf([standby.port, primary.port], target))).toEqual([expected, expected])
  })

  test('or the second choice where that is allowed', async () => {
    expect(await foundBy(urlOf([1, primary.port], 'prefer-standby'))).toEqual(['primary', 'primary'])
    expect(await foundBy(urlOf([1, standby.port], 'any'))).toEqual(['standby', 'standby'])
  })

  test('or none, and reports what is wrong with each host', async () => {
    const url = urlOf([1, standby.port])
    for (const open of [openDatabase, openPipeline])
      await expect(open(url, unhurried)).rejects.toMatchObject({
        ...{ code: 'db_not_executed', retryable: true },
        message: expect.stringMatching(
          /127\.0\.0\.1:1 is not available: it refuses .*; .* is not available: it is a standby$/,
        ),
      })
  })
})

test('a host that does not respond delays the connection by its share of the time, once', async () => {
  const asked: number[] = []
  const silent = createServer((socket) => {
    asked.push(asked.length)
    socket.on('error', () => undefined).resume()
  })
  await new Promise<void>((listening) => silent.listen(0, '127.0.0.1', listening))
  const { port } = silent.address() as { port: number }
  const url = urlOf([port, primary.port])
  const options = { ...unhurried, connections: 1, connectTimeoutMs: 6_000 }
  for (let i = 0; i < 3; i++) {
    const db = await openDatabase(url, options)
    expect(await isStandby(db)).toBe(false)
    await db.close()
  }
  expect(asked).toEqual([0])
  silent.close()
})

test('migrations, logins and listeners follow the URL to the primary', async () => {
  const url = urlOf([standby.port, primary.port])
  await migrate(url)
  const broker = url.replace(/\/\/[^@]*@/, '//broker:pa55word@')
  await prepareDatabase(url, [{ role: 'broker', url: broker }])
  const db = await openDatabase(broker, unhurried)
  expect(await db.run((sql) => sql`select current_user as name`)).toEqual([{ name: 'broker' }])
  await db.close()
  const heard = Promise.withResolvers<string>()
  const ports = { onNotification: (_: string, payload: string) => heard.resolve(payload), onClosed: () => undefined }
  const listener = await openListener(url, 'test', ports)
  await listener.listen(['several'])
  await listener.notify([{ channel: 'several', payload: 'hosts' }])
  expect(await heard.promise).toBe('hosts')
  await listener.close()
})

test('after a failover the connections of a pool lead to the promoted standby', async () => {
  const url = urlOf([primary.port, standby.port])
  const db = await openDatabase(url, { ...unhurried, connections: 2 })
  const pipeline = await openPipeline(url, unhurried)
  const portOf = async () => {
    const [byOne] = await db.run((sql) => sql`select current_setting('port') as port`)
    const [[[byOther]]] = (await pipeline.run((pipe) => pipe.run([{ text: "select current_setting('port')" }]))) as [
      [[string]],
    ]
    return [byOne!.port, byOther]
  }
  expect(await portOf()).toEqual([String(primary.port), String(primary.port)])
  await primary.stop()
  const promoting = await openDatabase(standby.url, { ...unhurried, connections: 1 })
  await promoting.run((sql) => sql`select pg_promote(true, 60)`)
  await promoting.close()
  await expect.poll(() => portOf().catch(() => null)).toEqual([String(standby.port), String(standby.port)])
  await Promise.all([db.close(), pipeline.close()])
})
