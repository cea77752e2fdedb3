import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { packPrograms, unpackPrograms } from './archive.ts'

let folder: string
let cache: string
let archive: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-archive-'))
  cache = join(folder, 'home/.cache/sealpost')
  const native = join(folder, 'native')
  write(join(native, 'bin/postgres'), 'the server')
  write(join(native, 'lib/libpq.so.5'), 'a library')
  write(join(native, 'lib/libpq.a'), 'for a compiler')
  write(join(native, 'lib/postgresql/pgxs/src/Makefile'), 'for a compiler')
  write(join(native, 'share/postgresql/empty'), '')
  archive = await packPrograms(native, { folder: join(folder, 'archive'), name: 'postgres-18', level: 1 })
})
afterEach(() => rm(folder, { recursive: true, force: true }))

function write(path: string, text: string): void {
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(path, text)
}

const failure = async (attempt: Promise<unknown>) =>
  attempt.then(
    () => null,
    (error: { code: string; message: string }) => error,
  )

test('the programs are unpacked once, without the files that only a compiler needs', async () => {
  const unpacked = await unpackPrograms(archive, cache)
  expect(unpacked).toMatch(new RegExp(`^${cache}/postgres-18-[0-9a-f]{16}$`))
  expect(readFileSync(join(unpacked, 'bin/postgres'), 'utf8')).toBe('the server')
  expect(statSync(join(unpacked, 'bin/postgres')).mode & 0o777).toBe(0o755)
  expect(statSync(join(unpacked, 'lib/libpq.so.5')).mode & 0o777).toBe(0o644)
  expect(readdirSync(join(unpacked, 'lib'))).toEqual(['libpq.so.5'])
  const { ino } = statSync(unpacked)
  expect(await unpackPrograms(archive, cache)).toBe(unpacked)
  expect(statSync(unpacked).ino).toBe(ino)
})

test.each<[string, (unpacked: string) => void]>([
  ['a cut file', (unpacked) => writeFileSync(join(unpacked, 'bin/postgres'), 'the ser')],
  ['a changed file', (unpacked) => writeFileSync(join(unpacked, 'bin/postgres'), 'THE server')],
  ['a missing file', (unpacked) => rmSync(join(unpacked, 'share/postgresql/empty'))],
  ['an unknown file', (unpacked) => writeFileSync(join(unpacked, 'lib/preloaded.so'), '')],
  [
    'a file in its place',
    (unpacked) => {
      rmSync(unpacked, { recursive: true })
      writeFileSync(unpacked, '')
    },
  ],
])('a folder with %s is replaced', async (_, spoil) => {
  const unpacked = await unpackPrograms(archive, cache)
  spoil(unpacked)
  await unpackPrograms(archive, cache)
  expect(readdirSync(unpacked, { recursive: true }).sort()).toEqual([
    ...['bin', 'bin/postgres', 'lib', 'lib/libpq.so.5', 'share', 'share/postgresql', 'share/postgresql/empty'],
  ])
  expect(readFileSync(join(unpacked, 'bin/postgres'), 'utf8')).toBe('the server')
  expect(readdirSync(cache)).toEqual([basename(unpacked)])
})

test('several processes at once leave one folder', async () => {
  const all = await Promise.all(Array.from({ length: 8 }, () => unpackPrograms(archive, cache)))
  expect(readdirSync(cache)).toEqual([...new Set(all.map((path) => basename(path)))])
})

test('the folder of a killed process is removed, that of a running one is not', async () => {
  const name = basename(await unpackPrograms(archive, cache))
  for (const other of ['killed', 'running']) mkdirSync(join(cache, `${name}.new-${other}`))
  utimesSync(join(cache, `${name}.new-killed`), new Date(0), new Date(0))
  await unpackPrograms(archive, cache)
  expect(readdirSync(cache).sort()).toEqual([name, `${name}.new-running`])
})

test.skipIf(!Bun.which('ps'))(
  'the folder of a version that is unused for a month is removed, unless its server runs',
  async () => {
    const name = basename(await unpackPrograms(archive, cache))
    const versionOf = (digit: string) => `postgres-17-${digit.repeat(16)}`
    const [unused, running, recent] = ['a', 'b', 'c'].map((digit) => join(cache, versionOf(digit)))
    for (const path of [unused!, running!, recent!, join(cache, 'unknown')]) mkdirSync(path)
    mkdirSync(join(running!, 'bin'))
    copyFileSync(Bun.which('sleep')!, join(running!, 'bin/postgres'))
    chmodSync(join(running!, 'bin/postgres'), 0o755)
    const server = Bun.spawn([join(running!, 'bin/postgres'), '600'])
    const longAgo = new Date(Date.now() - 31 * 86_400_000)
    for (const path of [unused!, running!, join(cache, 'unknown'), join(cache, name)])
      utimesSync(path, longAgo, longAgo)
    await unpackPrograms(archive, cache)
    expect(readdirSync(cache).sort()).toEqual([versionOf('b'), versionOf('c'), name, 'unknown'].sort())
    server.kill()
    await server.exited
    await unpackPrograms(archive, cache)
    expect(readdirSync(cache).sort()).toEqual([versionOf('c'), name, 'unknown'].sort())
  },
)

test('a damaged archive is refused, and leaves nothing', async () => {
  const bytes = readFileSync(archive)
  for (const damaged of [
    bytes.subarray(0, -20),
    bytes.map((byte, at) => (at === 80 ? byte ^ 1 : byte)),
    new Uint8Array(),
  ]) {
    writeFileSync(archive, damaged)
    expect(await failure(unpackPrograms(archive, cache))).toMatchObject({
      code: 'embedded_damaged',
      message: 'This program is damaged: download it again',
    })
    expect(readdirSync(cache)).toEqual([])
  }
})

test('a cache that can not be written is refused', async () => {
  write(cache, 'a file')
  const error = await failure(unpackPrograms(archive, cache))
  expect(error).toMatchObject({ code: 'embedded_cache_unwritable', message: expect.stringContaining(cache) })
  expect(existsSync(join(cache, 'x'))).toBe(false)
})
