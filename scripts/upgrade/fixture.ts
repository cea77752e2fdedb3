/**
 * Fixtures are the packed artefacts of earlier versions, with which each later version must work: the SDK as npm
 * publishes it, and a package of the program `sealpost` (CLI and broker) as one JavaScript file, its migrations, and the
 * test programs of its SDK. docs/RELEASING.md describes when to cut one.
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PROTOCOL_VERSIONS } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import manifest from '../../package.json'
import { packSdk, ROOT } from '../packages/sdk.ts'
import { installSdk, transpile, unpack } from '../packages/test/install.ts'
import { packFolder } from '../run.ts'

const FIXTURES = join(import.meta.dirname, 'fixtures')
const MIGRATIONS = join(ROOT, 'packages/schema/migrations')
/** The programs that test an SDK. They import one another from the same folder. */
const CLIENTS = ['packages/test/peers.ts', 'packages/test/on-server.ts', 'upgrade/traffic.ts']

/** The contents of `fixture.json`. */
export interface Fixture {
  readonly number: number
  readonly version: string
  /** The protocol versions that its broker offers. */
  readonly protocol: readonly number[]
}

/** The commands of one version. */
export interface Version {
  readonly name: string
  /** Runs the CLI, or the broker if the first argument is `broker`. */
  readonly sealpost: readonly string[]
  /** Runs `scripts/packages/test/on-server.ts` with the SDK of the version. */
  readonly sdkTests: readonly string[]
  /** Runs `traffic.ts` with the SDK of the version. */
  readonly traffic: readonly string[]
}

/** The version of this repository, from its sources. */
export const CURRENT: Version = {
  name: 'the current version',
  sealpost: [process.execPath, join(ROOT, 'scripts/binary/main.ts')],
  sdkTests: [process.execPath, join(ROOT, 'scripts/packages/test/on-server.ts')],
  traffic: [process.execPath, join(ROOT, 'scripts/upgrade/traffic.ts')],
}

export function allFixtures(): Fixture[] {
  const read = (name: string) => JSON.parse(readFileSync(join(FIXTURES, name, 'fixture.json'), 'utf8')) as Fixture
  return readdirSync(FIXTURES)
    .map(read)
    .sort((a, b) => a.number - b.number)
}

/** Unpacks a fixture into an empty folder. */
export function openFixture({ number, version }: Fixture, folder: string): Version {
  const packed = join(FIXTURES, String(number))
  installSdk(join(packed, 'sdk.tgz'), folder)
  unpack(join(packed, 'programs.tgz'), join(folder, 'programs'))
  const client = (name: string) => [process.execPath, join(folder, 'programs/clients', name)]
  return {
    name: `fixture ${number} (${version})`,
    sealpost: programIn(join(folder, 'programs')),
    sdkTests: client('on-server.js'),
    traffic: client('traffic.js'),
  }
}

const programIn = (folder: string): readonly string[] => [process.execPath, join(folder, 'program/sealpost.js')]

/**
 * Bundles the program `sealpost` of this repository into `folder` with its migrations, which it finds beside its own
 * folder. Returns the command. @throws OperatingError `build_failed`
 */
export async function bundleProgram(folder: string): Promise<readonly string[]> {
  const built = await Bun.build({
    entrypoints: [join(ROOT, 'scripts/binary/main.ts')],
    target: 'bun',
    minify: true,
    // The broker would otherwise restart itself from its source file.
    define: { 'process.execve': 'undefined' },
  })
  if (!built.success) throw new OperatingError('build_failed', `The bundle could not be built: ${built.logs.join(' ')}`)
  mkdirSync(join(folder, 'program'), { recursive: true })
  const code = await built.outputs[0]!.text()
  writeFileSync(join(folder, 'program/sealpost.js'), code.replaceAll(ROOT, '/sealpost')) // folders of CommonJS modules
  cpSync(MIGRATIONS, join(folder, 'migrations'), { recursive: true })
  return programIn(folder)
}

/** Replaces the fixture with the packed artefacts of this repository. Returns its folder. */
export async function cutFixture(number: number): Promise<string> {
  const target = join(FIXTURES, String(number))
  const stage = mkdtempSync(join(tmpdir(), 'sealpost-fixture-'))
  try {
    rmSync(target, { recursive: true, force: true })
    mkdirSync(target, { recursive: true })
    cpSync(packSdk(stage).tarball, join(target, 'sdk.tgz'))
    cpSync(await packPrograms(join(stage, 'programs')), join(target, 'programs.tgz'))
    const fixture: Fixture = { number, version: manifest.version, protocol: PROTOCOL_VERSIONS }
    writeFileSync(join(target, 'fixture.json'), `${JSON.stringify(fixture)}\n`)
    return target
  } finally {
    rmSync(stage, { recursive: true, force: true })
  }
}

async function packPrograms(folder: string): Promise<string> {
  await bundleProgram(folder)
  mkdirSync(join(folder, 'clients'))
  transpile(
    CLIENTS.map((path) => join(ROOT, 'scripts', path)),
    join(folder, 'clients'),
  )
  const { version } = manifest
  const packed = { name: 'sealpost-fixture', version, type: 'module', files: ['program', 'migrations', 'clients'] }
  writeFileSync(join(folder, 'package.json'), JSON.stringify(packed))
  packFolder(folder, folder)
  return join(folder, `sealpost-fixture-${version}.tgz`)
}
