import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, rename, rm, utimes, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { checkServer, type Database, openDatabase, openPipeline } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type EmbeddedOptions, type EmbeddedPostgres, startEmbedded } from './embedded.ts'
import { openCluster } from './folder.ts'
import { chooseAccount } from './programs.ts'

let folder: string
let servers: EmbeddedPostgres[]

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-embedded-test-'))
  await chmod(folder, 0o755)
  servers = []
})
afterEach(async () => {
  await Promise.all(servers.map((server) => server.stop()))
  await rm(folder, { recursive: true, force: true })
})

async function start(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbedded({ settings: { shared_buffers: '16MB' }, ...options })
  servers.push(server)
  return server
}

async function ask<T>(server: { url: string }, question: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(server.url, { ...unhurried, connections: 1 })
  try {
    return await question(db)
  } finally {
    await db.close()
  }
}

const write = (server: EmbeddedPostgres) => ask(server, (db) => db.run((sql) => sql`create table kept (one int)`))
const isKept = (server: EmbeddedPostgres) =>
  ask(server, async (db) => (await db.run((sql) => sql`select to_regclass('kept') is not null as kept`))[0]?.kept)

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

test('a temporary server is durable, local, and leaves neither a process nor a folder', async () => {
  const server = await start()
  const other = await start()
  expect(server.port).toBeLessThan(32_768)
  expect(server.port).not.toBe(other.port)
  expect(new URL(server.url).hostname).toBe('127.0.0.1')
  expect(await ask(server, checkServer)).toEqual({
    version: server.version,
    fsync: true,
    synchronousCommit: 'on',
    durability: 'fsync',
  })
  const [row] = await ask(server, (db) =>
    db.run(
      (sql) => sql`select current_setting('listen_addresses') as addresses, current_setting('max_connections') as most`,
    ),
  )
  expect({ ...row }).toEqual({ addresses: '127.0.0.1', most: '200' })
  await server.stop()
  expect(isAlive(server.pid)).toBe(false)
  await expect(readdir(join(server.dataDir, '..'))).rejects.toMatchObject({ code: 'ENOENT' })
  expect(await ask(other, async () => 'untouched')).toBe('untouched')
})

test('a Unix socket works as an address', async () => {
  await chmod(folder, 0o777) // the server's account must reach the folder
  const server = await start({ settings: { shared_buffers: '16MB', unix_socket_directories: folder } })
  const url = server.url.replace('127.0.0.1', encodeURIComponent(folder))
  const isLocal = 'select inet_client_addr() is null as is'
  expect(await ask({ url }, (db) => db.run((sql) => sql.unsafe(isLocal)))).toMatchObject([{ is: true }])
  const pipeline = await openPipeline(url)
  expect(await pipeline.run((pipe) => pipe.run([{ text: isLocal }]))).toEqual([[['t']]])
  await pipeline.close()
})

test('a wrong password is refused', async () => {
  const server = await start()
  const url = server.url.replace(/:[^:@]+@/, ':guess@')
  await expect(openDatabase(url)).rejects.toMatchObject({ code: 'db_refused', sqlstate: '28P01' })
})

test('an existing data folder is reused after a stop, and after a crash', async () => {
  const dataDir = join(folder, 'kept')
  const first = await start({ dataDir })
  await write(first)
  await first.stop()
  const second = await start({ dataDir, port: first.port })
  expect(second.url).toBe(first.url)
  expect(await isKept(second)).toBe(true)
  await second.kill()
  expect(isAlive(second.pid)).toBe(false)
  const third = await start({ dataDir })
  expect(await isKept(third)).toBe(true)
})

test('a stale lock file with the id of a live process does not block the start', async () => {
  const dataDir = join(folder, 'stale')
  const first = await start({ dataDir })
  await first.stop()
  await writeFile(join(dataDir, 'cluster', 'postmaster.pid'), `${process.pid}\n${dataDir}\n`)
  expect(await ask(await start({ dataDir }), async () => 'up')).toBe('up')
})

test('a folder of a running server is refused, and that server continues', async () => {
  const dataDir = join(folder, 'busy')
  const first = await start({ dataDir })
  const again = start({ dataDir })
  await expect(again).rejects.toMatchObject({
    code: 'embedded_in_use',
    message: `A running PostgreSQL (process ${first.pid}) uses ${dataDir}; stop it first`,
  })
  expect(await ask(first, async () => 'alive')).toBe('alive')
})

test('of several first starts in one folder one succeeds, with its own password', async () => {
  const dataDir = join(folder, 'data')
  const starts = await Promise.allSettled([1, 2, 3].map(() => start({ dataDir })))
  const codes = starts.map((one) => (one.status === 'rejected' ? one.reason.code : 'started')).sort()
  expect(codes).toEqual(['embedded_in_use', 'embedded_in_use', 'started'])
  await write(servers[0]!)
  expect((await readdir(dataDir)).sort()).toEqual(['cluster', 'password'])
})

test('a first start that was killed between its two renames is completed', async () => {
  const dataDir = join(folder, 'data')
  const server = await start({ dataDir })
  await write(server)
  await server.stop()
  await mkdir(join(dataDir, 'cluster.new-killed'))
  await rename(join(dataDir, 'password'), join(dataDir, 'cluster.new-killed/password'))
  expect(await isKept(await start({ dataDir }))).toBe(true)
})

test('what a killed first start left is removed later, unless its process may still run', async () => {
  const dataDir = join(folder, 'data')
  await (await start({ dataDir })).stop()
  for (const name of ['killed', 'running'])
    await mkdir(join(dataDir, `cluster.new-${name}/cluster`), { recursive: true })
  await utimes(join(dataDir, 'cluster.new-killed'), 0, 0)
  await start({ dataDir })
  expect((await readdir(dataDir)).sort()).toEqual(['cluster', 'cluster.new-running', 'password'])
})

test('a cluster that can not be created leaves no folder', async () => {
  await mkdir(join(folder, 'existing'))
  const environment = { PATH: process.env.PATH! }
  const options = { binaries: { initdb: 'false', postgres: 'false', version: '18.0', environment }, initdbArgs: [] }
  const account = await chooseAccount()
  const failure = openCluster(join(folder, 'existing/outer/inner'), { ...options, account })
  await expect(failure).rejects.toMatchObject({ code: 'embedded_folder_unusable' })
  expect(await readdir(join(folder, 'existing'))).toEqual([])
  await writeFile(join(folder, 'a file'), '')
  await expect(start({ dataDir: join(folder, 'a file/data') })).rejects.toMatchObject({
    code: 'embedded_folder_unusable',
    message: expect.stringContaining("can't be created (ENOTDIR)"),
  })
})

test('a folder with other content is refused and left unchanged', async () => {
  const dataDir = join(folder, 'letters')
  await mkdir(dataDir)
  await writeFile(join(dataDir, 'letter.txt'), 'dear')
  await expect(start({ dataDir })).rejects.toMatchObject({ code: 'embedded_folder_unusable' })
  expect(await readdir(dataDir)).toEqual(['letter.txt'])
})

test('a cluster of another major version is refused', async () => {
  const dataDir = join(folder, 'old')
  await (await start({ dataDir })).stop()
  await writeFile(join(dataDir, 'cluster', 'PG_VERSION'), '12\n')
  await expect(start({ dataDir })).rejects.toThrow('was created by PostgreSQL 12, and the embedded version is')
})

test('a requested port in use is reported', async () => {
  const listener = createServer()
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening))
  const { port } = listener.address() as { port: number }
  await expect(start({ port })).rejects.toMatchObject({
    code: 'embedded_port_taken',
    message: `Another program uses port ${port} on 127.0.0.1`,
  })
  await new Promise((closed) => listener.close(closed))
})

test('a setting that PostgreSQL refuses is reported with its message', async () => {
  await expect(start({ settings: { shared_buffers: 'plenty' } })).rejects.toThrow(
    /^The embedded PostgreSQL did not start: invalid value for parameter "shared_buffers": "plenty"$/,
  )
})

test('fsync=off works here, and the check refuses it', async () => {
  const server = await start({ settings: { fsync: 'off' } })
  await expect(ask(server, checkServer)).rejects.toMatchObject({ code: 'db_fsync_off' })
})

test('a folder inside a private one works', async () => {
  const closed = join(folder, 'closed')
  await mkdir(closed, { mode: 0o700 })
  const dataDir = join(closed, 'below')
  const first = await start({ dataDir })
  await write(first)
  await first.stop()
  const second = await start({ dataDir })
  await expect(start({ dataDir })).rejects.toMatchObject({ code: 'embedded_in_use' })
  expect(await isKept(second)).toBe(true)
})

test.runIf(process.platform === 'linux')('a starter killed with -9 leaves no server behind', async () => {
  const script = `
    const { startEmbedded } = await import(${JSON.stringify(fileURLToPath(new URL('./embedded.ts', import.meta.url)))})
    const server = await startEmbedded({ dataDir: ${JSON.stringify(join(folder, 'orphan'))} })
    console.log(server.pid)
    await new Promise(() => setInterval(() => {}, 1000))`
  const starter = spawn(process.execPath, ['-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, TMPDIR: folder },
  })
  const pid = await new Promise<number>((found) =>
    createInterface(starter.stdout).once('line', (line) => found(Number(line))),
  )
  expect(isAlive(pid)).toBe(true)
  starter.kill('SIGKILL')
  await expect.poll(() => isAlive(pid)).toBe(false)
})
