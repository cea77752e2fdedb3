import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Database, openDatabase, openPipeline, type Pipeline } from '../pool.ts'
import { emptyDatabase, type ScratchDatabase, unhurried } from '../test/database.ts'
import { openPgClient } from './client.ts'
import type { PipelineStep } from './prepared.ts'

let scratch: ScratchDatabase
let admin: Database
let pipeline: Pipeline

beforeAll(async () => {
  scratch = await emptyDatabase()
  admin = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  await admin.run((sql) => sql`create table box (content bytea, n int unique deferrable initially deferred)`)
  pipeline = await openPipeline(scratch.url, unhurried)
})
afterAll(async () => {
  await Promise.all([pipeline.close(), admin.close()])
  await scratch.drop()
})

const run = (...steps: PipelineStep[]) => pipeline.run((pipe) => pipe.run(steps))
const HEADER = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')
const END = Buffer.from([0xff, 0xff])
const TEXT = 'copy box from stdin (format binary)'

function row(n: number, size = 10): Buffer {
  const bytes = Buffer.alloc(14 + size)
  bytes.writeInt16BE(2, 0)
  bytes.writeInt32BE(size, 2)
  bytes.writeInt32BE(4, 6 + size)
  bytes.writeInt32BE(n, 10 + size)
  return bytes
}
const copy = (...rows: Buffer[]): PipelineStep => ({ text: TEXT, copied: Buffer.concat([HEADER, ...rows, END]) })
const FAILING: PipelineStep = { text: 'select 1 / 0' }
const COUNT: PipelineStep = { text: 'select count(*) from box' }

test('steps are one transaction, and each returns its rows', async () => {
  const answers = await run({ text: 'select $1::int + 1', parameters: ['41'] }, copy(row(1), row(2)), COUNT)
  expect(answers).toEqual([[['42']], [], [['2']]])
  await run({ text: 'delete from box' })
})

test('the output of a COPY step arrives message by message, next to the rows of other steps', async () => {
  const lines: string[] = []
  const rows = (count: number): PipelineStep => ({
    text: `copy (select repeat('x', 9) || n from generate_series(1, ${count}) n) to stdout`,
    take: (message) => lines.push(message.toString()),
  })
  const answers = await run({ text: 'select 4' }, rows(3), { text: 'select 5' }, rows(1))
  expect(answers).toEqual([[['4']], [], [['5']], []])
  expect(lines).toEqual(['x1', 'x2', 'x3', 'x1'].map((end) => `${'x'.repeat(8)}${end}\n`))
  await expect(run(rows(1), FAILING)).rejects.toMatchObject({ code: 'db_refused' })
  expect(await run({ text: 'select 6' }, rows(0))).toEqual([[['6']], []])
})

/** Returns the columns of each row. */
function* rowsIn(bytes: Buffer): Generator<(string | null)[]> {
  for (let at = 0; at < bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
    const columns: (string | null)[] = []
    let from = at + 7
    for (let left = bytes.readInt16BE(at + 5); left > 0; left--) {
      const length = bytes.readInt32BE(from)
      columns.push(length < 0 ? null : bytes.toString('latin1', from + 4, from + 4 + length))
      from += 4 + Math.max(length, 0)
    }
    yield columns
  }
}
const read = (text: string, ...parameters: string[]) =>
  pipeline.run((pipe) => pipe.read({ text, parameters })).then((bytes) => [...rowsIn(bytes)])

test('one statement is read in binary between runs that return text', async () => {
  const text = "select n, decode('00ff', 'hex'), null::int from generate_series(1, $1::int) n"
  const rows = (count: number) =>
    Array.from({ length: count }, (_, i) => [`\0\0\0${String.fromCharCode(i + 1)}`, '\0\xff', null])
  expect(await read(text, '3')).toEqual(rows(3))
  expect(await run({ text: 'select 5' })).toEqual([[['5']]])
  expect(await read(text, '0')).toEqual([])
  expect(await read(text, '1')).toEqual(rows(1))
  const large = await read("select repeat('x', 100000) from generate_series(1, 40)")
  expect(large.map((columns) => columns[0]!.length)).toEqual(Array.from({ length: 40 }, () => 100_000))
})

test('a failed read throws like a run, discards its rows, and does not affect the next one', async () => {
  const failing = read('select 1 / (3 - n) from generate_series(1, 3) n')
  await expect(failing).rejects.toMatchObject({ code: 'db_refused', sqlstate: '22012' })
  expect([await run({ text: 'select 5' }), await read("select 'a'")]).toEqual([[[['5']]], [['a']]])
  await expect(read('select 1 / (3 - n) from generate_series(1, 3) n')).rejects.toMatchObject({ code: 'db_refused' })
  const cut = read("select 'a', pg_terminate_backend(pg_backend_pid())")
  await expect(cut).rejects.toMatchObject({ code: 'db_unavailable' })
  expect(await read("select 'b'")).toEqual([['b']])
})

const LARGE = copy(row(1, 4_000_000))
test.each([
  ['before a large copy', [FAILING, LARGE]],
  ['behind it', [LARGE, FAILING]],
  ['in it', [{ text: TEXT, copied: LARGE.copied!.subarray(0, 2_000_000) }]],
  ['at the end of the transaction', [copy(row(7), row(7))]],
  ['between two', [copy(row(1)), FAILING, copy(row(2))]],
] as const)('after an error %s nothing is done, and the next run gets its own answers', async (_, steps) => {
  const [failed, next] = await Promise.allSettled([run(...steps), run({ text: 'select 5' }, COUNT)])
  expect(failed).toMatchObject({ status: 'rejected', reason: { code: 'db_refused' } })
  expect(next).toEqual({ status: 'fulfilled', value: [[['5']], [['0']]] })
})

/** The size of the message after the error, which arrives later. */
const READY_BYTES = 6
const LATE_MS = 50

test('a failed run rejects once the server is ready for the next one', async () => {
  const { hostname, port } = new URL(scratch.url)
  let isLate = false
  const proxy = createServer((near) => {
    const far = connect(Number(port), hostname)
    near.pipe(far).on('error', () => near.destroy())
    near.on('error', () => far.destroy())
    far.on('data', (bytes: Buffer) => {
      if (!isLate) return near.write(bytes)
      near.write(bytes.subarray(0, -READY_BYTES))
      return setTimeout(() => near.write(bytes.subarray(-READY_BYTES)), LATE_MS)
    })
  })
  await once(proxy.listen(0, '127.0.0.1'), 'listening')
  const through = new URL(scratch.url)
  through.host = `127.0.0.1:${(proxy.address() as AddressInfo).port}`
  const { client, connection } = await openPgClient(through.href, {
    ...unhurried,
    session: {},
    applicationName: 'late',
  })
  isLate = true
  const isReady = () => (client as unknown as { readyForQuery: boolean }).readyForQuery
  const refused = await connection.driver.run([FAILING]).catch(({ code }) => ({ code, isReady: isReady() }))
  expect(refused).toEqual({ code: '22012', isReady: true })
  isLate = false
  expect(await connection.driver.run([{ text: 'select 5' }])).toEqual([[['5']]])
  await connection.close()
  proxy.close()
})

test('sslmode=prefer connects without TLS, and a wrong password is still refused', async () => {
  const preferring = new URL(scratch.url)
  preferring.searchParams.set('sslmode', 'prefer')
  const open = await openPipeline(preferring.href, unhurried)
  expect(await open.run((pipe) => pipe.run([{ text: 'select 1' }]))).toEqual([[['1']]])
  await open.close()
  preferring.searchParams.set('sslmode', 'require')
  await expect(openPipeline(preferring.href, unhurried)).rejects.toMatchObject({ code: 'db_tls_off', retryable: false })
  preferring.searchParams.set('sslmode', 'prefer')
  preferring.password = 'wrong'
  await expect(openPipeline(preferring.href, unhurried)).rejects.toMatchObject({ code: 'db_refused' })
})

test('errors leave no prepared statements behind', async () => {
  const prepared: PipelineStep = { text: 'select count(*) from pg_prepared_statements' }
  const failing = (n: number): PipelineStep[] => [{ text: 'select 2' }, FAILING, { text: `select ${n % 3}, 3` }]
  for (let n = 0; n < 3; n++) await run(...failing(n)).catch(() => undefined)
  const before = await run(prepared)
  for (let n = 0; n < 30; n++) await run(...failing(n)).catch(() => undefined)
  expect(await run(prepared)).toEqual(before)
})

test('the server limits the time of a run as a whole where it can', async () => {
  const bounded = await openPipeline(scratch.url, { ...unhurried, queryTimeoutMs: 25_000 })
  const setting: PipelineStep = {
    text: "select coalesce((select setting from pg_settings where name = 'transaction_timeout'), '25000')",
  }
  expect(await bounded.run((pipe) => pipe.run([setting]))).toEqual([[['25000']]])
  await bounded.close()
})
