/** Tests undocumented behaviour of `pg`, which any version may change. See ../../README.md. */
import type { Connection } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { emptyDatabase, type ScratchDatabase, unhurried } from '../test/database.ts'
import { openPgClient, type PgClientConnection } from './client.ts'
import { backendKeyOf, internalsOf, PgQuery } from './driver.ts'

let scratch: ScratchDatabase
let open: PgClientConnection
beforeAll(async () => {
  scratch = await emptyDatabase()
  open = await openPgClient(scratch.url, { ...unhurried, session: {}, applicationName: 'test' })
})
afterAll(async () => {
  await open.connection.close()
  await scratch.drop()
})

class Recorded extends PgQuery {
  readonly calls: string[] = []
  readonly rows: unknown[] = []
  dataListeners = 0
  readonly #done = Promise.withResolvers<void>()
  readonly #text: string

  constructor(text: string) {
    super()
    this.#text = text
  }

  submit(connection: Connection): void {
    this.dataListeners = internalsOf(connection).stream.listeners('data').length
    internalsOf(connection).query(this.#text)
  }
  override handleDataRow({ fields }: { fields: unknown }): void {
    this.rows.push(fields)
  }
  override handleCopyData({ chunk }: { chunk: unknown }): void {
    this.rows.push(chunk)
  }
  override handleCommandComplete(): void {
    this.calls.push('complete')
  }
  override handleError(error: unknown, connection: Connection): void {
    this.calls.push('error')
    super.handleError(error, connection)
  }
  protected failed(): void {
    this.calls.push('failed')
    this.#done.resolve()
  }
  handleReadyForQuery(): void {
    this.calls.push('ready')
    this.#done.resolve()
  }
  async over(): Promise<this> {
    await this.#done.promise
    return this
  }
}

const run = (text: string) => open.client.query(new Recorded(text)).over()

test('the client keeps the key of its backend, with the process id that the server reports', async () => {
  const { pid, secret } = backendKeyOf(open.client)
  const { rows } = await open.client.query('select pg_backend_pid() as pid')
  expect(pid).toBe(rows[0].pid)
  expect(Number.isInteger(secret)).toBe(true)
})

test('a query receives rows as arrays of text, and one listener reads the stream', async () => {
  const query = await run('select 1, null')
  expect(query).toMatchObject({ calls: ['complete', 'ready'], rows: [['1', null]], dataListeners: 1 })
})

test('a query receives the rows of a COPY as bytes', async () => {
  const query = await run('copy (select 1) to stdout')
  expect(query).toMatchObject({ calls: ['complete', 'ready'], rows: [Buffer.from('1\n')] })
})

test('an error reaches its query alone, which fails once the server is ready again', async () => {
  expect((await run('select 1 / 0')).calls).toEqual(['error', 'failed'])
  expect((await run('select 1')).calls).toEqual(['complete', 'ready'])
})
