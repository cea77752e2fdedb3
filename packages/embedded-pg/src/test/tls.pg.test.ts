/** Tests TLS with a real server through each driver. */
import { chmod } from 'node:fs/promises'
import { createServer } from 'node:net'
import {
  CopyOutPool,
  type Database,
  openDatabase,
  openListener,
  openPipeline,
  openPostgresJs,
  type Pipeline,
  StreamingConnection,
} from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { TlsServer, type TlsUser } from './tls-server.ts'

let server: TlsServer
beforeAll(async () => {
  server = await TlsServer.start()
})
afterAll(() => server.stop())

const IS_ENCRYPTED = 'select ssl::text from pg_stat_ssl where pid = pg_backend_pid()'

const DRIVERS = [
  {
    driver: 'postgres.js',
    open: (url: string) => openDatabase(url, { ...unhurried, connections: 1 }),
    isEncrypted: async (db: Database | Pipeline) =>
      (await (db as Database).run((sql) => sql.unsafe(IS_ENCRYPTED)))[0]!.ssl,
  },
  {
    driver: 'pg',
    open: (url: string) => openPipeline(url, unhurried),
    isEncrypted: async (db: Database | Pipeline) =>
      (await (db as Pipeline).run((pipe) => pipe.run([{ text: IS_ENCRYPTED }])))[0]![0]![0],
  },
]

type Parameters = Record<string, string>
const CA = { sslrootcert: 'ca.crt' }
const OTHER = { sslrootcert: 'other.crt' }
const CARD = { sslcert: 'carded.crt', sslkey: 'carded.key' }

/** Returns a URL; `parameters` may name files in the server's folder. */
function urlOf(user: TlsUser, host: 'localhost' | '127.0.0.1', parameters: Parameters): string {
  const isFile = (value: string) => /\.(crt|key)$/.test(value)
  const paths = Object.entries(parameters).map(([name, value]) => [name, isFile(value) ? server.file(value) : value])
  return server.url(user, host, Object.fromEntries(paths))
}

describe.each(DRIVERS)('by $driver', ({ open, isEncrypted }) => {
  test.each<[TlsUser, 'localhost' | '127.0.0.1', Parameters, 'clear' | 'none' | 'chain' | 'name']>([
    ['free', 'localhost', {}, 'clear'],
    ['free', 'localhost', { sslmode: 'disable' }, 'clear'],
    ['free', 'localhost', { sslmode: 'allow' }, 'clear'],
    ['free', 'localhost', { sslmode: 'prefer' }, 'none'],
    ['free', 'localhost', { sslmode: 'require' }, 'none'],
    ['free', 'localhost', { sslmode: 'require', ...CA }, 'chain'],
    ['free', '127.0.0.1', { sslmode: 'verify-ca', ...CA }, 'chain'],
    ['free', 'localhost', { sslmode: 'verify-full', ...CA }, 'name'],
    ['free', 'localhost', { sslmode: 'verify-full', sslnegotiation: 'direct', ...CA }, 'name'],
    ['crypted', 'localhost', {}, 'none'],
    ['open', 'localhost', { sslmode: 'prefer' }, 'clear'],
    ['carded', 'localhost', { sslmode: 'verify-full', ...CA, ...CARD }, 'name'],
  ])('%s at %s with %j connects, with verification: %s', async (user, host, parameters, verified) => {
    const db = await open(urlOf(user, host, parameters))
    const found = { isEncrypted: await isEncrypted(db), transport: db.transport }
    await db.close()
    expect(found).toMatchObject({
      isEncrypted: String(verified !== 'clear'),
      transport: { isLocal: true, verified: verified === 'clear' ? 'none' : verified },
    })
    expect(found.transport!.protocol === null).toBe(verified === 'clear')
  })

  test.each<[TlsUser, 'localhost' | '127.0.0.1', Parameters, object]>([
    ['free', '127.0.0.1', { sslmode: 'verify-full', ...CA }, { code: 'db_tls_untrusted', message: /another host/ }],
    ['free', 'localhost', { sslmode: 'verify-full', ...OTHER }, { code: 'db_tls_untrusted', message: /no authority/ }],
    ['free', 'localhost', { sslmode: 'verify-ca', ...OTHER }, { code: 'db_tls_untrusted' }],
    ['free', 'localhost', { sslmode: 'require', ...OTHER }, { code: 'db_tls_untrusted' }],
    ['free', 'localhost', { sslmode: 'prefer', ...OTHER }, { code: 'db_tls_untrusted' }],
    ['free', 'localhost', { sslmode: 'verify-full' }, { code: 'db_tls_untrusted' }],
    ['free', 'localhost', { sslrootcert: 'system' }, { code: 'db_tls_untrusted' }],
    ['free', 'localhost', { sslmode: 'verify-full', sslrootcert: 'absent.crt' }, { code: 'db_tls_files' }],
    ['free', 'localhost', { sslmode: 'verify-full', sslrootcert: 'ca.key' }, { code: 'db_tls_untrusted' }],
    [
      'free',
      'localhost',
      { sslmode: 'require', sslcert: 'carded.key', sslkey: 'carded.key' },
      { code: 'db_tls_files' },
    ],
    ['crypted', 'localhost', { sslmode: 'disable' }, { code: 'db_refused', sqlstate: '28000' }],
    ['open', 'localhost', { sslmode: 'require' }, { code: 'db_refused', sqlstate: '28000' }],
    ['carded', 'localhost', { sslmode: 'require' }, { code: 'db_refused', sqlstate: '28000' }],
    [
      'carded',
      'localhost',
      { sslmode: 'require', sslcert: 'other-user.crt', sslkey: 'other-user.key' },
      { code: 'db_refused', sqlstate: '28P01' }, // the server's code
    ],
    [
      'carded',
      'localhost',
      { sslmode: 'require', sslcert: 'stranger.crt', sslkey: 'stranger.key' },
      { code: 'db_tls_failed' },
    ],
  ])(
    '%s at %s with %j is refused: %j',
    async (user, host, parameters, { message, ...expected }: { message?: RegExp }) => {
      const error = await open(urlOf(user, host, parameters)).then(
        (db) => db.close(),
        (reason: unknown) => reason,
      )
      expect(error).toMatchObject({ ...expected, retryable: false })
      if (message) expect((error as Error).message).toMatch(message)
    },
  )

  test('a key that other accounts may read is refused', async () => {
    await chmod(server.file('carded.key'), 0o644)
    const opened = open(urlOf('carded', 'localhost', { sslmode: 'require', ...CARD }))
    await expect(opened.finally(() => chmod(server.file('carded.key'), 0o600))).rejects.toMatchObject({
      code: 'db_tls_files',
    })
  })
})

test.each([
  ['accepts TLS and then sends nothing', 'S', { code: 'db_not_executed', retryable: true }],
  ['sends more than its reply before TLS begins', 'SE', { code: 'db_tls_failed', retryable: false }],
  ['accepts TLS and does not support it', 'S', { code: 'db_tls_failed', retryable: false }, 'HTTP/1.1 400 Bad Request'],
])('a server that %s is given up in time', async (_, answer, expected, next = '') => {
  const listener = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.once('data', () => {
      socket.write(answer)
      socket.once('data', () => socket.write(next))
    })
  })
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening))
  const { port } = listener.address() as { port: number }
  const url = `postgres://a:b@127.0.0.1:${port}/c?sslmode=require`
  for (const open of [openDatabase, openPipeline])
    await expect(open(url, { ...unhurried, connectTimeoutMs: 1_000 })).rejects.toMatchObject(expected)
  listener.close()
})

test('every kind of connection uses TLS', async () => {
  const url = urlOf('carded', 'localhost', { sslmode: 'verify-full', ...CA, ...CARD })
  const heard = Promise.withResolvers<string>()
  const listener = await openListener(url, 'test', {
    onNotification: (_, payload) => heard.resolve(payload),
    onClosed: () => undefined,
  })
  await listener.listen(['tls'])
  await listener.notify([{ channel: 'tls', payload: 'x'.repeat(7_000) }])
  expect(await heard.promise).toHaveLength(7_000)
  await listener.close()
  const stream = await StreamingConnection.open(url, { applicationName: 'test', connectTimeoutMs: 60_000, session: {} })
  expect(await stream.run(IS_ENCRYPTED)).toEqual([{ ssl: 'true' }])
  await stream.close()
  const copyOut = new CopyOutPool(url, {
    applicationName: 'test',
    settings: {},
    statementTimeoutMs: 60_000,
    idleMax: 1,
  })
  let bytes = 0
  const rows = "copy (select repeat('x', 1000) from generate_series(1, 5000)) to stdout (format binary)"
  for await (const chunk of copyOut.read(rows)) bytes += chunk.length
  await copyOut.close()
  expect(bytes).toBeGreaterThan(5_000_000)
  const sql = await openPostgresJs(url, { connections: 2 })
  expect(await Promise.all([1, 2].map(async () => (await sql.unsafe(IS_ENCRYPTED))[0]!.ssl))).toEqual(['true', 'true'])
  await sql.end()
})

test('a statement that timed out on a TLS connection is cancelled on the server', async () => {
  const url = urlOf('free', 'localhost', { sslmode: 'verify-full', ...CA })
  const holder = await openDatabase(url, { ...unhurried, connections: 1 })
  await holder.run((sql) => sql`select pg_advisory_lock(9)`)
  const patient = { ...unhurried, applicationName: 'given up', settings: { statement_timeout: 0, lock_timeout: 0 } }
  const db = await openDatabase(url, { ...patient, connections: 1 })
  const waiting = db.run((sql) => sql`select pg_advisory_lock(9)`, { timeoutMs: 300 })
  await expect(waiting).rejects.toMatchObject({ code: 'db_unavailable' })
  const waits = () =>
    holder.run(
      (sql) => sql`select from pg_stat_activity where application_name = 'given up' and wait_event_type = 'Lock'`,
    )
  await vi.waitFor(async () => expect(await waits()).toHaveLength(0), { timeout: 20_000, interval: 20 })
  expect(await db.run((sql) => sql`select 1 as n`)).toEqual([{ n: 1 }])
  await Promise.all([db.close(), holder.close()])
})
