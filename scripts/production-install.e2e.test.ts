/** Installs the broker's and command's production dependencies without PostgreSQL, and starts them. */
import { cpSync, globSync, lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { Machine } from '@sealpost/cli/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROOT } from './deploy/sources.ts'
import { run } from './run.ts'

const BYTES_MAX = 60_000_000
const WORDS = ['--frozen-lockfile', '--production', '--omit=optional', '--omit=peer', '--ignore-scripts']
const NEEDED = ['@sealpost/broker', '@sealpost/cli'].map((name) => `--filter=${name}`)

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sealpost-production-'))
  const filter = (path: string) => !['node_modules', 'dist', 'test'].includes(basename(path))
  for (const name of ['package.json', 'bun.lock', 'bunfig.toml', 'tsconfig.base.json', 'apps', 'packages'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true, filter })
  run([process.execPath, 'install', ...WORDS, ...NEEDED], folder)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('it has at most 60 MB', () => {
  const cwd = join(folder, 'node_modules')
  const sizes = [...new Bun.Glob('**').scanSync({ cwd, dot: true })].map((path) => lstatSync(join(cwd, path)).size)
  const bytes = sizes.reduce((sum, size) => sum + size, 0)
  expect(bytes).toBeGreaterThan(20_000_000)
  expect(bytes).toBeLessThan(BYTES_MAX)
})

test('it contains no package that only development needs', () => {
  const manifests = globSync('{package.json,{apps,packages}/*/package.json}', { cwd: folder }).map((path) =>
    JSON.parse(readFileSync(join(folder, path), 'utf8')),
  )
  const dev = manifests.flatMap(({ devDependencies = {} }) => Object.keys(devDependencies))
  const needed = new Set(manifests.flatMap(({ dependencies = {} }) => Object.keys(dependencies)))
  const installed = readdirSync(join(folder, 'node_modules/.bun')).map((name) =>
    name.replace('+', '/').replace(/@[^@/]*$/, ''),
  )
  expect(installed).toContain('zod')
  expect(dev.filter((name) => !needed.has(name) && installed.includes(name))).toEqual([])
})

test('the broker and the command start from it', async () => {
  const database = await scratchDatabase()
  const programOf = (app: string) => Machine.make([process.execPath, join(folder, `apps/${app}/src/main.ts`)])
  await using broker = await programOf('broker')
  await using command = await programOf('cli')
  const settings = {
    DATABASE_URL: database.url,
    HOST: '127.0.0.1',
    PORT: '0',
    ADMIN_PORT: '0',
    PUBLIC_URL: 'ws://127.0.0.1:0',
  }
  const env = { ...settings, BROKER_KEY_FILE: join(broker.folder, 'broker.json') }
  expect((await command.run(['shard', 'keygen', env.BROKER_KEY_FILE])).code).toBe(0)
  const started = broker.start([], env)
  await started.until('it is ready', ({ stdout }) => stdout.includes('"broker.ready"'))
  const created = await command.run(['admin', 'mesh', 'create', 'home', '--quiet'], { env })
  expect(created).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^sealpost1:/) })
  expect((await started.interrupt()).code).toBe(0)
  await database.drop()
})
