/**
 * Applies the tables of `rules.ts` to a list of files. The check is a pure function, so that a test can break each
 * rule.
 *
 * Unit tests follow `DIRECTIONS` but may use every API and development tool. Tests that combine components
 * (`.pg.test.ts`, `.e2e.test.ts`) may import any declared package. Nothing imports an app.
 */
import { posix } from 'node:path'
import {
  ANY_PLATFORM,
  CLOSED_ENTRIES,
  DIRECTIONS,
  GIVEN_BY_TOOLS,
  LIBRARY_HOMES,
  LINES_MAX,
  OPEN_ENTRIES,
  SERVER_FOLDERS,
  TOOL_FILES,
  USED_UNIMPORTED,
  WORD_RULES,
  type WordRule,
} from './rules.ts'
import { codeOnly, importsOf, lineAt } from './scan.ts'

export interface SourceFile {
  /** The path relative to the root, with forward slashes. */
  path: string
  source: string
}

export interface Manifest {
  /** The path relative to the root; '' for the root. */
  folder: string
  name: string
  dependencies: readonly string[]
  devDependencies: readonly string[]
}

export interface Findings {
  /** A sentence per violation, with its location. */
  violations: string[]
  /** The number of imports, which shows that files were found. */
  importsSeen: number
  /** The number of product files per workspace folder. */
  sourcesSeen: Readonly<Record<string, number>>
}

export function checkRepository(files: readonly SourceFile[], manifests: readonly Manifest[]): Findings {
  const root = manifests.find((manifest) => manifest.folder === '')
  const apps = manifests.filter(({ folder }) => folder.startsWith('apps/')).map(({ name }) => name)
  const found: Collected = { violations: [], imports: new Map(), sources: {} }
  for (const manifest of manifests) found.sources[manifest.folder] = 0
  for (const file of files) {
    const owner = manifests.find(({ folder }) => folder !== '' && file.path.startsWith(`${folder}/`)) ?? root
    if (!owner) {
      found.violations.push(`${file.path}: belongs to no package`)
      continue
    }
    if (!isTest(file.path)) found.sources[owner.folder] = (found.sources[owner.folder] ?? 0) + 1
    checkLength(file, found)
    checkWords(file, found)
    checkImports(file, { owner, root, apps }, found)
  }
  for (const manifest of manifests) checkManifest(manifest, found)
  const importsSeen = [...found.imports.values()].reduce((sum, modules) => sum + modules.length, 0)
  return { violations: found.violations, importsSeen, sourcesSeen: found.sources }
}

interface Collected {
  violations: string[]
  imports: Map<string, string[]>
  sources: Record<string, number>
}

function checkLength(file: SourceFile, found: Collected): void {
  const lines = file.source.trimEnd().split('\n').length
  if (lines > LINES_MAX) found.violations.push(`${file.path}: ${lines} lines, more than ${LINES_MAX}`)
}

function checkWords(file: SourceFile, found: Collected): void {
  if (isTest(file.path)) return
  const code = codeOnly(file.source)
  for (const rule of WORD_RULES) {
    const match = isWordAllowed(rule, file.path) ? null : rule.word.exec(code)
    if (match) found.violations.push(`${file.path}:${lineAt(code, match.index)}: ${rule.name} is not for this place`)
  }
}

function isWordAllowed(rule: WordRule, path: string): boolean {
  if (rule.onlyIn) return startsWithAny(path, rule.onlyIn)
  return !startsWithAny(path, rule.notIn ?? [])
}

interface Surroundings {
  owner: Manifest
  root: Manifest | undefined
  apps: readonly string[]
}

function checkImports(file: SourceFile, around: Surroundings, found: Collected): void {
  const { owner } = around
  const modules = found.imports.get(owner.folder) ?? []
  found.imports.set(owner.folder, modules)
  for (const { specifier, line } of importsOf(file.source)) {
    modules.push(specifier ?? '')
    const problem = specifier === undefined ? 'imports a computed name' : problemOf(specifier, file, around)
    if (problem) found.violations.push(`${file.path}:${line}: ${problem}`)
  }
}

function problemOf(specifier: string, file: SourceFile, { owner, root, apps }: Surroundings): string | undefined {
  if (specifier.startsWith('.')) return problemOfOwnFile(specifier, file, owner)
  if (/^(?:node|bun)(?::|$)/.test(specifier)) return problemOfPlatform(specifier, file)
  return (
    (isOpen(specifier, file)
      ? undefined
      : (problemOfApp(specifier, owner, apps) ?? problemOfDirection(specifier, file, owner))) ??
    problemOfHome(specifier, file) ??
    problemOfDeclaration(specifier, file, owner, root)
  )
}

function problemOfOwnFile(specifier: string, file: SourceFile, owner: Manifest): string | undefined {
  const target = posix.join(posix.dirname(file.path), specifier)
  const isInside =
    owner.folder === '' ? !/^(?:\.\.|packages|apps)\//.test(target) : target.startsWith(`${owner.folder}/`)
  if (!isInside) return `${specifier} leaves the package; import it by name`
  const mayEnter =
    !startsWithAny(target, SERVER_FOLDERS) || startsWithAny(file.path, SERVER_FOLDERS) || isTest(file.path)
  return mayEnter ? undefined : `${specifier} does not run in a browser`
}

function problemOfPlatform(specifier: string, file: SourceFile): string | undefined {
  const isServers = startsWithAny(file.path, SERVER_FOLDERS)
  const isClosed = !isTest(file.path) && !isServers && startsWithAny(file.path, ANY_PLATFORM)
  return isClosed ? `${specifier} does not run in a browser` : undefined
}

function isOpen(specifier: string, file: SourceFile): boolean {
  return OPEN_ENTRIES.some(({ module, importer }) => specifier.startsWith(module) && file.path.startsWith(importer))
}

/** Returns why an app may not be imported: only its own files and the root's scripts may do so. */
function problemOfApp(specifier: string, owner: Manifest, apps: readonly string[]): string | undefined {
  const name = packageOf(specifier)
  if (owner.folder === '' || name === owner.name || !apps.includes(name)) return undefined
  return `may not import ${specifier}: an app is a program, start it or move what is shared into a package`
}

function problemOfDirection(specifier: string, file: SourceFile, owner: Manifest): string | undefined {
  const [, target, entry = ''] = /^@sealpost\/([^/]+)(?:\/(.+))?/.exec(specifier) ?? []
  if (target === undefined || owner.folder === '' || composes(file.path)) return undefined
  if (isTest(file.path) && entry.startsWith('testing')) return undefined
  const allowed = DIRECTIONS[owner.folder]
  if (!allowed) return `${owner.folder} has no row in DIRECTIONS`
  // A package may import itself by name.
  if (!allowed.includes(target) && specifier !== owner.name) return `${owner.folder} may not import ${specifier}`
  const closed = CLOSED_ENTRIES.find((entry) => entry.module === specifier && file.path.startsWith(entry.importer))
  return closed && `may not import ${specifier}: ${closed.reason}`
}

function problemOfHome(specifier: string, file: SourceFile): string | undefined {
  const library = packageOf(specifier)
  const homes = Object.hasOwn(LIBRARY_HOMES, library) ? LIBRARY_HOMES[library] : undefined
  if (!homes || composes(file.path) || startsWithAny(file.path, homes)) return undefined
  return `${library} is imported only in ${homes.join(', ')}`
}

function problemOfDeclaration(
  specifier: string,
  file: SourceFile,
  owner: Manifest,
  root: Manifest | undefined,
): string | undefined {
  const name = packageOf(specifier)
  if (name === owner.name) return undefined
  if (GIVEN_BY_TOOLS.some(({ module, folder }) => module === name && file.path.startsWith(folder))) return undefined
  const declared = [...owner.dependencies]
  if (mayUseTools(file.path, owner)) declared.push(...owner.devDependencies, ...(root?.devDependencies ?? []))
  if (composes(file.path)) declared.push(...(root?.dependencies ?? []))
  return declared.includes(name) ? undefined : `${name} is not declared by ${owner.name}`
}

function checkManifest(manifest: Manifest, found: Collected): void {
  const used = new Set((found.imports.get(manifest.folder) ?? []).map(packageOf))
  // The root's development dependencies are commands or for scripts, so don't count them.
  const declared =
    manifest.folder === ''
      ? manifest.dependencies.filter((name) => !name.startsWith('@sealpost/'))
      : [...manifest.dependencies, ...manifest.devDependencies]
  for (const name of declared) {
    if (used.has(name.replace(/^@types\//, ''))) continue
    if (USED_UNIMPORTED.some(({ module, folder }) => module === name && folder === manifest.folder)) continue
    found.violations.push(`${posix.join(manifest.folder, 'package.json')}: declares ${name} and never imports it`)
  }
  if (manifest.folder !== '' && !Object.hasOwn(DIRECTIONS, manifest.folder)) {
    found.violations.push(`${manifest.folder}: has no row in DIRECTIONS`)
  }
}

function isTest(path: string): boolean {
  return /\.(?:test|bench)\.ts$/.test(path)
}

/** Returns whether a file is a test that combines real components. */
function composes(path: string): boolean {
  return /\.(?:pg|e2e)\.test\.ts$/.test(path)
}

/** Returns whether a file is a test, a shared suite, a tool, or at the root. */
function mayUseTools(path: string, owner: Manifest): boolean {
  return (
    owner.folder === '' ||
    isTest(path) ||
    TOOL_FILES.includes(path) ||
    /\/(?:conformance|testing)[^/]*\.ts$|\/test\//.test(path)
  )
}

/** Removes the entry from `@scope/name/entry` or `name/entry`. */
function packageOf(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
}

function startsWithAny(path: string, starts: readonly string[]): boolean {
  return starts.some((start) => path.startsWith(start))
}
