import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT } from '../packages/sdk.ts'
import { allFixtures } from '../upgrade/fixture.ts'
import { changesOf, dateChanges } from './changelog.ts'
import { NAMING, sharedVersion } from './repository.ts'
import { type Build, checksumsOf, provenanceOf, sha256Of } from './statement.ts'

const CHANGELOG = `# Changelog

## Unreleased

### Broker

- It is faster.

## 0.2.0 - 2026-01-31

- It works.

## 0.1.0 - 2026-01-01
`

test('a version has its own section, and a later one has the unreleased section', () => {
  expect(changesOf(CHANGELOG, '0.2.0')).toBe('- It works.')
  expect(changesOf(CHANGELOG, '0.3.0')).toBe('### Broker\n\n- It is faster.')
})

test('a version without changes is refused', () => {
  const dated = dateChanges(CHANGELOG, { version: '0.3.0', date: '2026-02-28' })
  expect(() => changesOf(dated, '0.4.0')).toThrow('CHANGELOG.md describes no changes for 0.4.0.')
  expect(() => dateChanges(dated, { version: '0.4.0', date: '2026-03-31' })).toThrow(
    expect.objectContaining({ code: 'changelog_missing' }),
  )
  expect(() => changesOf('# Changelog\n', '0.1.0')).toThrow('describes no changes')
})

test('dating moves the unreleased changes below the version', () => {
  const dated = dateChanges(CHANGELOG, { version: '0.3.0', date: '2026-02-28' })
  expect(dated).toContain('## Unreleased\n\n## 0.3.0 - 2026-02-28\n\n### Broker\n')
  expect(changesOf(dated, '0.3.0')).toBe(changesOf(CHANGELOG, '0.3.0'))
})

test('all packages and the pages that name a version have the same one', () => {
  const version = sharedVersion()
  expect(NAMING.filter((path) => !readFileSync(path, 'utf8').includes(version))).toEqual([])
  expect(readFileSync(join(ROOT, 'bun.lock'), 'utf8')).toContain(`"version": "${version}",`)
})

test('checksums are those of the files, in the form of sha256sum', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-release-'))
  writeFileSync(join(folder, 'a'), 'abc')
  const sha256 = await sha256Of(join(folder, 'a'))
  rmSync(folder, { recursive: true })
  expect(checksumsOf([{ name: 'a', sha256 }])).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n',
  )
})

const at = (second: number) => new Date(Date.UTC(2026, 0, 31, 12, 0, second))
const BUILD: Build = {
  version: '0.2.0',
  platforms: ['linux-x64'],
  commit: { id: '12'.repeat(20), isChanged: false },
  source: 'git+https://code.example/sealpost',
  builder: 'https://ci.example/runner',
  startedAt: at(0),
  finishedAt: at(5),
  artefacts: [{ name: 'sealpost-0.2.0.tgz', sha256: 'aa'.repeat(32) }],
  byproducts: [{ name: 'sbom.cdx.json', sha256: 'bb'.repeat(32) }],
  materials: [{ name: 'bun.lock', sha256: 'cc'.repeat(32) }],
}

test('the provenance names the commit, the builder, the materials and the artefacts', () => {
  const { predicate, ...statement } = provenanceOf(BUILD)
  expect(statement).toEqual({
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: 'sealpost-0.2.0.tgz', digest: { sha256: 'aa'.repeat(32) } }],
    predicateType: 'https://slsa.dev/provenance/v1',
  })
  const { buildDefinition, runDetails } = predicate
  expect(buildDefinition.externalParameters).toEqual({ version: '0.2.0', platforms: ['linux-x64'] })
  expect(buildDefinition.resolvedDependencies).toEqual([
    { name: 'source', uri: BUILD.source, digest: { gitCommit: BUILD.commit.id } },
    { name: 'bun.lock', digest: { sha256: 'cc'.repeat(32) } },
  ])
  expect(runDetails).toEqual({
    builder: { id: BUILD.builder },
    metadata: { startedOn: '2026-01-31T12:00:00.000Z', finishedOn: '2026-01-31T12:00:05.000Z' },
    byproducts: [{ name: 'sbom.cdx.json', digest: { sha256: 'bb'.repeat(32) } }],
  })
})

test('the provenance records uncommitted changes', () => {
  const { predicate } = provenanceOf({ ...BUILD, commit: { ...BUILD.commit, isChanged: true } })
  expect(predicate.buildDefinition.resolvedDependencies[0]).toMatchObject({ annotations: { uncommittedChanges: true } })
})

test('the table of docs/OPERATIONS.md lists every fixture', () => {
  const page = readFileSync(join(ROOT, 'docs/OPERATIONS.md'), 'utf8')
  const rows = [...page.matchAll(/^\| (\d+\.\d+\.\d+) \| (\d+) \| ([\d, ]+) \|/gm)].map(
    ([, version, number, protocol]) => ({
      number: Number(number),
      version,
      protocol: protocol!.split(', ').map(Number),
    }),
  )
  expect(rows).toEqual(allFixtures())
  expect(rows.length).toBeGreaterThan(0)
})
