/** Plants secrets for tests, and searches every place that must not contain them. */
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { type FileHandle, open, readFile } from 'node:fs/promises'
import { type Database, openDatabase } from '@sealpost/pg'
import type { ScratchDatabase } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'

/** A secret in every encoding in which it might be written. */
export interface Canary {
  readonly name: string
  readonly forms: readonly Buffer[]
}

/** Returns a text's encodings. In memory, a character takes one or two bytes. */
export const textCanary = (name: string, text: string): Canary => ({
  name,
  forms: [Buffer.from(text), Buffer.from(text, 'utf16le')],
})

export function bytesCanary(name: string, bytes: Uint8Array): Canary {
  const raw = Buffer.from(bytes)
  const texts = [raw.toString('hex'), raw.toString('base64url'), raw.toString('base64').replace(/=+$/, '')]
  return { name, forms: [raw, ...[...new Set(texts)].map((text) => Buffer.from(text))] }
}

/** Returns the names of the secrets in these bytes. */
export function foundIn(haystack: string | Buffer, canaries: readonly Canary[]): string[] {
  const bytes = typeof haystack === 'string' ? Buffer.from(haystack) : haystack
  return canaries.filter(({ forms }) => forms.some((form) => bytes.includes(form))).map(({ name }) => name)
}

/** Returns every row of every table as Postgres prints it. */
export async function databaseText(db: Database): Promise<{ text: string; tables: string[] }> {
  const tables = await db.run(
    (sql) => sql<{ name: string }[]>`select format('%I.%I', table_schema, table_name) as name
      from information_schema.tables where table_schema not in ('pg_catalog', 'information_schema')
        and table_type = 'BASE TABLE' order by 1`,
  )
  const texts = await Promise.all(
    tables.map(({ name }) => db.run((sql) => sql.unsafe<{ row: string }[]>(`select t::text as row from ${name} t`))),
  )
  const text = texts.flatMap((rows) => rows.map(({ row }) => `${row}\n${unescaped(row)}`)).join('\n')
  return { text, tables: tables.map(({ name }) => name) }
}

/** Returns the row with byte columns decoded. */
const unescaped = (row: string): string =>
  [...row.matchAll(/\\x([0-9a-f]+)/g)].map(([, hex]) => Buffer.from(hex!, 'hex').toString('latin1')).join('\n')

export const CAN_READ_MEMORY = existsSync('/proc/self/mem')

const PAGE_BYTES = 4_096
const CHUNK_PAGES = 4_096
/** The pagemap bits (63 and 62) of pages in memory or swapped out. */
const HELD = 0xc0
const READABLE = /^([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ \S+\s*(.*)$/
const OF_THE_KERNEL = /^\[v|^\/dev/

/** Returns the names of the secrets in a process's memory: heap, stacks, kernel buffers and freed memory. */
export async function foundInMemory(
  pid: number,
  canaries: readonly Canary[],
): Promise<{ found: string[]; bytes: number }> {
  const [memory, pages] = await Promise.all([open(`/proc/${pid}/mem`), open(`/proc/${pid}/pagemap`)])
  try {
    const found = new Set<string>()
    let bytes = 0
    for (const run of await heldRuns(pid, pages)) {
      const chunk = await readRun(memory, run)
      bytes += chunk.length
      for (const name of foundIn(chunk, canaries)) found.add(name)
    }
    return { found: [...found], bytes }
  } finally {
    await Promise.all([memory.close(), pages.close()])
  }
}

interface PageRun {
  readonly from: number
  readonly count: number
}

/** Groups neighbouring present pages, because a heap reserves far more than it uses. */
async function heldRuns(pid: number, pages: FileHandle): Promise<PageRun[]> {
  const runs: PageRun[] = []
  for (const line of (await readFile(`/proc/${pid}/maps`, 'utf8')).split('\n')) {
    const [, first, end, name] = READABLE.exec(line) ?? []
    if (name === undefined || OF_THE_KERNEL.test(name)) continue
    const [from, to] = [first!, end!].map((hex) => Number.parseInt(hex, 16) / PAGE_BYTES) as [number, number]
    for (let at = from; at < to; at += CHUNK_PAGES)
      runs.push(...(await heldOf(pages, at, Math.min(to, at + CHUNK_PAGES))))
  }
  return runs
}

async function heldOf(pages: FileHandle, from: number, to: number): Promise<PageRun[]> {
  const entries = Buffer.alloc((to - from) * 8)
  const { bytesRead } = await pages.read(entries, 0, entries.length, from * 8)
  const runs: PageRun[] = []
  for (let i = 0; i * 8 < bytesRead; i++) {
    if ((entries[i * 8 + 7]! & HELD) === 0) continue
    const last = runs.at(-1)
    if (last && last.from + last.count === from + i) runs[runs.length - 1] = { from: last.from, count: last.count + 1 }
    else runs.push({ from: from + i, count: 1 })
  }
  return runs
}

/** Reads a range; nothing if it has been unmapped. */
async function readRun(memory: FileHandle, { from, count }: PageRun): Promise<Buffer> {
  const chunk = Buffer.alloc(count * PAGE_BYTES)
  const read = await memory.read(chunk, 0, chunk.length, from * PAGE_BYTES).catch(() => ({ bytesRead: 0 }))
  return chunk.subarray(0, read.bytesRead)
}

/** Creates a database and a role with this password. */
export async function roleWithPassword(password: string): Promise<ScratchDatabase> {
  const scratch = await scratchDatabase()
  const role = `canary_${randomUUID().slice(0, 8)}`
  const admin = await openDatabase(scratch.url, { connections: 1 })
  await admin.run((sql) => sql.unsafe(`create role ${role} superuser login password '${password}'`))
  const url = new URL(scratch.url)
  url.username = role
  url.password = password
  return {
    url: url.href,
    drop: async () => {
      await admin.run((sql) => sql.unsafe(`drop role ${role}`))
      await admin.close()
      await scratch.drop()
    },
  }
}
