import { createServer, connect as dial, type Server, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { checkServer } from './check-server.ts'
import { arrayLiteral, arrayOid } from './connection.ts'
import { type Database, type DatabaseOptions, openDatabase, openPipeline } from './pool.ts'
import { emptyDatabase, type ScratchDatabase, unhurried } from './test/database.ts'

let scratch: ScratchDatabase
let admin: Database

beforeAll(async () => {
  scratch = await emptyDatabase()
  admin = await openDatabase(scratch.url, { ...unhurried, connections: 1, applicationName: 'admin' })
})
afterAll(async () => {
  await admin.close()
  await scratch.drop()
})

async function withDatabase(options: DatabaseOptions, use: (db: Database) => Promise<void>, url = scratch.url) {
  const db = await openDatabase(url, options)
  try {
    await use(db)
  } finally {
    await db.close()
  }
}

/** Runs one statement per connection, of which none ends before all run. */
async function meet(db: Database, connections: number): Promise<void> {
  const attend = `do $$ begin
    perform pg_advisory_lock_shared(7);
    while (select count(distinct pid) from pg_locks where locktype = 'advisory' and objid = 7) < ${connections} loop
      perform pg_sleep(0.01);
    end loop;
  end $$`
  await Promise.all(Array.from({ length: connections }, () => db.run((sql) => sql.unsafe(attend))))
}

test('after many killed backends, every connection of the pool works again', async () => {
  const killAll = () =>
    admin.run(
      (sql) => sql`
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name = 'storm'`,
    )
  await withDatabase({ ...unhurried, connections: 4, applicationName: 'storm' }, async (db) => {
    const outcomes: Record<string, number> = { answered: 0 }
    let isOver = false
    let heard = Promise.withResolvers<void>()
    const query = async () => {
      while (!isOver) {
        const outcome = await db
          .run((sql) => sql`select ${'x'.repeat(600)}::text, pg_sleep(0.002)`)
          .then(() => 'answered')
          .catch((error: { code: string }) => error.code)
        outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
        if (outcome !== 'answered') continue
        heard.resolve()
        heard = Promise.withResolvers()
      }
    }
    const clients = Array.from({ length: 8 }, query)
    for (let i = 0; i < 30; i++) {
      await killAll()
      await heard.promise
    }
    isOver = true
    await Promise.all(clients)
    expect(outcomes.answered).toBeGreaterThanOrEqual(30)
    expect(outcomes.db_unavailable).toBeGreaterThan(0)
    const expected = ['answered', 'db_unavailable', 'db_not_executed']
    expect(Object.keys(outcomes).filter((outcome) => !expected.includes(outcome))).toEqual([])
    await meet(db, 4)
  })
})

test('a statement on a stalled connection times out, and the next one gets a working connection', async () => {
  const proxy = await startProxy(scratch.url)
  await withDatabase(
    { ...unhurried, connections: 1, probeMs: 60_000 },
    async (db) => {
      proxy.stall()
      await expect(db.run((sql) => sql`select 1`, { timeoutMs: 400 })).rejects.toMatchObject({
        code: 'db_unavailable',
        retryable: true,
      })
      const [row] = await db.run((sql) => sql`select 'mine' as answer`)
      expect(row?.answer).toBe('mine')
    },
    proxy.url,
  )
  await proxy.close()
})

test('the probe finds a stalled idle connection before a statement does', async () => {
  const proxy = await startProxy(scratch.url)
  let lost: () => void = () => undefined
  const isLost = new Promise<void>((resolve) => {
    lost = resolve
  })
  await withDatabase(
    { connections: 1, queryTimeoutMs: 4_000, probeMs: 20, onConnectionLost: () => lost() },
    async (db) => {
      proxy.stall()
      await isLost
      await db.run((sql) => sql`select 1`)
    },
    proxy.url,
  )
  await proxy.close()
})

test('a server that accepts a connection and never replies: the statement is not executed, and fails in time', async () => {
  const listener = createServer((socket) => socket.on('error', () => undefined).resume())
  const port = await listen(listener)
  await expect(
    openDatabase(`postgres://a:b@127.0.0.1:${port}/c`, { connectTimeoutMs: 200, queryTimeoutMs: 2_000 }),
  ).rejects.toMatchObject({ code: 'db_not_executed', retryable: true })
  await new Promise((closed) => listener.close(closed))
})

test('a statement that got no connection in time was not executed', async () => {
  await withDatabase({ ...unhurried, connections: 1 }, async (db) => {
    await admin.run((sql) => sql`select pg_advisory_lock(9)`)
    const long = db.run((sql) => sql`select pg_advisory_lock(9)`)
    await expect(db.run((sql) => sql`select 1`, { timeoutMs: 50 })).rejects.toMatchObject({ code: 'db_not_executed' })
    await admin.run((sql) => sql`select pg_advisory_unlock(9)`)
    await long
  })
})

test('no statement is sent on a connection that runs another one', async () => {
  await withDatabase({ ...unhurried, connections: 2 }, async (db) => {
    await admin.run((sql) => sql`select pg_advisory_lock(8)`)
    const slow = db.run((sql) => sql`select pg_advisory_lock(8)`)
    // Behind the first statement, they would wait until it ends.
    await Promise.all(Array.from({ length: 5 }, () => db.run((sql) => sql`select 1`)))
    await admin.run((sql) => sql`select pg_advisory_unlock(8)`)
    await slow
  })
})

test('a refusal carries its SQLSTATE and constraint, but no part of the statement', async () => {
  const secret = 'c0ffee-secret'
  const statements: ((db: Database) => Promise<unknown>)[] = [
    (db) => db.run((sql) => sql`insert into known (id, name) values (1, ${secret})`),
    (db) => db.run((sql) => sql`select ${secret}::uuid`),
    (db) => db.run((sql) => sql`insert into known (id, name) values (2, ${null as never})`),
    (db) => db.run((sql) => sql`select ${secret}::text from no_such_table`),
  ]
  const errors: Record<string, unknown>[] = []
  await admin.run((sql) => sql`create table known (id int primary key, name text not null)`)
  await admin.run((sql) => sql`insert into known values (1, 'one')`)
  await withDatabase({ ...unhurried, connections: 1 }, async (db) => {
    const pid = async () => (await db.run((sql) => sql`select pg_backend_pid() as pid`))[0]?.pid
    const before = await pid()
    for (const statement of statements) errors.push((await statement(db).catch((error) => error)) as never)
    expect(await pid()).toBe(before)
  })
  expect(
    errors.map(({ code, retryable, sqlstate, constraint }) => ({ code, retryable, sqlstate, constraint })),
  ).toEqual([
    { code: 'db_refused', retryable: false, sqlstate: '23505', constraint: 'known_pkey' },
    { code: 'db_refused', retryable: false, sqlstate: '22P02', constraint: undefined },
    { code: 'db_refused', retryable: false, sqlstate: '23502', constraint: undefined },
    { code: 'db_refused', retryable: false, sqlstate: '42P01', constraint: undefined },
  ])
  const facts = errors.flatMap((error) =>
    Object.getOwnPropertyNames(error).map((name) => `${name} ${String(error[name])}`),
  )
  expect(facts.join('\n')).not.toContain(secret)
  expect(facts.join('\n')).not.toMatch(/^(query|parameters|args|detail|cause) (?!undefined)/m)
})

test('a statement that the server rolled back was not executed and is retryable', async () => {
  await withDatabase({ ...unhurried, connections: 2, statementTimeoutMs: 1_000 }, async (db) => {
    await expect(db.run((sql) => sql`select pg_sleep(60)`)).rejects.toMatchObject({
      code: 'db_not_executed',
      sqlstate: '57014',
    })
  })
  const fail = (sqlstate: string) =>
    admin.run((sql) => sql.unsafe(`do $$ begin raise exception 'no' using errcode = '${sqlstate}'; end $$`))
  for (const sqlstate of ['40001', '40P01', '53100', '55P03']) {
    await expect(fail(sqlstate)).rejects.toMatchObject({ code: 'db_not_executed', retryable: true, sqlstate })
  }
})

test('bigints are read as numbers and timestamps as milliseconds, and arrays can be parameters', async () => {
  const bytes = [new Uint8Array([0, 255]), new Uint8Array()]
  const [row] = await admin.run(
    (sql) => sql`
      select 9007199254740991 as big, timestamptz '2026-01-02 03:04:05.678+00' as at,
             ${1_767_323_045_678}::timestamptz = timestamptz '2026-01-02 03:04:05.678+00' as "isSame",
             array(select octet_length(b) from unnest(${sql.typed(bytes as never, arrayOid.bytea)}::bytea[]) b)::text as lengths,
             (${['00ff']}::bytea[])[1] = '\\x00ff'::bytea and ${'00ff'}::bytea = '\\x00ff'::bytea as "isHex",
             array_length(${[1, 2, 3]}::int8[], 1) as three, (${arrayLiteral(['a"b\\', null])}::text[])[1] as quoted`,
  )
  expect({ ...row }).toEqual({
    big: Number.MAX_SAFE_INTEGER,
    at: 1_767_323_045_678,
    isSame: true,
    lengths: '{2,0}',
    isHex: true,
    three: 3,
    quoted: 'a"b\\',
  })
})

test('a bigint beyond the safe integers ends only its connection', async () => {
  await withDatabase({ ...unhurried, connections: 1 }, async (db) => {
    await expect(db.run((sql) => sql`select 9007199254740993 as big`)).rejects.toMatchObject({
      name: 'AssertionFailed',
    })
    expect((await db.run((sql) => sql`select 1 as one`))[0]?.one).toBe(1)
  })
})

test('each connection is set to durable commits, short locks and custom plans', async () => {
  await withDatabase({ connections: 1 }, async (db) => {
    const [row] = await db.run(
      (sql) => sql`
        select current_setting('synchronous_commit') as a, current_setting('statement_timeout') as b,
               current_setting('lock_timeout') as c, current_setting('idle_in_transaction_session_timeout') as d,
               current_setting('plan_cache_mode') as e`,
    )
    expect({ ...row }).toEqual({ a: 'on', b: '5s', c: '1s', d: '10s', e: 'force_custom_plan' })
  })
})

test('the server drops a client that falls silent in the middle of a write', async () => {
  const pipeline = await openPipeline(scratch.url)
  const text = `select current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),
    current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout')`
  const [rows] = await pipeline.run((pipe) => pipe.run([{ text }]))
  await pipeline.close()
  expect(rows).toEqual([['10', '5', '3', '25000']])
})

test('close waits for a running statement and refuses later ones', async () => {
  const db = await openDatabase(scratch.url)
  const running = db.run((sql) => sql`select pg_sleep(0.2), 1 as one`)
  await db.close()
  expect((await running)[0]?.one).toBe(1)
  await expect(db.run((sql) => sql`select 1`)).rejects.toMatchObject({ code: 'db_closed' })
})

test('a durable server passes the check', async () => {
  const facts = await checkServer(admin)
  expect(facts).toMatchObject({ fsync: true, synchronousCommit: 'on', durability: 'fsync' })
  expect(facts.version).toMatch(/^\d+\.\d+$/)
})

test('a commit that does not wait for the disk is refused', async () => {
  const url = `${scratch.url}?synchronous_commit=off`
  await withDatabase({}, (db) => expect(checkServer(db)).rejects.toMatchObject({ code: 'db_commit_unsynced' }), url)
})

test('each connection failure is reported in one sentence, without the password', async () => {
  const { hostname, port, username, pathname } = new URL(scratch.url)
  const password = 'pa55word'
  const url = (o: { port?: string; user?: string; name?: string }) =>
    `postgres://${o.user ?? username}:${password}@${hostname}:${o.port ?? port}${o.name ?? pathname}`
  const closed = createServer()
  const closedPort = String(await listen(closed))
  await new Promise((resolve) => closed.close(resolve))
  const real = new URL(scratch.url)
  real.pathname = '/no_such_database'
  const cases: [string, RegExp][] = [
    ['not a url', /^The database URL must look like postgres:\/\/user:password@host:5432\/database$/],
    [`mysql://u:${password}@h/d`, /^The database URL must look like/],
    [`postgres://u:${password}%@h/%d`, /^The database URL must look like/],
    [url({ port: closedPort }), /^Postgres at 127\.0\.0\.1:\d+ is not available: it refuses connections$/],
    [url({}), /^Postgres at 127\.0\.0\.1:\d+ refused the password of user "\w+"$/],
    [real.href, /^Postgres at 127\.0\.0\.1:\d+ has no database "no_such_database"$/],
    [
      `postgres://u:${password}@nowhere.invalid/d`,
      /^Postgres at nowhere\.invalid:5432 is not available: its host name/,
    ],
  ]
  for (const [wrong, sentence] of cases) {
    const error = await openDatabase(wrong).then(
      () => new Error('it opened'),
      (reason: Error) => reason,
    )
    expect(error.message).toMatch(sentence)
    expect(JSON.stringify(Object.getOwnPropertyNames(error).map((n) => String(error[n as 'message'])))).not.toContain(
      password,
    )
  }
})

interface Proxy {
  url: string
  /** Stops forwarding on existing connections, but keeps them open. */
  stall(): void
  close(): Promise<void>
}

async function startProxy(target: string): Promise<Proxy> {
  const { hostname, port } = new URL(target)
  const pairs = new Set<[Socket, Socket]>()
  const server = createServer((near) => {
    const far = dial(Number(port), hostname)
    pairs.add([near, far])
    for (const socket of [near, far]) socket.on('error', () => undefined)
    near.pipe(far)
    far.pipe(near)
  })
  const url = new URL(target)
  url.port = String(await listen(server))
  return {
    url: url.href,
    stall: () => {
      for (const [near, far] of pairs) {
        near.unpipe(far).resume()
        far.unpipe(near).resume()
      }
    },
    close: () => {
      for (const pair of pairs) for (const socket of pair) socket.destroy()
      return new Promise((closed) => server.close(() => closed()))
    },
  }
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port))
  })
}

test('statements beyond the waiting limit are not executed; waiting ones are', async () => {
  await withDatabase({ ...unhurried, connections: 1, waitingMax: 2 }, async (db) => {
    await admin.run((sql) => sql`select pg_advisory_lock(8)`)
    const running = db.run((sql) => sql`select pg_advisory_lock(8)`)
    const waiting = [db.run((sql) => sql`select 1 as n`), db.run((sql) => sql`select 2 as n`)]
    expect(db.waitingCount).toBe(2)
    await expect(db.run((sql) => sql`select 3`)).rejects.toMatchObject({ code: 'db_not_executed', retryable: true })
    await admin.run((sql) => sql`select pg_advisory_unlock(8)`)
    await running
    expect((await Promise.all(waiting)).map(([row]) => row!.n)).toEqual([1, 2])
    expect(db.waitingCount).toBe(0)
  })
})

/** Turns the server's own time limits off, as if its clock had been set back. */
const PATIENT_SERVER = { statement_timeout: 0, lock_timeout: 0 }
const GIVEN_UP = { ...unhurried, applicationName: 'given up', settings: PATIENT_SERVER }

test.each([
  [
    'a statement',
    async (url: string) => {
      const db = await openDatabase(url, { ...GIVEN_UP, connections: 1 })
      return {
        close: () => db.close(),
        wait: () => db.run((sql) => sql`select pg_advisory_lock(9)`, { timeoutMs: 300 }),
      }
    },
  ],
  [
    'a run of several',
    async (url: string) => {
      const pipeline = await openPipeline(url, GIVEN_UP)
      await pipeline.run((pipe) => pipe.run([{ text: 'set transaction_timeout = 0' }]))
      const wait = () => pipeline.run((pipe) => pipe.run([{ text: 'select pg_advisory_lock(9)' }]), { timeoutMs: 300 })
      return { close: () => pipeline.close(), wait }
    },
  ],
])('%s that was given up does not keep waiting on the server', async (_, open) => {
  await admin.run((sql) => sql`select pg_advisory_lock(9)`)
  const opened = await open(scratch.url)
  await expect(opened.wait()).rejects.toMatchObject({ code: 'db_unavailable' })
  await vi.waitFor(
    async () => {
      const waiting = await admin.run(
        (sql) => sql`select from pg_stat_activity where application_name = 'given up' and wait_event_type = 'Lock'`,
      )
      expect(waiting.length).toBe(0)
    },
    { timeout: 20_000, interval: 20 },
  )
  await admin.run((sql) => sql`select pg_advisory_unlock(9)`)
  await opened.close()
})

test('no statement runs on a connection that failed its check, and the error names the reason', async () => {
  let isAdmitted = true
  const asked: string[] = []
  const db = await openDatabase(scratch.url, {
    ...unhurried,
    connections: 1,
    checkConnection: async (row) => {
      const [name] = await row('select current_database()')
      asked.push(name!)
      return isAdmitted ? null : 'it is another one'
    },
  })
  expect(asked).toEqual([new URL(scratch.url).pathname.slice(1)])
  isAdmitted = false
  db.reconnect()
  await expect(db.run((sql) => sql`select 1`)).rejects.toMatchObject({
    code: 'db_not_executed',
    message: expect.stringContaining('it is another one'),
  })
  isAdmitted = true
  expect(await db.run((sql) => sql`select 2 as n`)).toEqual([{ n: 2 }])
  await db.close()
})

test('a connection that was checked before a reconnect is checked again before its first statement', async () => {
  const held = Promise.withResolvers<void>()
  const waiting = Promise.withResolvers<void>()
  let admissions = 0
  const pipeline = await openPipeline(scratch.url, {
    ...unhurried,
    checkConnection: async (row) => {
      await row('select 1')
      admissions += 1
      if (admissions === 2) {
        waiting.resolve()
        await held.promise
      }
      return null
    },
  })
  pipeline.reconnect()
  const answer = pipeline.run((pipe) => pipe.run([{ text: 'select 3' }]))
  await waiting.promise
  pipeline.reconnect()
  held.resolve()
  expect(await answer).toEqual([[['3']]])
  expect(admissions).toBe(3)
  await pipeline.close()
})

test('a statement that runs during a reconnect fails with an unknown outcome', async () => {
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  const failed = db.run((sql) => sql`select pg_sleep(30)`).catch((error) => error)
  db.reconnect()
  expect(await failed).toMatchObject({ code: 'db_unavailable' })
  expect(await db.run((sql) => sql`select 4 as n`)).toEqual([{ n: 4 }])
  await db.close()
})
