/** Checks that no two product files export a class, an interface or a type with the same name. */
import { describe, expect, test } from 'vitest'
import type { SourceFile } from './check.ts'
import { codeOnly, lineAt } from './scan.ts'
import { readSources } from './sources.ts'

/** Type names that several files may export. */
const KNOWN: ReadonlySet<string> = new Set(['Member'])

/** Matches test support and test vectors, which are exempt. */
const NO_PRODUCT = /\.(test|bench)\.tsx?$|\.d\.ts$|\/(test|vectors)\/|\/(testing|conformance)[^/]*$/
const DECLARATION = /^export (?:default )?(?:declare )?(?:abstract )?(?:class|interface|type|enum) (\w+)/gm

describe('exported classes, interfaces and types', () => {
  const homonyms = homonymsOf(readSources().filter(({ path }) => /^(apps|packages)\//.test(path)))

  test('have unique names, except for the known homonyms', () => {
    expect(homonyms.filter(({ name }) => !KNOWN.has(name))).toEqual([])
  })
})

describe('a homonym', () => {
  test('is reported with the places of its declarations', () => {
    const files = [
      { path: 'packages/a/src/a.ts', source: '\nexport interface Lane {}' },
      { path: 'apps/b/src/b.ts', source: '// Text.\n\nexport abstract class Lane {}' },
    ]
    const places = ['packages/a/src/a.ts:2', 'apps/b/src/b.ts:3']
    expect(homonymsOf(files)).toEqual([{ name: 'Lane', places }])
  })

  test.each([
    ['a re-export', 'packages/a/src/index.ts', "export type { Lane } from './lane.ts'"],
    ['one of its file only', 'packages/a/src/other.ts', 'interface Lane {}'],
    ['one of a test', 'packages/a/src/other.test.ts', 'export interface Lane {}'],
    ['one of test support', 'packages/a/src/test/world.ts', 'export interface Lane {}'],
    ['one in a comment', 'packages/a/src/other.ts', '/*\nexport interface Lane {}\n*/'],
  ])('is not %s', (_, path, source) => {
    expect(
      homonymsOf([
        { path: 'packages/a/src/lane.ts', source: 'export type Lane = string' },
        { path, source },
      ]),
    ).toEqual([])
  })
})

interface Homonym {
  readonly name: string
  readonly places: readonly string[]
}

function homonymsOf(files: readonly SourceFile[]): readonly Homonym[] {
  const places = new Map<string, string[]>()
  for (const { path, source } of files) {
    if (NO_PRODUCT.test(path)) continue
    const code = codeOnly(source)
    for (const { 1: name, index } of code.matchAll(DECLARATION))
      places.set(name!, [...(places.get(name!) ?? []), `${path}:${lineAt(code, index)}`])
  }
  return [...places].flatMap(([name, its]) => (its.length > 1 ? [{ name, places: its }] : []))
}
