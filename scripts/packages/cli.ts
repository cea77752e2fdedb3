/**
 * Builds the npm packages of `sealpost`: one per platform with the compiled program, and `sealpost`, whose launcher
 * runs it. None has an install script.
 */
import { copyFileSync, linkSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import manifest from '../../package.json'
import { binaryName, type Platform } from '../binary/build.ts'
import { packFolder } from '../run.ts'
import { ROOT } from './sdk.ts'

const { version } = manifest
const SHARED = { version, license: 'MIT', type: 'commonjs', publishConfig: { access: 'public' } }

/**
 * Packs `sealpost` and the package of each platform, whose binary must be in `destination`. Returns the tarballs,
 * `sealpost` last, in the order of publication.
 */
export function packCli(destination: string, platforms: readonly Platform[]): string[] {
  return [...platforms.map((platform) => packPlatform(destination, platform)), packLauncher(destination, platforms)]
}

const packageOf = (platform: Platform): string => `@sealpost/cli-${platform}`

function packPlatform(destination: string, platform: Platform): string {
  const [os, cpu] = platform.split('-') as [string, string]
  const program = os === 'win32' ? 'sealpost.exe' : 'sealpost'
  const binary = join(destination, binaryName(platform))
  const contents = {
    name: packageOf(platform),
    ...SHARED,
    description: `The program of the package sealpost for ${platform}`,
    os: [os],
    cpu: [cpu],
    ...(os === 'linux' ? { libc: ['glibc'] } : {}),
    preferUnplugged: true, // Yarn must unpack the program to run it
    files: [program],
    sealpost: { program, bytes: statSync(binary).size },
  }
  const readme = `# ${contents.name}\n\n${contents.description}, which installs this package.\n`
  return pack(destination, contents, (folder) => {
    linkSync(binary, join(folder, program))
    writeFileSync(join(folder, 'README.md'), readme)
  })
}

function packLauncher(destination: string, platforms: readonly Platform[]): string {
  const contents = {
    name: 'sealpost',
    ...SHARED,
    description: manifest.description,
    keywords: ['sealpost', 'messaging', 'message-broker', 'end-to-end-encryption', 'postgres', 'agents'],
    engines: { node: '>=18' },
    bin: { sealpost: 'sealpost.cjs' },
    files: ['sealpost.cjs'],
    optionalDependencies: Object.fromEntries(platforms.map((platform) => [packageOf(platform), version])),
  }
  return pack(destination, contents, (folder) => {
    copyFileSync(join(import.meta.dirname, 'launcher.cjs'), join(folder, 'sealpost.cjs'))
    copyFileSync(join(import.meta.dirname, 'cli.md'), join(folder, 'README.md'))
  })
}

/** Packs a folder with manifest, license and what `fill` writes. Returns the tarball. */
function pack(destination: string, contents: { readonly name: string }, fill: (folder: string) => void): string {
  const base = contents.name.replace('@', '').replace('/', '-')
  const folder = join(destination, `${base}.new`)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder)
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(contents, null, 2)}\n`)
  copyFileSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'))
  fill(folder)
  // Level 9 takes 14 s instead of 3 s and saves 2 %.
  packFolder(folder, destination, 6)
  rmSync(folder, { recursive: true })
  return join(destination, `${base}-${version}.tgz`)
}
