/** Tests that a broker that can't start prints one sentence on stderr and exits with a code. */
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, connect as dial, type Server } from 'node:net'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { startBroker } from '@sealpost/broker-program'
import { startEmbedded } from '@sealpost/embedded-pg'
import { TlsServer } from '@sealpost/embedded-pg/testing-tls'
import { generateIdentity } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { openDatabase } from '@sealpost/pg'
import { emptyDatabase, type ScratchDatabase } from '@sealpost/pg/testing'
import { isPgBouncerMissing, PgBouncer, STARTUP_PARAMETERS } from '@sealpost/pg/testing-pgbouncer'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, test as base, beforeAll, describe, expect } from 'vitest'
import { settings } from '../config/config.ts'
import { BrokerProcess, type Environment, runBroker } from './process.ts'
import { brokerKeyFile, temporaryFolder } from './world.ts'

/** Tests have their own process and mostly wait, so they run concurrently. */
const test = base.concurrent

let folder: string
let database: ScratchDatabase
let good: Environment
beforeAll(async () => {
  folder = await temporaryFolder()
  database = await scratchDatabase()
  good = { DATABASE_URL: database.url, BROKER_KEY_FILE: await brokerKeyFile(folder) }
})
afterAll(async () => {
  await database.drop()
  await rm(folder, { recursive: true, force: true })
})

/** Expects this exit code and exactly these sentences on stderr. */
async function expectEnd(env: Environment, code: number, ...sentences: (string | RegExp)[]): Promise<void> {
  const ended = await runBroker({ ...good, ...env })
  const lines = ended.stderr.trimEnd().split('\n')
  expect(lines).toEqual(
    sentences.map((sentence) => (typeof sentence === 'string' ? sentence : expect.stringMatching(sentence))),
  )
  expect(ended).toMatchObject({ code })
  expect(ended.stdout.split('\n').filter((line) => !IN_PASSING.test(line))).toEqual([''])
}

/** Matches lines that may precede the ports. */
const IN_PASSING = /"event":"bus\.up"/

/** Returns the database's URL with a change applied. */
const changed = (change: (url: URL) => void): string => {
  const url = new URL(database.url)
  change(url)
  return url.href
}

/** Returns a non-loopback address of this machine, if it has one. */
function ownAddress(): string | null {
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? [])
  return addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? null
}

async function listen(): Promise<{ server: Server; port: number }> {
  const server = createServer()
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return { server, port: (server.address() as { port: number }).port }
}

/** Listens on the port after a free port. Skips free ports whose successor another program uses. */
async function listenBehindFreePort(): Promise<{ port: number; next: Server }> {
  for (;;) {
    const { server, port } = await listen()
    server.close()
    const next = createServer()
    const isListening = await new Promise<boolean>((settle) => {
      next.once('error', () => settle(false))
      next.listen(port + 1, '127.0.0.1', () => settle(true))
    })
    if (isListening) return { port, next }
  }
}

describe('an unusable database', () => {
  const WRONG_URL = 'The database URL must look like postgres://user:password@host:5432/database.'

  test.each(['nonsense', 'mysql://a:secret@localhost/b', 'postgres://localhost'])('the URL %s', (url) =>
    expectEnd({ DATABASE_URL: url }, 1, WRONG_URL),
  )

  test('without a URL', () =>
    expectEnd({ DATABASE_URL: '' }, 2, /^DATABASE_URL is not set: Postgres 15 or newer, as postgres:\/\/.*\.$/))

  test('without a listener', async () => {
    const { server, port } = await listen()
    await new Promise((closed) => server.close(closed))
    await expectEnd(
      { DATABASE_URL: `postgres://a:secret@127.0.0.1:${port}/b` },
      1,
      `Postgres at 127.0.0.1:${port} is not available: it refuses connections.`,
    )
  })

  test('with a listener that never responds', async () => {
    const { server, port } = await listen()
    await expectEnd(
      { DATABASE_URL: `postgres://a:secret@127.0.0.1:${port}/b` },
      1,
      `Postgres at 127.0.0.1:${port} is not available: it does not reply.`,
    )
    server.close()
  })

  test('that does not exist', () =>
    expectEnd(
      { DATABASE_URL: changed((url) => (url.pathname = '/absent')) },
      1,
      /^Postgres at \S+ has no database "absent"\.$/,
    ))

  test('with a wrong password', () =>
    expectEnd(
      { DATABASE_URL: changed((url) => (url.password = 'canary7f3a')) },
      1,
      /^Postgres at \S+ refused the password of user "\w+"\.$/,
    ))

  base.skipIf(isPgBouncerMissing).each(['session', 'transaction'] as const)(
    `a pooler by the %s${isPgBouncerMissing ? ': there is no pgbouncer here' : ''}`,
    async (mode) => {
      const pooler = await PgBouncer.start(database.url, { mode, ignored: STARTUP_PARAMETERS })
      await expectEnd(
        { DATABASE_URL: pooler.url },
        1,
        /^A connection pooler such as PgBouncer responds in place of Postgres at \S+: .*\.$/,
      ).finally(() => pooler.stop())
    },
  )

  test('with an unresponsive host before a working one', async () => {
    const { server, port } = await listen()
    const { username, password, host, pathname } = new URL(database.url)
    const broker = await BrokerProcess.start({
      ...good,
      DATABASE_URL: `postgres://${username}:${password}@127.0.0.1:${port},${host}${pathname}`,
    })
    const events = broker.log.map(({ event }) => event)
    await broker.kill()
    server.close()
    expect(events).toContain('broker.ready')
    expect(events).not.toContain('database.plain_text')
  })

  test('with a certificate of a foreign authority, then with a valid one', async () => {
    const tls = await TlsServer.start()
    const url = (file: string) =>
      tls.url('crypted', 'localhost', { sslmode: 'verify-full', sslrootcert: tls.file(file) })
    const refused = { DATABASE_URL: url('other.crt') }
    await expectEnd(
      refused,
      1,
      /^The certificate of Postgres at localhost:\d+ was issued by no authority that sslrootcert names/,
    )
    const broker = await BrokerProcess.start({ ...good, DATABASE_URL: url('ca.crt') })
    const db = await openDatabase(url('ca.crt'), { connections: 1 })
    const encrypted = await db.run(
      (sql) =>
        sql`select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name like 'sealpost %'`,
    )
    await db.close()
    await broker.kill()
    await tls.stop()
    expect(encrypted).toEqual([{ ssl: true }])
  })

  const own = ownAddress()
  base.skipIf(own === null)(
    `plain text to another address than loopback is warned of once${own === null ? ': this machine has none' : ''}`,
    async () => {
      const { hostname, port } = new URL(database.url)
      const proxy = createServer((near) => {
        const far = dial(Number(port), hostname)
        for (const [from, to] of [[near, far] as const, [far, near] as const])
          from.pipe(to).on('error', () => from.destroy())
      })
      await new Promise<void>((listening) => proxy.listen(0, own!, listening))
      const host = `${own}:${(proxy.address() as { port: number }).port}`
      const broker = await BrokerProcess.start({ ...good, DATABASE_URL: changed((url) => (url.host = host)) })
      const warned = broker.log.filter(({ event }) => event === 'database.plain_text')
      await broker.kill()
      proxy.close()
      expect(warned).toMatchObject([{ level: 'warn', code: 'db_plain_text', host: own }])
    },
  )

  test('with fsync=off', async () => {
    const careless = await startEmbedded({ settings: { fsync: 'off' } })
    await expectEnd({ DATABASE_URL: careless.url }, 1, /^This Postgres server runs with fsync=off: .*\.$/).finally(() =>
      careless.stop(),
    )
  })

  test('with a URL that weakens synchronous_commit', () =>
    expectEnd(
      { DATABASE_URL: changed((url) => url.searchParams.set('synchronous_commit', 'off')) },
      1,
      /^synchronous_commit is "off" .*\.$/,
    ))
})

describe('an unusable key file', () => {
  const pathOf = (name: string) => join(folder, name)

  test('that is missing', () =>
    expectEnd({ BROKER_KEY_FILE: pathOf('absent') }, 1, `The key file ${pathOf('absent')} does not exist.`))

  test('that cannot be read', async () => {
    await mkdir(pathOf('folder'))
    await expectEnd({ BROKER_KEY_FILE: pathOf('folder') }, 1, `Can't read the key file ${pathOf('folder')}.`)
  })

  test('that contains no key', async () => {
    await writeFile(pathOf('text'), '{"format":"canary7f3a"}')
    await expectEnd(
      { BROKER_KEY_FILE: pathOf('text') },
      1,
      `The file ${pathOf('text')} is not a key file of this version.`,
    )
  })

  test("that contains a peer's key", async () => {
    const peer = { kind: 'peer', identity: generateIdentity(), formerBoxKeys: [], enrolment: null } as const
    await writeKeyFile(pathOf('peer'), peer)
    await expectEnd(
      { BROKER_KEY_FILE: pathOf('peer') },
      1,
      `The file ${pathOf('peer')} is not the key file of a broker.`,
    )
  })

  test('with open permissions gets a warning, and the broker starts', async () => {
    const path = await brokerKeyFile(folder)
    await chmod(path, 0o644)
    const broker = await BrokerProcess.start({ ...good, BROKER_KEY_FILE: path })
    expect(broker.log.find((line) => line.event === 'key_file.exposed')).toMatchObject({ level: 'warn' })
    await broker.kill()
  })
})

describe('a port in use', () => {
  test.each(['PORT', 'ADMIN_PORT'])('%s', async (name) => {
    const { server, port } = await listen()
    await expectEnd(
      { [name]: String(port) },
      1,
      `Another program listens on 127.0.0.1:${port}. Set ${name} to another port.`,
    )
    server.close()
  })

  test.each(['PORT', 'ADMIN_PORT'])('%s, held by another broker', async (name) => {
    const first = await BrokerProcess.start(good)
    const port = new URL(name === 'PORT' ? first.httpUrl : first.adminUrl).port
    await expectEnd({ [name]: port }, 1, `Another program listens on 127.0.0.1:${port}. Set ${name} to another port.`)
    await first.kill()
    const second = await BrokerProcess.start({ ...good, [name]: port }) // although the port has connections in TIME_WAIT
    await second.kill()
  })

  test('for the private port is the next above PORT, unless it is set or PORT is 0', async () => {
    const { port, next } = await listenBehindFreePort()
    const env = { ...good, PORT: String(port), ADMIN_PORT: '' }
    await expectEnd(env, 1, `Another program listens on 127.0.0.1:${port + 1}. Set ADMIN_PORT to another port.`)
    next.close()
    const broker = await BrokerProcess.start(env)
    expect([broker.port, new URL(broker.adminUrl).port]).toEqual([port, String(port + 1)])
    await broker.kill()
  })

  test('has a distinct exit code for the program that starts the broker', async () => {
    const { server, port } = await listen()
    const starting = startBroker({ environment: { ...good, PORT: String(port), ADMIN_PORT: '0' } })
    await expect(starting).rejects.toMatchObject({ code: 'port_taken' })
    server.close()
  })

  test('an address of another machine ends the start', () =>
    expectEnd({ HOST: '203.0.113.1' }, 1, /^Can't listen on 203\.0\.113\.1:0 \(\w+\)\.$/))
})

test('all invalid settings are reported together', () =>
  expectEnd(
    { PORT: 'x', LIMITS: 'maybe', LEASE_MS: '0', AUTHORITIES: 'a b' },
    2,
    'PORT must be a port (0-65535), not "x".',
    'AUTHORITIES must be names such as broker.example:443, separated by commas, not "a b".',
    'LIMITS must be on or off, not "maybe".',
    'LEASE_MS must be a whole number of milliseconds, from 1 to 300000, not "0".',
  ))

test('--print-config shows the current settings and hides secrets', async () => {
  const { code, stdout, stderr } = await runBroker({ ...good, PORT: '1234' }, ['--print-config'])
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toContain('DATABASE_URL=(hidden)\n')
  expect(stdout).toContain('PORT=1234\n')
  expect(stdout).not.toContain(new URL(database.url).password)
})

test('--health reports whether the broker with the same settings is ready', async () => {
  const broker = await BrokerProcess.start(good)
  const { host, port } = new URL(broker.adminUrl)
  const health = () => runBroker({ ...good, ADMIN_PORT: port }, ['--health'])
  expect(await health()).toMatchObject({ code: 0, stdout: expect.stringMatching(/^ok\n/), stderr: '' })
  await broker.kill()
  expect(await health()).toEqual({ code: 1, stdout: '', stderr: `No broker responds at http://${host}/readyz.\n` })
})

test.each(['--help', '-h'])('%s explains every setting without requiring any', async (word) => {
  const { code, stdout, stderr } = await runBroker({}, [word])
  expect([code, stderr]).toEqual([0, ''])
  for (const name of Object.keys(settings)) expect(stdout).toMatch(new RegExp(`^  ${name} `, 'm'))
  expect(stdout).toMatch(/^ {2}PORT .*default 7450\)$/m)
})

test('an unknown argument is reported', async () => {
  const { code, stderr } = await runBroker(good, ['--prot', '1'])
  expect([code, stderr]).toEqual([
    2,
    'The broker accepts only the arguments --print-config, --health and --help. Configure it with environment variables.\n',
  ])
})

test('an empty database is migrated, and the start is measured', async () => {
  const empty = await emptyDatabase()
  const times: number[] = []
  for (let start = 0; start < 2; start++) {
    const broker = await BrokerProcess.start({ ...good, DATABASE_URL: empty.url })
    times.push(Math.round(broker.readyAfterMs))
    broker.signal('SIGTERM')
    expect((await broker.exited).code).toBe(0)
  }
  process.stdout.write(`ready after ${times[0]} ms on an empty database, ${times[1]} ms on an existing one\n`)
  await empty.drop()
})

test('without a configured key the broker creates one, readable only by its owner, and reuses it', async () => {
  const home = await temporaryFolder()
  const keys: string[] = []
  for (let start = 0; start < 2; start++) {
    const broker = await BrokerProcess.start({ ...good, BROKER_KEY_FILE: '' }, { folder: home })
    keys.push(broker.key)
    await broker.kill()
  }
  expect(keys[0]).toBe(keys[1]!)
  const { mode } = await stat(join(home, '.sealpost/broker.json'))
  expect(mode & 0o777).toBe(0o600)
  await rm(home, { recursive: true })
})

test('a folder where no key can be created is reported', async () => {
  const home = await temporaryFolder()
  await writeFile(join(home, '.sealpost'), '')
  const { code, stderr } = await runBroker({ ...good, BROKER_KEY_FILE: '' }, [], { folder: home })
  expect([code, stderr]).toEqual([1, "Can't create the folder .sealpost for the broker's key.\n"])
  await rm(home, { recursive: true })
})

test('the broker starts without git and reports its commit as unknown', async () => {
  const broker = await BrokerProcess.start({ ...good, PATH: folder })
  expect(broker.log.find(({ event }) => event === 'broker.ready')).toMatchObject({ gitSha: 'unknown' })
  await broker.kill()
})

test("the broker sets its runtime options and keeps the operator's own values", async ({ skip }) => {
  skip(process.platform !== 'linux', 'only Linux shows the environment of a process')
  const broker = await BrokerProcess.start({ ...good, BUN_GC_TIMER_INTERVAL: '5000' })
  const environment = (await readFile(`/proc/${broker.pid}/environ`, 'utf8')).split('\0')
  await broker.kill()
  expect(environment).toEqual(expect.arrayContaining(['BUN_JSC_forceRAMSize=200000000', 'BUN_GC_TIMER_INTERVAL=5000']))
})
