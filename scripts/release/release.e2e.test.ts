/** Tests the command that builds a release, with the binary of the other tests. */
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { binaryName, ownPlatform } from '../binary/build.ts'
import { ROOT } from '../packages/sdk.ts'
import { testBinary } from '../test/binary.ts'
import { sharedVersion } from './repository.ts'

const PATH = '/usr/local/bin:/usr/bin:/bin' // `node` on the PATH of the test may be Bun, which does not run npm

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sealpost release '))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const execute = (program: string, args: readonly string[], cwd = folder) =>
  spawnSync(program, args, { cwd, env: { PATH, HOME: folder, TMPDIR: folder }, encoding: 'utf8' })
const release = (...args: string[]) => execute(process.execPath, [join(ROOT, 'scripts/release.ts'), ...args])

test('a release contains the binary, the packages, and files that describe them', async ({ skip }) => {
  skip(Bun.which('npm', { PATH }) === null, 'npm is not installed')
  skip(execute('git', ['rev-parse', 'HEAD'], ROOT).status !== 0, 'Git does not find the commit')
  const [built, out] = [join(folder, 'built'), join(folder, 'release')]
  mkdirSync(built)
  copyFileSync(await testBinary(), join(built, binaryName(ownPlatform())))
  const args = ['--platform', ownPlatform(), '--built', built, '--out', out, '--no-tests', '--allow-changes']
  expect(release('--dry-run', ...args)).toMatchObject({ stderr: '', status: 0 })

  const version = sharedVersion()
  const packages = [`cli-${ownPlatform()}-`, 'sdk-', ''].map((name) => `sealpost-${name}${version}.tgz`)
  const artefacts = [binaryName(ownPlatform()), ...packages].sort()
  const described = ['CHANGES.md', 'SHA256SUMS', 'VERSION', 'provenance.intoto.json', 'sbom.cdx.json']
  expect(readdirSync(out).sort()).toEqual([...artefacts, ...described].sort())
  expect(execute('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], out)).toMatchObject({ status: 0 })
  const { subject } = JSON.parse(readFileSync(join(out, 'provenance.intoto.json'), 'utf8'))
  expect(subject.map(({ name }: { name: string }) => name)).toEqual(artefacts)
  expect(existsSync(`${out}.partial`)).toBe(false)
})

test.each([
  [[], 'nothing_published: This command publishes nothing: add --dry-run,'],
  [['--prepare', '1.0'], 'version_malformed: '],
  [['--prepare', '0.0.1'], 'version_not_newer: '],
  [['--dry-run', '--allow-changes', '--out', ROOT], 'folder_not_empty: '],
  [['--dry-run', '--allow-changes', '--built', ROOT], 'binary_missing: '],
])('with the arguments %j it fails with one sentence', (args, sentence) => {
  const { status, stdout, stderr } = release(...args)
  expect({ status, stdout, lines: stderr.split('\n').length }).toEqual({ status: 1, stdout: '', lines: 2 })
  expect(stderr.slice(0, sentence.length)).toBe(sentence)
})
