/** Publishes the packages to a local registry, and installs them as an ordinary user below a path with a space. */
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '@sealpost/embedded-pg'
import { scratchDatabase } from '@sealpost/schema/testing'
import { publint } from 'publint'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { binaryName, ownPlatform } from '../binary/build.ts'
import { blocksOf, programOf } from '../doc-blocks/blocks.ts'
import { DocWorld } from '../doc-blocks/world.ts'
import { testBinary } from '../test/binary.ts'
import { packCli } from './cli.ts'
import { packSdk, ROOT } from './sdk.ts'
import { type Registry, startRegistry } from './test/registry.ts'

const NPM = ['/usr/bin/npm', '/usr/local/bin/npm'].find(existsSync)
if (!NPM) process.stdout.write('skipped: the npm packages, because npm is not installed\n')
const README = blocksOf(readFileSync(join(ROOT, 'README.md'), 'utf8')).map((block) => ({
  ...block,
  text: block.text.replace('sealpost up ', 'sealpost up --port 0 '), // other tests run `up` too
}))
const DATABASE_URL = 'postgres://user:password@host/database'
const PLATFORM_PACKAGE = `node_modules/@sealpost/cli-${ownPlatform()}`

let folder: string
let tarballs: string[]
let registry: Registry
let user: DocWorld

describe.skipIf(!NPM)('the npm packages', () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sealpost-packed-'))
    registry = await startRegistry()
    user = await DocWorld.ofUser(registry.url)
    tarballs = await packedTarballs()
  })
  afterAll(async () => {
    await user[Symbol.asyncDispose]()
    await registry[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true, force: true })
  })

  test('npm publishes them without a warning', () => {
    for (const library of librariesOfSdk()) publish(library)
    for (const tarball of tarballs) expect(publish(tarball)).not.toMatch(/npm warn/i)
  })

  test("a new user runs the README's commands", async () => {
    writeFileSync(join(user.folder, 'photo.jpg'), 'a photo')
    const startedAt = performance.now()
    const delivered = README.findIndex(({ text }) => text.includes('sealpost listen --count')) + 1
    await user.walk(README.slice(0, delivered))
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    console.log(`cold \`npx sealpost up\` to the first delivered messages, with a global installation: ${seconds} s`)
    await user.walk(README.slice(delivered))
    expect(await user.program('hello', programOf(README))).toEqual({ code: 0, output: 'ada: Are you there?\n' })
  })

  test('the README runs a broker with another database beside `up`', async () => {
    const [start, use] = README.filter(({ text }) => text.includes(DATABASE_URL))
    const [, port] = /^PORT=(\d+) /.exec(start!.text)!
    expect(['7450', '7451']).not.toContain(port) // the ports of `up`
    const database = await scratchDatabase()
    const free = String(await freePort())
    const here = (text: string) => text.replaceAll(DATABASE_URL, database.url).replaceAll(port!, free)
    expect(await user.keep(`exec env ADMIN_PORT=0 ${here(start!.text)}`)).toMatchObject({ code: null })
    const { code, output } = await user.run(here(use!.text))
    expect([code, output]).toEqual([0, expect.stringMatching(/alice \([0-9A-Z-]{9}\) {2}Are you there\?\n/)])
    await user.stop('SIGTERM', 'first', -1)
    await database.drop()
  })

  test('a second `up` in the folder of the first one is refused with one sentence', async () => {
    const { code, output } = await user.run('sealpost up --quiet')
    expect([code, output]).toEqual([5, expect.stringMatching(/^error: [^\n]+ \(embedded_in_use\)\n$/)])
  })

  test('Ctrl-C ends every process of `npx sealpost up`, and the data stays', async () => {
    const ended = await user.stop('SIGINT', 'all')
    expect(ended.at(-1)!.output).toMatch(/\nending\n$/)
    expect(await user.keep('exec npx sealpost up')).toMatchObject({ code: null })
    expect((await user.run('sealpost peers --json')).output).toContain('"carol"')
  })

  test('a signal to npx alone ends every process, too', async () => {
    const [up] = await user.stop('SIGTERM', 'first')
    expect(up!.output).toMatch(/\nending\n$/)
  })

  describe('the launcher', () => {
    beforeAll(async () => {
      const installed = await user.run('mkdir project without; cd project; npm init --yes; npm install sealpost')
      expect(installed.code, installed.output).toBe(0)
    })
    /** Runs the installed command with an empty home, after `given`. */
    const run = (words: string, { given = '', project = 'project' } = {}) => {
      writeFileSync(join(user.folder, 'given.cjs'), given)
      const program = 'node --require ../given.cjs node_modules/sealpost/sealpost.cjs'
      return user.run(`cd ${project}; HOME="$PWD/home" ${program} ${words}`)
    }
    const failure = (code: string) => ({
      code: 1,
      output: expect.stringMatching(new RegExp(`^error: [^\\n]+ \\(${code}\\)\\n$`)),
    })
    const program = () => join(user.folder, 'project', PLATFORM_PACKAGE, 'sealpost')
    const replaceProgram = (script: string) => {
      rmSync(program())
      writeFileSync(program(), script, { mode: 0o755 })
      const manifest = join(program(), '../package.json')
      const bytes = `"bytes": ${script.length}`
      writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(/"bytes": \d+/, bytes))
    }

    test('publint reports nothing', async () => {
      for (const name of ['node_modules/sealpost', PLATFORM_PACKAGE]) {
        const { messages } = await publint({ pkgDir: join(user.folder, 'project', name), pack: false, strict: true })
        expect(messages).toEqual([])
      }
    })

    test('passes on arguments and the exit code', async () => {
      const { code, output } = await run('keygen --profile "a b" --json')
      expect([code, JSON.parse(output).error.code]).toEqual([2, 'usage'])
    })

    test.each([
      ['an old Node', "Object.defineProperty(process.versions, 'node', { value: '16.20.2' })", 'node_unsupported'],
      ['an unknown platform', "Object.defineProperty(process, 'arch', { value: 'sparc' })", 'platform_unsupported'],
    ])('refuses %s with one sentence', async (_, given, code) => {
      expect(await run('up', { given })).toEqual(failure(code))
      expect(JSON.parse((await run('up --json', { given })).output).error.code).toBe(code)
    })

    test('refuses to run without its platform package, and tells a system without glibc apart', async () => {
      const { code, output } = await user.run('cd without; npm init --yes; npm install sealpost --omit=optional')
      expect(code, output).toBe(0)
      const missing = await run('up', { project: 'without' })
      expect(missing).toEqual(failure('package_missing'))
      expect(missing.output).toContain(`remove ${join(user.folder, 'without/node_modules/sealpost')} and`) // never the project
      const given = 'process.report.getReport = () => ({ header: {} })'
      expect(await run('up', { given, project: 'without' })).toEqual(failure('platform_unsupported'))
    })

    test('ends as the program ends', async () => {
      replaceProgram('#!/bin/sh\nkill -KILL $$\n')
      expect((await run('up')).code).toBe(137)
      replaceProgram('#!/bin/sh\nkill -ILL $$\n')
      expect(await run('up')).toEqual(failure('platform_unsupported'))
    })

    test('refuses a program that it can not run', async () => {
      replaceProgram('#!/no/such/program\n')
      expect(await run('up')).toEqual(failure('program_unusable'))
      truncateSync(program(), 10)
      expect(await run('up')).toEqual(failure('program_damaged'))
      rmSync(program())
      expect(await run('up')).toEqual(failure('program_damaged'))
      writeFileSync(join(program(), '../package.json'), '{}')
      expect(await run('up')).toEqual(failure('package_missing'))
    })

    test('leaves nothing in the home folder when it refuses', () => {
      for (const project of ['project', 'without']) expect(existsSync(join(user.folder, project, 'home'))).toBe(false)
    })
  })
})

/** Returns the folders of the libraries that the SDK needs, each after its dependency. */
function librariesOfSdk(): string[] {
  const pathOf = (name: string) => realpathSync(join(ROOT, 'packages/identity/node_modules', name))
  const [wrappers, sumo] = [pathOf('libsodium-wrappers'), pathOf('libsodium-wrappers-sumo')]
  const inner = [join(wrappers, '../libsodium'), join(sumo, '../libsodium-sumo')]
  return [...inner, wrappers, sumo, pathOf('@noble/hashes')]
}

/** Returns the tarballs in the order of their publication. A release is tested with its own. */
async function packedTarballs(): Promise<string[]> {
  const { RELEASE_FOLDER } = process.env
  if (RELEASE_FOLDER) {
    const names = readdirSync(RELEASE_FOLDER).filter((name) => name.endsWith('.tgz'))
    return names.map((name) => join(RELEASE_FOLDER, name)).toSorted((a, b) => (a < b ? 1 : -1)) // `sealpost` is the last
  }
  linkSync(await testBinary(), join(folder, binaryName(ownPlatform())))
  return [packSdk(folder).tarball, ...packCli(folder, [ownPlatform()])]
}

/** Publishes a tarball or a folder. Returns what npm prints. */
function publish(path: string): string {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: folder, npm_config_userconfig: join(user.folder, '.npmrc') }
  const { status, stderr } = spawnSync(NPM!, ['publish', path, '--ignore-scripts'], {
    cwd: folder,
    env,
    encoding: 'utf8',
  })
  expect(status, stderr).toBe(0)
  return stderr
}
