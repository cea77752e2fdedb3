/**
 * Builds `@sealpost/sdk` as one package of ES modules and declarations, with a file per source file, so that bundlers
 * drop unused code. It contains the workspace packages that it imports.
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { packFolder, run } from '../run.ts'
import { type Interface, rollUp } from './types.ts'

export const ROOT = join(import.meta.dirname, '../..')
const PACKAGES = join(ROOT, 'packages')
const SDK = join(PACKAGES, 'sdk')
/** Workspace packages that become folders of the package. */
const PARTS = ['identity', 'protocol', 'std']
/** Unpublished entries, which may change at any time. */
const UNPUBLISHED = ['./backoff', './engine', './prekeys', './testing', './testing-attachments', './testing-hostile']

interface Manifest {
  readonly version: string
  readonly exports: Readonly<Record<string, string>>
  readonly dependencies: Readonly<Record<string, string>>
  readonly browser?: Readonly<Record<string, string>>
}

/** Returns the published entries and their source files. */
export function publishedEntries(): readonly (readonly [entry: string, source: string])[] {
  return Object.entries(manifestOf('sdk').exports).filter(([entry]) => !UNPUBLISHED.includes(entry))
}

/**
 * Builds the package into `folder`. Returns the interface report. `model`: the path of the documentation model.
 * @throws OperatingError `build_failed`
 */
export function buildSdk(folder: string, model?: string): string {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(publishedManifest(), null, 2)}\n`)
  cpSync(join(SDK, 'README.md'), join(folder, 'README.md'))
  cpSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'))
  const emitted = mkdtempSync(join(tmpdir(), 'sealpost-sdk-'))
  try {
    emit(emitted)
    const declared = join(emitted, 'declared')
    const compiled = { emitted, sources: sourcesOfParts() }
    for (const path of readdirSync(emitted, { recursive: true, encoding: 'utf8' })) {
      if (/\.js(?:\.map)?$/.test(path)) publish(path, { ...compiled, folder })
      else if (path.endsWith('.ts')) publish(path, { ...compiled, folder: declared })
    }
    const entries = publishedEntries().map(
      ([entry, source]) => [entry, asDeclaration(placeOf(join('sdk', source)))] as const,
    )
    const its = rollUp({ folder: declared, entries, manifest: join(folder, 'package.json') })
    writeTypes(join(folder, TYPES), its)
    if (model) cpSync(its.model, model)
    return its.report
  } finally {
    rmSync(emitted, { recursive: true, force: true })
  }
}

const TYPES = 'dist/types'

function writeTypes(folder: string, { declarations, entries }: Interface): void {
  mkdirSync(folder)
  // provides `Symbol.asyncDispose`, which an application's `lib` may lack
  writeFileSync(join(folder, 'all.d.ts'), `/// <reference lib="esnext.disposable" />\n${declarations}`)
  for (const [entry, text] of entries) writeFileSync(join(folder, `${nameOf(entry)}.d.ts`), text)
}

/** Returns an entry's file name: `key-file` for `./key-file`, `index` for `.`. */
const nameOf = (entry: string): string => (entry === '.' ? 'index' : entry.slice(2))

/** Builds and packs the package. Returns the tarball and the interface report. */
export function packSdk(destination: string): { readonly tarball: string; readonly report: string } {
  const folder = join(destination, 'sdk')
  const report = buildSdk(folder)
  packFolder(folder, destination)
  return { tarball: join(destination, `sealpost-sdk-${manifestOf('sdk').version}.tgz`), report }
}

function manifestOf(name: string): Manifest {
  return JSON.parse(readFileSync(join(PACKAGES, name, 'package.json'), 'utf8')) as Manifest
}

/** Maps specifiers, such as `@sealpost/identity/key-file`, to source files. */
function sourcesOfParts(): ReadonlyMap<string, string> {
  const pairs = PARTS.flatMap((part) =>
    Object.entries(manifestOf(part).exports).map(
      ([entry, source]) => [`@sealpost/${part}${entry.slice(1)}`, join(part, source)] as const,
    ),
  )
  return new Map(pairs)
}

function emit(outDir: string): void {
  const config = join(outDir, 'tsconfig.json')
  const paths = [...sourcesOfParts()].map(([specifier, source]) => [specifier, [join(PACKAGES, source)]])
  const compilerOptions = {
    target: 'ES2022',
    lib: ['ESNext', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable'],
    types: ['bun'],
    typeRoots: [join(ROOT, 'node_modules/@types')],
    paths: Object.fromEntries(paths),
    rootDir: PACKAGES,
    outDir,
    noEmit: false,
    declaration: true,
    sourceMap: true,
    inlineSources: true,
    rewriteRelativeImportExtensions: true,
  }
  const files = [...publishedEntries().map(([, source]) => join(SDK, source)), ...replacements().flat()]
  writeFileSync(config, JSON.stringify({ extends: join(ROOT, 'tsconfig.base.json'), compilerOptions, files }))
  run([join(ROOT, 'node_modules/.bin/tsc'), '-p', config], outDir)
}

/** Returns the source files that bundlers for browsers replace, each with its replacement. */
function replacements(): readonly (readonly [file: string, byFile: string])[] {
  return PARTS.flatMap((part) =>
    Object.entries(manifestOf(part).browser ?? {}).map(
      ([file, byFile]) => [join(PACKAGES, part, file), join(PACKAGES, part, byFile)] as const,
    ),
  )
}

interface Publication {
  /** The folder of the compiler's output. */
  readonly emitted: string
  readonly sources: ReadonlyMap<string, string>
  /** The folder of the package, or of its declarations. */
  readonly folder: string
}

/** Copies an emitted file, with the package's specifiers. */
function publish(path: string, { emitted, sources, folder }: Publication): void {
  const target = join(folder, placeOf(path))
  const text = readFileSync(join(emitted, path), 'utf8')
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, path.endsWith('.map') ? withOwnSource(text) : withOwnSpecifiers(text, path, sources))
}

const placeOf = (path: string): string => join('dist', path.replace(/^(\w+)\/src\//, '$1/'))

/** The map contains the source, so its name need not be the building machine's path. */
function withOwnSource(text: string): string {
  const map = JSON.parse(text) as { sources: string[] }
  return JSON.stringify({ ...map, sources: map.sources.map((source) => basename(source)) })
}

const SPECIFIER = /(\bfrom |\bimport\(|^import )(['"])([^'"\n]+)\2/gm

function withOwnSpecifiers(text: string, path: string, sources: ReadonlyMap<string, string>): string {
  return text.replace(SPECIFIER, (whole, before: string, quote: string, specifier: string) => {
    const source = sources.get(specifier)
    const own = source ? relativeTo(placeOf(path), placeOf(source)) : specifier
    return own.startsWith('.') ? `${before}${quote}${asModule(own)}${quote}` : whole
  })
}

function relativeTo(from: string, to: string): string {
  const path = relative(dirname(from), to)
  return path.startsWith('.') ? path : `./${path}`
}

const asModule = (path: string): string => path.replace(/\.ts$/, '.js')
const asDeclaration = (path: string): string => path.replace(/\.ts$/, '.d.ts')

function publishedManifest(): object {
  const { version } = manifestOf('sdk')
  const entries = publishedEntries().map(([entry, source]) => {
    const types = `./${TYPES}/${nameOf(entry)}.d.ts`
    return [entry, { types, default: `./${asModule(placeOf(join('sdk', source)))}` }]
  })
  const published = (source: string) => `./${asModule(placeOf(relative(PACKAGES, source)))}`
  const dependencies = PARTS.flatMap((part) => Object.entries(manifestOf(part).dependencies))
  return {
    name: '@sealpost/sdk',
    version,
    description: 'A peer of a Sealpost mesh: durable, end-to-end encrypted messages for browsers, Node, Bun and Deno',
    keywords: ['sealpost', 'messaging', 'end-to-end-encryption', 'queue', 'websocket'],
    license: 'MIT',
    type: 'module',
    sideEffects: false,
    engines: { node: '>=20' },
    exports: Object.fromEntries(entries),
    browser: Object.fromEntries(replacements().map((pair) => pair.map(published))),
    files: ['dist'],
    publishConfig: { access: 'public' },
    dependencies: Object.fromEntries(dependencies.filter(([name]) => !name.startsWith('@sealpost/'))),
  }
}
