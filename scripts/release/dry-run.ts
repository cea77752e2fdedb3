/** Builds a release, tests and describes its files, and publishes nothing. */
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { binaryName, buildBinary, ownPlatform, type Platform, platforms } from '../binary/build.ts'
import { formulaOf } from '../deploy/formula.ts'
import { packCli } from '../packages/cli.ts'
import { packSdk, ROOT } from '../packages/sdk.ts'
import { run } from '../run.ts'
import { changesOf } from './changelog.ts'
import { checkUnreleased, currentCommit, readChangelog, sharedVersion } from './repository.ts'
import { type Build, checksumsOf, provenanceOf, sha256Of } from './statement.ts'

export interface DryRunOptions {
  /** Default: all platforms. */
  readonly platform?: readonly Platform[]
  readonly out: string
  /** A folder with built binaries. */
  readonly built?: string
  readonly tests: boolean
  readonly allowChanges?: boolean
  readonly source?: string
  readonly builder: string
}

const CHECKSUMS = 'SHA256SUMS'
const PROVENANCE = 'provenance.intoto.json'
const LOCKS = ['bun.lock', 'scripts/binary/runtimes/bun.lock']
/** npm warns about this in a dry run. */
const EXPECTED = /requires you to be logged in/

/**
 * Returns the folder of the release. It replaces the folder only if everything succeeds.
 * @throws OperatingError `repository_missing`, `tree_changed`, `versions_differ`, `version_released`,
 *   `changelog_missing`, `folder_not_empty`, `binary_missing`, `build_failed`, `publication_refused`, `tests_failed`
 */
export async function dryRun(options: DryRunOptions, teardown: Teardown): Promise<string> {
  const startedAt = new Date()
  const out = resolve(options.out)
  checkReplaceable(out)
  const built = options.platform ?? platforms
  checkBinaries(options, built)
  const commit = currentCommit()
  if (commit.isChanged && !options.allowChanges)
    throw new OperatingError('tree_changed', 'The working tree has changes: commit them first, or add --allow-changes to try the command.') // biome-ignore format: one thing
  const version = sharedVersion()
  checkUnreleased(version, commit)
  const changes = changesOf(readChangelog(), version)

  const stage = `${out}.partial`
  rmSync(stage, { recursive: true, force: true })
  mkdirSync(stage, { recursive: true })
  teardown.add({ end: async () => rmSync(stage, { recursive: true, force: true }) })
  const tarballs = await buildArtefacts(stage, { platforms: built, from: options.built })
  for (const tarball of tarballs) checkPublication(tarball, version)
  if (options.tests) await testArtefacts(stage)
  const { source, builder } = options
  await describeRelease(stage, {
    version,
    changes,
    platforms: built,
    commit,
    builder,
    startedAt,
    ...(source && { source }),
  })
  rmSync(out, { recursive: true, force: true })
  renameSync(stage, out)
  return out
}

/** @throws OperatingError `folder_not_empty` if the folder has other contents than a release */
function checkReplaceable(folder: string): void {
  if (!existsSync(folder) || readdirSync(folder).length === 0 || existsSync(join(folder, CHECKSUMS))) return
  throw new OperatingError('folder_not_empty', `${folder} contains other files: choose a new folder.`)
}

/** @throws OperatingError `binary_missing` if a binary is not in the given folder, or the tests lack their binary */
function checkBinaries({ built, tests }: DryRunOptions, names: readonly Platform[]): void {
  const missing = built === undefined ? undefined : names.find((name) => !existsSync(join(built, binaryName(name))))
  if (missing) throw new OperatingError('binary_missing', `${built} does not contain ${binaryName(missing)}.`)
  if (!tests || names.includes(ownPlatform())) return
  throw new OperatingError('binary_missing', `The tests need the binary of this machine: add --platform ${ownPlatform()} or --no-tests.`) // biome-ignore format: one thing
}

interface Contents {
  readonly platforms: readonly Platform[]
  /** A folder with built binaries. */
  readonly from: string | undefined
}

/** Writes the binaries and npm packages. Returns the paths of the packages in the order of their publication. */
async function buildArtefacts(folder: string, { platforms, from }: Contents): Promise<string[]> {
  for (const platform of platforms) {
    const name = binaryName(platform)
    if (from !== undefined) copyFileSync(join(from, name), join(folder, name))
    else await buildBinary({ platform, outfile: join(folder, name), level: 19 })
  }
  const { tarball } = packSdk(folder)
  rmSync(join(folder, 'sdk'), { recursive: true })
  return [tarball, ...packCli(folder, platforms)]
}

/** @throws OperatingError `publication_refused` if npm reports an error or a warning */
function checkPublication(tarball: string, version: string): void {
  const tag = version.includes('-') ? 'next' : 'latest' // npm requires a tag for a version like 1.0.0-rc.1
  const args = ['publish', '--dry-run', '--tag', tag, tarball]
  const { status, stderr, error } = spawnSync('npm', args, { encoding: 'utf8' })
  const complaints = (stderr ?? '')
    .split('\n')
    .filter((line) => /^npm (?:warn|error)/i.test(line) && !EXPECTED.test(line))
  if (status === 0 && complaints.length === 0) return
  const reason = error ? error.message : complaints.join(' ')
  throw new OperatingError('publication_refused', `npm would not publish ${basename(tarball)}: ${reason}`)
}

/** Runs the tests of the packed files on the files of this release. @throws OperatingError `tests_failed` */
async function testArtefacts(folder: string): Promise<void> {
  const files = ['scripts/packages', 'scripts/binary.e2e.test.ts']
  const child = Bun.spawn([process.execPath, '--bun', 'run', 'vitest', 'run', '--project', 'services', ...files], {
    cwd: ROOT,
    env: { ...process.env, RELEASE_FOLDER: folder },
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  if ((await child.exited) !== 0) throw new OperatingError('tests_failed', 'The packed files failed their tests.')
}

/** Writes the files that describe a release beside its artefacts. */
async function describeRelease(
  folder: string,
  { changes, ...build }: { changes: string } & Omit<Build, 'finishedAt' | 'artefacts' | 'byproducts' | 'materials'>,
): Promise<void> {
  const write = (name: string, text: string) => writeFileSync(join(folder, name), text)
  const digest = (names: readonly string[], base = folder) =>
    Promise.all(names.map(async (name) => ({ name, sha256: await sha256Of(join(base, name)) })))
  const artefacts = await digest(readdirSync(folder).sort())
  const texts: Record<string, string> = {
    'CHANGES.md': `${changes}\n`,
    VERSION: `${build.version}\n`,
    'sbom.cdx.json': run([process.execPath, join(ROOT, 'scripts/sbom.ts')], ROOT),
    ...(platforms.every((name) => build.platforms.includes(name)) && {
      'sealpost.rb': formulaOf(build.version, (name) => artefacts.find((file) => file.name === name)!.sha256),
    }),
  }
  for (const [name, text] of Object.entries(texts)) write(name, text)
  const byproducts = await digest(Object.keys(texts))
  const runtime = { name: `bun-${Bun.version}-${ownPlatform()}`, sha256: await sha256Of(process.execPath) }
  const materials = [...(await digest(LOCKS, ROOT)), runtime]
  const provenance = provenanceOf({ ...build, finishedAt: new Date(), artefacts, byproducts, materials })
  write(PROVENANCE, `${JSON.stringify(provenance, null, 2)}\n`)
  write(CHECKSUMS, checksumsOf([...artefacts, ...byproducts, ...(await digest([PROVENANCE]))]))
}
