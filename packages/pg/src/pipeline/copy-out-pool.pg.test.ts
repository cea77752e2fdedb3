import { type Database, openDatabase } from '@sealpost/pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { emptyDatabase, type ScratchDatabase, unhurried } from '../test/database.ts'
import { CopyOutPool } from './copy-out.ts'
import { MessageSplitter } from './intercept.ts'

let scratch: ScratchDatabase
let db: Database
let copyOut: CopyOutPool
beforeAll(async () => {
  scratch = await emptyDatabase()
  db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  copyOut = new CopyOutPool(scratch.url, {
    applicationName: 'a copy',
    settings: {},
    statementTimeoutMs: 60_000,
    idleMax: 1,
  })
})
afterAll(async () => {
  await Promise.all([copyOut.close(), db.close()])
  await scratch.drop()
})

const copy = (query: string) => `copy (${query}) to stdout`

async function read(statement: string): Promise<string[]> {
  const chunks: Buffer[] = []
  for await (const chunk of copyOut.read(statement)) chunks.push(Buffer.from(chunk))
  return payloads(Buffer.concat(chunks))
}

function payloads(bytes: Buffer): string[] {
  const found: string[] = []
  for (let at = 0; at < bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
    expect(bytes[at]).toBe('d'.charCodeAt(0))
    found.push(bytes.toString('latin1', at + 5, at + 1 + bytes.readInt32BE(at + 1)))
  }
  return found
}

const backends = () =>
  db.run(
    (sql) => sql<{ pid: number; state: string }[]>`
    select pid, state from pg_stat_activity where application_name = 'a copy' and datname = current_database()`,
  )

test('a large result is complete, and the connection is reused', async () => {
  const rows = await read(copy(`select repeat('x', 1000) || n from generate_series(1, 20000) n`))
  expect(rows).toHaveLength(20_000)
  expect(rows.at(-1)).toBe(`${'x'.repeat(1000)}20000\n`)
  const [first] = await backends()
  expect(await read(copy('select 1 where false'))).toEqual([])
  expect(await read(copy(`select 'a notice' from (select set_config('search_path', 'public', false)) x`))).toEqual([
    'a notice\n',
  ])
  expect((await backends()).map(({ pid }) => pid)).toEqual([first!.pid])
})

test('a chunk is freed when the next one is requested', async () => {
  let last: Buffer | undefined
  let bytes = 0
  for await (const chunk of copyOut.read(copy(`select repeat('x', 1000) from generate_series(1, 20000)`))) {
    if (last && last.length >= 64 * 1024) throw new Error('it is there still')
    last = chunk
    bytes += chunk.length
  }
  expect(bytes).toBe(20_000 * 1_006)
})

test('an error at the start or in the middle is thrown, and the connection is reused', async () => {
  const [first] = await backends()
  await expect(read(copy('select nothing'))).rejects.toMatchObject({ sqlstate: '42703' })
  await expect(read(copy('select 1 / (5000 - n) from generate_series(1, 9000) n'))).rejects.toMatchObject({ sqlstate: '22012' }) // biome-ignore format: one thing
  expect(await read(copy('select 7'))).toEqual(['7\n'])
  expect((await backends()).map(({ pid }) => pid)).toEqual([first!.pid])
})

test('a statement ends when its reader stops or aborts', async () => {
  const endless = copy(`select repeat('x', 1000) from generate_series(1, 10000000)`)
  for await (const chunk of copyOut.read(endless)) {
    expect(chunk.length).toBeGreaterThan(0)
    break
  }
  const end = new AbortController()
  const consume = async () => {
    for await (const _ of copyOut.read(endless, end.signal)) end.abort()
  }
  await expect(consume()).rejects.toThrow()
  await expect.poll(async () => (await backends()).filter(({ state }) => state === 'active'), { timeout: 20_000 }).toEqual([]) // biome-ignore format: one thing
  expect(await read(copy('select 7'))).toEqual(['7\n'])
})

test('row messages are separated from others, however the stream is cut', () => {
  const message = (kind: string, text: string) => {
    const bytes = Buffer.from(`${kind}....${text}`)
    bytes.writeInt32BE(bytes.length - 1, 1)
    return bytes
  }
  const all = [message('H', 'a'), message('d', 'one'), message('d', ''), message('N', 'note'), message('d', 'two'), message('c', ''), message('Z', 'I')] // biome-ignore format: one thing
  const bytes = Buffer.concat(all)
  const isOfRows = (each: Buffer) => each[0] === 'd'.charCodeAt(0)
  for (let size = 1; size <= bytes.length; size++) {
    const messages = new MessageSplitter('d')
    const [rows, others]: [Buffer[], Buffer[]] = [[], []]
    for (let at = 0; at < bytes.length; at += size)
      messages.take(bytes.subarray(at, at + size), { rows: (part) => rows.push(part), others: (part) => others.push(part) }) // biome-ignore format: one thing
    expect(Buffer.concat(rows)).toEqual(Buffer.concat(all.filter(isOfRows)))
    expect(Buffer.concat(others)).toEqual(Buffer.concat(all.filter((each) => !isOfRows(each))))
    expect(messages.cutHeader).toHaveLength(0)
  }
})
