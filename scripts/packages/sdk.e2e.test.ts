/** The packed SDK, installed outside the repository, on the runtimes that it promises. */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { World } from '@sealpost/broker/testing'
import { createInvite } from '@sealpost/identity'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { packSdk, ROOT, run } from './sdk.ts'
import type { Outcome } from './test/peers.ts'

const RUNTIMES = join(ROOT, 'packages/sdk/node_modules')
const LIBRARIES = ['libsodium', 'libsodium-sumo', 'libsodium-wrappers', 'libsodium-wrappers-sumo']

let world: World
let invite = ''
/** A project with the package installed. */
let folder = ''
let tarball = ''

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sealpost-installed '))
  tarball = packSdk(join(folder, 'packed'))
  install()
  world = await World.open()
  const { identity, url, brokerKey, meshId } = await world.enrolAdmin('admin')
  invite = createInvite(identity.signing, { url, brokerKey, meshId, usesMax: 65_535 })
})
afterAll(async () => {
  await world?.[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
})

/** Unpacks the package and what it depends on, without a registry. */
function install(): void {
  const modules = join(folder, 'node_modules')
  mkdirSync(join(modules, '@sealpost/sdk'), { recursive: true })
  run(['tar', 'xzf', tarball, '--strip-components=1', '-C', join(modules, '@sealpost/sdk')], folder)
  const wrappers = realpathSync(join(ROOT, 'packages/identity/node_modules/libsodium-wrappers'))
  const sumo = realpathSync(join(ROOT, 'packages/identity/node_modules/libsodium-wrappers-sumo'))
  for (const library of LIBRARIES) {
    const from = [wrappers, sumo].map((beside) => join(beside, '..', library)).find(existsSync)
    cpSync(realpathSync(from!), join(modules, library), { recursive: true, dereference: true })
  }
  cpSync(realpathSync(join(RUNTIMES, 'ws')), join(modules, 'ws'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  const typescript = new Bun.Transpiler({ loader: 'ts', target: 'node' })
  for (const name of ['peers', 'on-server']) {
    const source = readFileSync(join(import.meta.dirname, `test/${name}.ts`), 'utf8')
    const code = typescript.transformSync(source).replaceAll('./peers.ts', './peers.js')
    writeFileSync(join(folder, `${name}.js`), code)
  }
}

/** This runs under a `node` that is Bun, so Node is looked for where systems install it. */
const SYSTEM_NODE = ['/usr/bin/node', '/usr/local/bin/node'].find(existsSync) ?? ''
const isNode20 = SYSTEM_NODE !== '' && Bun.spawnSync([SYSTEM_NODE, '-v']).stdout.toString().startsWith('v20.')

interface Runtime {
  readonly name: string
  readonly command: readonly string[]
  readonly webSocket?: string
}

const RUNS: readonly Runtime[] = [
  { name: 'Node 22', command: [join(RUNTIMES, 'node-22/bin/node')] },
  { name: 'Node 24', command: [join(RUNTIMES, 'node-24/bin/node')] },
  { name: 'Bun', command: [process.execPath] },
  { name: 'Deno', command: [join(RUNTIMES, '@deno/linux-x64-glibc/deno'), 'run', '--allow-all', '--no-remote'] },
  { name: 'Node 20 with a WebSocket passed in', command: isNode20 ? [SYSTEM_NODE] : [], webSocket: 'ws' },
]

for (const { name, command, webSocket = '' } of RUNS) {
  const isHere = command.length > 0 && existsSync(command[0]!)
  if (!isHere) process.stdout.write(`skipped: the SDK on ${name}, which is not installed\n`)
  test.skipIf(!isHere)(`works on ${name}`, async () => {
    const own = mkdtempSync(join(folder, 'run-'))
    const env = { PATH: process.env.PATH, HOME: own, INVITE: invite, FOLDER: own, WEBSOCKET: webSocket }
    const child = Bun.spawn([...command, 'on-server.js'], { cwd: folder, env, stdout: 'pipe', stderr: 'pipe' })
    const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
    expect({ exitCode: await child.exited, errors }).toEqual({ exitCode: 0, errors: '' })
    const outcomes = JSON.parse(output) as Outcome[]
    expect(outcomes.filter(({ failure }) => failure !== null)).toEqual([])
    expect(outcomes.length).toBe(12)
  })
}
