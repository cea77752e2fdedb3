/** Tests the packed SDK, outside the repository, on each runtime. */
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { checkPackage, createPackageFromTarballData, type Problem } from '@arethetypeswrong/core'
import { World } from '@sealpost/broker/testing'
import { freePort } from '@sealpost/embedded-pg'
import { createInvite } from '@sealpost/identity'
import { chromiumPath, openBrowser } from '@sealpost/ui/testing'
import { publint } from 'publint'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { run } from '../run.ts'
import { referenceOf, specifierOf } from './reference.ts'
import { packSdk, ROOT } from './sdk.ts'
import { documentedIn, programOf } from './test/examples.ts'
import { installSdk, transpile } from './test/install.ts'
import type { Outcome } from './test/peers.ts'

/** Installed when the test starts, because they unpack to 470 MB. */
const RUNTIMES = join(import.meta.dirname, 'runtimes')
const INSTALL = [process.execPath, 'install', '--frozen-lockfile', '--ignore-scripts']
if (process.platform === 'linux') Bun.spawnSync(INSTALL, { cwd: RUNTIMES, stdout: 'ignore', stderr: 'ignore' })
const PROGRAMS = join(RUNTIMES, 'node_modules')

let world: World
let invite = ''
/** A project with the package, in a folder with a space in its path. */
let folder = ''
let tarball = ''
let report = ''

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sealpost installed '))
  mkdirSync(join(folder, 'packed'))
  ;({ tarball, report } = packSdk(join(folder, 'packed')))
  // A release is tested with its own files. The build is reproducible, so they have the same contents.
  const released = process.env.RELEASE_FOLDER && join(process.env.RELEASE_FOLDER, basename(tarball))
  if (released) expect(readFileSync(released).equals(readFileSync(tarball))).toBe(true)
  install()
  const port = String(await freePort())
  world = await World.open({ PORT: port, ORIGINS: `http://127.0.0.1:${port}` }) // its own pages may connect
  const { identity, url, brokerKey, meshId } = await world.enrolAdmin('admin')
  invite = createInvite(identity.signing, { url, brokerKey, meshId, usesMax: 65_535 })
})
afterAll(async () => {
  await world?.[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
})

/** Installs the package, and copies the tests as an application would have them. */
function install(): void {
  installSdk(tarball, folder)
  cpSync(realpathSync(join(ROOT, 'packages/sdk/node_modules/ws')), join(folder, 'node_modules/ws'), { recursive: true })
  const given = "import { WebSocket } from 'ws'\nglobalThis.socketOfTest = WebSocket\nawait import('./on-server.js')\n"
  writeFileSync(join(folder, 'with-socket.js'), given)
  const sources = ['peers', 'on-server', 'on-page'].map((name) => join(import.meta.dirname, `test/${name}.ts`))
  transpile(sources, folder)
  for (const source of sources) cpSync(source, join(folder, basename(source)))
}

/** Node's usual folders, because the `node` on the PATH may be Bun. */
const SYSTEM_NODE = ['/usr/bin/node', '/usr/local/bin/node'].find(existsSync) ?? ''
const isNode20 = SYSTEM_NODE !== '' && Bun.spawnSync([SYSTEM_NODE, '-v']).stdout.toString().startsWith('v20.')

interface Runtime {
  readonly name: string
  readonly command: readonly string[]
  /** Default: `on-server.js`. */
  readonly program?: string
}

const RUNS: readonly Runtime[] = [
  { name: 'Node 22', command: [join(PROGRAMS, 'node-22/bin/node')] },
  { name: 'Node 24', command: [join(PROGRAMS, 'node-24/bin/node')] },
  { name: 'Bun', command: [process.execPath] },
  { name: 'Deno', command: [join(PROGRAMS, '@deno/linux-x64-glibc/deno'), 'run', '--allow-all', '--no-remote'] },
  {
    name: 'Node 22 with a WebSocket passed in',
    command: [join(PROGRAMS, 'node-22/bin/node')],
    program: 'with-socket.js',
  },
  { name: 'Node 20 with a WebSocket passed in', command: isNode20 ? [SYSTEM_NODE] : [], program: 'with-socket.js' },
]

for (const { name, command, program = 'on-server.js' } of RUNS) {
  const isHere = command.length > 0 && existsSync(command[0]!)
  if (!isHere) process.stdout.write(`skipped: the SDK on ${name}, which is not installed\n`)
  test.skipIf(!isHere)(`works on ${name}`, async () => {
    const own = mkdtempSync(join(folder, 'run-'))
    const env = { PATH: process.env.PATH, HOME: own, INVITE: invite, FOLDER: own }
    const child = Bun.spawn([...command, program], { cwd: folder, env, stdout: 'pipe', stderr: 'pipe' })
    const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
    expect({ exitCode: await child.exited, errors }).toEqual({ exitCode: 0, errors: '' })
    const outcomes = JSON.parse(output) as Outcome[]
    expect(outcomes.filter(({ failure }) => failure !== null)).toEqual([])
    expect(outcomes.length).toBe(13)
  })
}

test('a bundle for browsers contains libsodium alone', async () => {
  const page = join(folder, 'page.js')
  writeFileSync(page, "export * from '@sealpost/sdk'\n")
  const bundle = async (target: 'browser' | 'node') => {
    const { outputs } = await Bun.build({ entrypoints: [page], target })
    return (await outputs[0]!.text()).includes('getBuiltinModule')
  }
  expect([await bundle('browser'), await bundle('node')]).toEqual([false, true])
})

test.skipIf(chromiumPath === null)('works in Chromium, without a bundler', async () => {
  await using browser = await openBrowser()
  // For Chromium, an intercepted page is from the internet, which may not connect to this machine by default.
  const tab = await browser.newPage({ permissions: ['local-network-access'] })
  // The page has the broker's origin, which the HTTP functions require.
  const app = `${world.broker.httpUrl}/app/`
  await tab.route(`${app}**`, (route) => {
    const path = new URL(route.request().url()).pathname.slice('/app/'.length)
    return path === ''
      ? route.fulfill({ body: pageOf(), contentType: 'text/html' })
      : route.fulfill({ path: join(folder, path) })
  })
  await tab.goto(app)
  const outcomes = await tab.evaluate(`import('/app/on-page.js').then(({ run }) => run(${JSON.stringify(invite)}))`)
  expect((outcomes as Outcome[]).filter(({ failure }) => failure !== null)).toEqual([])
  expect((outcomes as Outcome[]).length).toBe(10)
})

/** Returns a page with an import map of the project's packages. */
function pageOf(): string {
  const manifest = join(folder, 'node_modules/@sealpost/sdk/package.json')
  const { exports } = JSON.parse(readFileSync(manifest, 'utf8')) as { exports: Record<string, { default: string }> }
  const own = Object.entries(exports).map(([entry, { default: file }]) => [
    `@sealpost/sdk${entry.slice(1)}`,
    `/app/node_modules/@sealpost/sdk/${file.slice(2)}`,
  ])
  const libraries = ['libsodium-wrappers', 'libsodium'].map((name) => [
    name,
    `/app/node_modules/${name}/dist/modules-esm/${name}.mjs`,
  ])
  const imports = JSON.stringify({ imports: Object.fromEntries([...own, ...libraries]) })
  return `<!doctype html><title>SDK</title><script type="importmap">${imports}</script>`
}

test('publint and attw report nothing', async () => {
  const pkgDir = join(folder, 'node_modules/@sealpost/sdk')
  const { messages } = await publint({ pkgDir, pack: false, strict: true })
  // `imports` would require an entry in the import map of every page without a bundler.
  expect(messages.filter(({ code }) => code !== 'USE_EXPORTS_OR_IMPORTS_BROWSER')).toEqual([])
  const analysis = await checkPackage(createPackageFromTarballData(new Uint8Array(readFileSync(tarball))))
  if (!analysis.types) throw new Error('the package has no types')
  // The profile `esm-only`: without CommonJS and Node 10 resolution.
  const isApplicable = (problem: Problem) =>
    !('resolutionKind' in problem) || !['node10', 'node16-cjs'].includes(problem.resolutionKind)
  expect(analysis.problems.filter(isApplicable)).toEqual([])
})

test.each(['nodenext', 'preserve'])('its types fit an application that resolves modules as %s', (module) => {
  typeCheck({ module, files: ['peers.ts', 'on-page.ts'], lib: ['es2022', 'dom', 'dom.iterable'] })
})

/** @throws an Error with the compiler's errors in these files */
function typeCheck({ module, files, lib }: { module: string; files: string[]; lib: string[] }): void {
  const strict = { strict: true, exactOptionalPropertyTypes: true, allowImportingTsExtensions: true }
  const compilerOptions = { module, ...strict, target: 'es2022', lib, types: [], noEmit: true }
  const path = join(folder, `tsconfig.${module}.json`)
  writeFileSync(path, JSON.stringify({ compilerOptions, files }))
  run([join(ROOT, 'node_modules/.bin/tsc'), '-p', path], folder)
}

test('every public function has an example that compiles', () => {
  const types = join(folder, 'node_modules/@sealpost/sdk/dist/types')
  const documented = documentedIn(readFileSync(join(types, 'all.d.ts'), 'utf8'))
  expect(documented.filter(({ example }) => example === null)).toEqual([])
  expect(documented.length).toBeGreaterThan(80)
  const entries = readdirSync(types).filter((name) => name !== 'all.d.ts')
  const texts = entries.map((name) => {
    return [specifierOf(name), readFileSync(join(types, name), 'utf8')] as const
  })
  writeFileSync(join(folder, 'examples.ts'), programOf(documented, new Map(texts)))
  typeCheck({ module: 'nodenext', files: ['examples.ts'], lib: ['esnext', 'dom', 'dom.iterable'] })
})

test('the API reference has a section for each entry, and each exported class with its base class', () => {
  const reference = referenceOf(join(folder, 'node_modules/@sealpost/sdk/dist/types'))
  const { exports } = JSON.parse(readFileSync(join(folder, 'node_modules/@sealpost/sdk/package.json'), 'utf8'))
  const headings = [...reference.matchAll(/^## (.+)/gm)].map(([, heading]) => heading)
  expect(headings.toSorted()).toEqual(
    Object.keys(exports)
      .map((entry) => `@sealpost/sdk${entry.slice(1)}`)
      .toSorted(),
  )
  for (const name of ['connect', 'Peer', 'poolsOf', 'Pool', 'MemberList'])
    expect(reference).toContain(`\n### ${name}\n`)
  expect(reference).not.toContain('Excluded')
})

test('its interface is the declared one', async () => {
  await expect(report).toMatchFileSnapshot(join(ROOT, 'packages/sdk/api.md'))
})

test('it names no registry, no workspace and no path of this machine', () => {
  const installed = join(folder, 'node_modules/@sealpost/sdk')
  const files = readdirSync(installed, { recursive: true, encoding: 'utf8' }).filter((path) => /\.\w+$/.test(path))
  const wrong = /workspace:|registry\.|from '@sealpost\/(?!sdk)|\.ts'/
  const isWrong = (path: string) => {
    const text = readFileSync(join(installed, path), 'utf8')
    return text.includes(ROOT) || (!path.endsWith('.map') && wrong.test(text))
  }
  expect(files.filter(isWrong)).toEqual([])
  expect(files.length).toBeGreaterThan(100)
})

test.skipIf(!isNode20)('a runtime without a WebSocket gets one clear error', () => {
  const program = `import { connect, generateIdentity, ready } from '@sealpost/sdk'
await ready()
const identity = generateIdentity()
await connect({ url: 'ws://127.0.0.1:9', brokerKey: 'ab'.repeat(32), meshId: 'ab'.repeat(16), identity }).catch(({ code, message }) => console.log(code, message))`
  const { stdout } = Bun.spawnSync([SYSTEM_NODE, '--input-type=module', '-e', program], { cwd: folder })
  expect(stdout.toString()).toBe(
    'websocket_missing This runtime has no WebSocket: use Node 22 or later, or pass a WebSocket class as `webSocket`.\n',
  )
})
