/** Reads and sets the version of the repository, and identifies the commit of a release. */
import { spawnSync } from 'node:child_process'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { ROOT } from '../packages/sdk.ts'
import { dateChanges } from './changelog.ts'

const CHANGELOG = join(ROOT, 'CHANGELOG.md')
/** The files that contain the version, besides the manifests. */
export const NAMING = globSync(
  ['docs/SDK.md', 'docs/deploy/{kubernetes/kustomization,helm/Chart}.yaml', 'docs/deploy/homebrew/*.rb'],
  { cwd: ROOT },
).map((path) => join(ROOT, path))
const LOCK = join(ROOT, 'bun.lock')

const manifests = (): string[] =>
  ['package.json', ...globSync('{apps,packages}/*/package.json', { cwd: ROOT })].map((path) => join(ROOT, path))

/** Returns the version that all packages share. @throws OperatingError `versions_differ` */
export function sharedVersion(): string {
  const versions = new Set(manifests().map((path) => JSON.parse(readFileSync(path, 'utf8')).version as string))
  const [version, ...others] = versions
  if (version !== undefined && others.length === 0) return version
  throw new OperatingError('versions_differ', `The packages have different versions: ${[...versions].join(', ')}.`)
}

export const readChangelog = (): string => readFileSync(CHANGELOG, 'utf8')

const VERSION = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?$/

/**
 * Sets the version of all packages and dates the changelog section. `date` has the form `2026-01-31`.
 * @throws OperatingError `version_malformed`, `version_not_newer`, `changelog_missing`
 */
export function prepareVersion(version: string, date: string): void {
  const former = sharedVersion()
  if (!VERSION.test(version))
    throw new OperatingError('version_malformed', 'The version must be like 1.2.3 or 1.2.3-rc.1.')
  if (Bun.semver.order(version, former) < 0)
    throw new OperatingError('version_not_newer', `The version must not be older than ${former}.`)
  const changelog = dateChanges(readChangelog(), { version, date })
  for (const path of [...manifests(), LOCK]) edit(path, (text) => withVersion(text, { former, version }))
  for (const path of NAMING) edit(path, (text) => text.replaceAll(former, version))
  writeFileSync(CHANGELOG, changelog)
}

/** Only workspaces of a lock file have a line like this. */
const withVersion = (text: string, { former, version }: { former: string; version: string }): string =>
  text.replaceAll(`"version": "${former}",`, `"version": "${version}",`)

const edit = (path: string, change: (text: string) => string): void =>
  writeFileSync(path, change(readFileSync(path, 'utf8')))

export interface Commit {
  readonly id: string
  /** Whether the working tree has changes that are not in the commit. */
  readonly isChanged: boolean
}

/** @throws OperatingError `repository_missing` */
export function currentCommit(): Commit {
  return { id: git('rev-parse', 'HEAD'), isChanged: git('status', '--porcelain') !== '' }
}

/** Returns the commit of the version's tag, or null if the version has no tag. */
export function commitOf(version: string): string | null {
  const format = '%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)' // a signed tag is an object, too
  return git('for-each-ref', `--format=${format}`, `refs/tags/v${version}`) || null
}

/** @throws OperatingError `version_released` if the version's tag names another commit */
export function checkUnreleased(version: string, { id }: Commit): void {
  if ([null, id].includes(commitOf(version))) return
  throw new OperatingError('version_released', `The tag v${version} names another commit: set the next version first.`)
}

function git(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' })
  if (status === 0) return stdout.trim()
  throw new OperatingError(
    'repository_missing',
    `Git does not find the commit of this folder: ${(stderr ?? '').trim()}`,
  )
}
