/**
 * Changes the text of a client's configuration: JSON with or without comments, TOML, and marked blocks of Markdown. Every
 * byte that a change does not concern stays as it is.
 */
import { isDeepStrictEqual } from 'node:util'
import { OperatingError } from '@sealpost/std'
import { createScanner, findNodeAtLocation, getNodeValue, type Node, type ParseError, parseTree } from 'jsonc-parser'
import { parse as parseToml, stringify as stringifyToml, type TomlTable } from 'smol-toml'

/** A property, or an item of a list, that an installation adds to a JSON file. */
export type JsonEntry =
  | { readonly kind: 'property'; readonly path: readonly string[]; readonly value: unknown }
  /** A property that stays as it is if the file has it. */
  | { readonly kind: 'default'; readonly path: readonly string[]; readonly value: unknown }
  | { readonly kind: 'item'; readonly path: readonly string[]; readonly value: unknown }

/** What an installation puts into one file. */
export type FileContent =
  | { readonly kind: 'json'; readonly entries: readonly JsonEntry[] }
  | { readonly kind: 'toml'; readonly path: readonly string[]; readonly value: TomlTable }
  | { readonly kind: 'block'; readonly text: string }
  | { readonly kind: 'whole'; readonly text: string }

interface Edit {
  readonly offset: number
  readonly length: number
  readonly text: string
}

export interface PutOptions {
  /** For the sentences of errors. */
  readonly file: string
  /** Replaces an entry that has another value. */
  readonly isForced: boolean
}

/**
 * Returns the text with the content; '' stands for a new file.
 * @throws OperatingError `config_malformed`, `config_unsupported`, `mcp_entry_exists`
 */
export function putContent(text: string, content: FileContent, options: PutOptions): string {
  switch (content.kind) {
    case 'json':
      return content.entries.reduce((changed, entry) => putEntry(changed, entry, options), text)
    case 'toml':
      return putTable(text, content, options)
    case 'block':
      return putBlock(text, content.text, MARKDOWN_MARKS)
    case 'whole':
      if (text !== '' && text !== content.text && !options.isForced) throw entryExists(options.file, 'the whole file')
      return content.text
  }
}

/**
 * Returns the text without the content, however it was changed since. `containers` are objects and lists that the
 * installation created: they go too if they are empty.
 * @throws OperatingError `config_malformed`, `config_unsupported`
 */
export function removeContent(
  text: string,
  content: FileContent,
  { file, containers }: { readonly file: string; readonly containers: readonly (readonly string[])[] },
): string {
  switch (content.kind) {
    case 'json': {
      const without = content.entries.reduce((changed, entry) => removeEntry(changed, entry, file), text)
      return containers.reduce((changed, path) => removeIfEmpty(changed, path, file), without)
    }
    case 'toml':
      return removeTable(removeBlock(text, TOML_MARKS), content.path, file)
    case 'block':
      return removeBlock(text, MARKDOWN_MARKS)
    case 'whole':
      return text === content.text ? '' : text
  }
}

/** Returns the objects and lists that the entries need and the file lacks, innermost first. */
export function missingContainers(text: string, content: FileContent, file: string): string[][] {
  if (content.kind !== 'json') return []
  const { root } = readJson(text, file)
  const paths = content.entries.flatMap(({ kind, path }) => {
    const depth = kind === 'item' ? path.length : path.length - 1
    return Array.from({ length: depth }, (_, i) => path.slice(0, depth - i))
  })
  const missing = paths.filter((path) => !root || !findNodeAtLocation(root, [...path]))
  const unique = new Map(missing.map((path) => [path.join('\0'), path]))
  return [...unique.values()].toSorted((a, b) => b.length - a.length)
}

/** Returns the values at the places of the content, for an installation that replaces them. */
export function existingContent(text: string, content: FileContent, file: string): FileContent | null {
  if (content.kind === 'toml') {
    const value = valueAt(readToml(text, file), content.path)
    return value === undefined ? null : { ...content, value: value as TomlTable }
  }
  if (content.kind !== 'json') return null
  const { root } = readJson(text, file)
  const entries = content.entries.flatMap(({ kind, path }): JsonEntry[] => {
    const node = root && kind === 'property' ? findNodeAtLocation(root, [...path]) : undefined
    return node ? [{ kind: 'property', path, value: getNodeValue(node) }] : []
  })
  return entries.length > 0 ? { kind: 'json', entries } : null
}

/** Returns whether the client can parse the text. */
export function isParsable(text: string, content: FileContent): boolean {
  try {
    if (content.kind === 'json') readJson(text, '')
    if (content.kind === 'toml') readToml(text, '')
    return true
  } catch {
    return false // the caller has another way to change the text
  }
}

/** Returns whether nothing is left that a user could have written. */
export function isEmptyContent(text: string, content: FileContent): boolean {
  if (content.kind !== 'json') return text.trim() === ''
  const { root } = readJson(text, '')
  const defaults = content.entries.filter(({ kind }) => kind === 'default').map(({ path }) => path[0])
  return !root || (root.children ?? []).every(({ children }) => defaults.includes(children![0]!.value))
}

// JSON

const BOM = '\uFEFF'

function readJson(text: string, file: string): { readonly root: Node | undefined; readonly bom: string } {
  const bom = text.startsWith(BOM) ? BOM : ''
  const errors: ParseError[] = []
  const root = parseTree(text.slice(bom.length), errors, { allowTrailingComma: true, allowEmptyContent: true })
  const [error] = errors
  if (error) throw malformed(file, `line ${lineAt(text, error.offset)} is not valid JSON`)
  if (root && root.type !== 'object') throw malformed(file, 'it does not contain a JSON object')
  return { root, bom }
}

const lineAt = (text: string, offset: number): number => text.slice(0, offset).split('\n').length

function malformed(file: string, reason: string): OperatingError {
  return new OperatingError('config_malformed', `Can't change ${file}: ${reason}. Nothing was changed.`)
}

function entryExists(file: string, entry: string): OperatingError {
  return new OperatingError(
    'mcp_entry_exists',
    `${file} already has another configuration of Sealpost (${entry}), which this command did not write. Add --force to replace it.`,
  )
}

const nameOf = (path: readonly string[]): string => path.join('.')

function putEntry(text: string, entry: JsonEntry, { file, isForced }: PutOptions): string {
  const { root, bom } = readJson(text, file)
  const body = text.slice(bom.length)
  if (!root) return bom + (body === '' ? '' : `${body.trimEnd()}\n`) + putEntry('{}\n', entry, { file, isForced })
  const existing = findNodeAtLocation(root, [...entry.path])
  if (existing && entry.kind === 'default') return text
  if (existing && entry.kind === 'property') {
    if (isEqual(getNodeValue(existing), entry.value)) return text
    if (!isForced) throw entryExists(file, nameOf(entry.path))
    const style = styleOf(body)
    const value = rendered(entry.value, style, indentAt(body, existing.offset))
    return bom + edited(body, [{ offset: existing.offset, length: existing.length, text: value }])
  }
  if (existing && entry.kind === 'item') {
    if (existing.type !== 'array') throw malformed(file, `${nameOf(entry.path)} is not a list`)
    if (existing.children!.some((item) => isEqual(getNodeValue(item), entry.value))) return text
    return bom + inserted(body, existing, entry.value)
  }
  return bom + insertedBelow(body, root, entry, file)
}

/** Inserts the entry into the innermost object on its path that exists. */
function insertedBelow(body: string, root: Node, { kind, path, value }: JsonEntry, file: string): string {
  let depth = path.length - 1
  while (depth > 0 && !findNodeAtLocation(root, path.slice(0, depth))) depth--
  const container = depth === 0 ? root : findNodeAtLocation(root, path.slice(0, depth))!
  if (container.type !== 'object') throw malformed(file, `${nameOf(path.slice(0, depth))} is not an object`)
  const leaf = kind === 'item' ? [value] : value
  const nested = path.slice(depth + 1).reduceRight<unknown>((inner, key) => ({ [key]: inner }), leaf)
  return inserted(body, container, nested, path[depth])
}

interface JsonStyle {
  readonly indent: string
  readonly eol: string
  /** Whether the text is on one line. */
  readonly isCompact: boolean
}

function styleOf(body: string): JsonStyle {
  const eol = body.includes('\r\n') ? '\r\n' : '\n'
  const indent = /\n([ \t]+)(?=["{[\]}\d])/.exec(body)?.[1] ?? '  '
  return {
    indent: indent.startsWith('\t') ? '\t' : indent,
    eol,
    isCompact: !/\n\s*\S/.test(body) && body.trim() !== '{}',
  }
}

const indentAt = (body: string, offset: number): string => {
  const lineStart = body.lastIndexOf('\n', offset - 1) + 1
  return /^[ \t]*/.exec(body.slice(lineStart))![0]
}

function rendered(value: unknown, { indent, eol, isCompact }: JsonStyle, at: string): string {
  if (isCompact) return JSON.stringify(value)
  return JSON.stringify(value, null, indent).replaceAll('\n', `${eol}${at}`)
}

/** Inserts a property or an item as the container's last. */
function inserted(body: string, container: Node, value: unknown, key?: string): string {
  const style = styleOf(body)
  const end = container.offset + container.length - 1
  const last = container.children?.at(-1)
  const isInline = last !== undefined && !body.slice(container.offset, end).includes('\n')
  const outer = indentAt(body, container.offset)
  const at = last && !isInline ? indentAt(body, last.offset) : outer + style.indent
  const label = key === undefined ? '' : `${JSON.stringify(key)}:${style.isCompact ? '' : ' '}`
  if (isInline || style.isCompact) {
    const entry = label + JSON.stringify(value)
    const separator = !last || commaAfter(body, last) !== undefined ? '' : style.isCompact ? ',' : ', '
    return edited(body, [{ offset: last ? last.offset + last.length : end, length: 0, text: separator + entry }])
  }
  const entry = `${style.eol}${at}${label}${rendered(value, style, at)}`
  if (!last) {
    const kept = body.slice(container.offset + 1, end).trimEnd() // a comment may be inside
    const text = `${kept}${entry}${style.eol}${outer}`
    return edited(body, [{ offset: container.offset + 1, length: end - container.offset - 1, text }])
  }
  const comma =
    commaAfter(body, last) === undefined ? [{ offset: last.offset + last.length, length: 0, text: ',' }] : []
  const before = body.slice(0, end).trimEnd().length
  return edited(body, [{ offset: before, length: 0, text: entry }, ...comma])
}

/** Returns the offset of the comma after a node, behind comments. */
function commaAfter(body: string, { offset, length }: Node): number | undefined {
  const scanner = createScanner(body, true)
  scanner.setPosition(offset + length)
  scanner.scan()
  return body[scanner.getTokenOffset()] === ',' ? scanner.getTokenOffset() : undefined
}

/** Of two insertions at one place, the later in the list comes first in the text. */
function edited(body: string, edits: readonly Edit[]): string {
  return edits
    .toSorted((a, b) => b.offset - a.offset)
    .reduce((text, { offset, length, text: put }) => text.slice(0, offset) + put + text.slice(offset + length), body)
}

function removeEntry(text: string, entry: JsonEntry, file: string): string {
  const { root, bom } = readJson(text, file)
  const found = root && findNodeAtLocation(root, [...entry.path])
  if (!found || entry.kind === 'default') return text
  const body = text.slice(bom.length)
  if (entry.kind === 'property') return bom + removed(body, found.parent!)
  const item = found.children?.find((child) => isEqual(getNodeValue(child), entry.value))
  return item ? bom + removed(body, item) : text
}

function removeIfEmpty(text: string, path: readonly string[], file: string): string {
  const { root, bom } = readJson(text, file)
  const found = root && findNodeAtLocation(root, [...path])
  if (found?.children?.length !== 0) return text
  return bom + removed(text.slice(bom.length), found.parent!)
}

/** Removes a property or an item, with its comma and its line. */
function removed(body: string, node: Node): string {
  const siblings = node.parent!.children!
  const previous = siblings[siblings.indexOf(node) - 1]
  const comma = commaAfter(body, node)
  const end = comma === undefined ? node.offset + node.length : comma + 1
  const start = body.slice(0, node.offset).trimEnd().length
  const orphan = comma === undefined && previous ? commaAfter(body, previous) : undefined
  const without = edited(body, [
    { offset: start, length: end - start, text: '' },
    ...(orphan === undefined ? [] : [{ offset: orphan, length: 1, text: '' }]),
  ])
  if (siblings.length > 1) return without
  const [open, close] = [node.parent!.offset, node.parent!.offset + node.parent!.length - (end - start) - 1]
  const inside = without.slice(open + 1, close)
  return inside.trim() === '' ? without.slice(0, open + 1) + without.slice(close) : without
}

// Marked blocks

interface Marks {
  readonly start: string
  readonly end: string
}

const TOML_MARKS: Marks = { start: '# sealpost mcp install: start', end: '# sealpost mcp install: end' }
const MARKDOWN_MARKS: Marks = {
  start: '<!-- sealpost mcp install: start -->',
  end: '<!-- sealpost mcp install: end -->',
}

/** Appends the block, or replaces the block that is there. */
function putBlock(text: string, inside: string, { start, end }: Marks): string {
  const eol = text.includes('\r\n') ? '\r\n' : '\n'
  const block = [start, ...inside.trimEnd().split('\n'), end].join(eol)
  const place = placeOf(text, { start, end })
  if (place) return text.slice(0, place.offset) + block + text.slice(place.offset + place.length)
  const gap = text === '' ? '' : text.endsWith('\n') ? eol : eol + eol
  return `${text}${gap}${block}${eol}`
}

function placeOf(text: string, { start, end }: Marks): Omit<Edit, 'text'> | undefined {
  const offset = text.indexOf(start)
  const endOffset = text.indexOf(end, offset)
  return offset < 0 || endOffset < 0 ? undefined : { offset, length: endOffset + end.length - offset }
}

/** Removes the block, its line end and the empty line before it. */
function removeBlock(text: string, marks: Marks): string {
  const place = placeOf(text, marks)
  if (!place) return text
  const before = text.slice(0, place.offset).replace(/(^|\n)\r?\n$/, '$1')
  return before + text.slice(place.offset + place.length).replace(/^\r?\n/, '')
}

// TOML

type Table = Extract<FileContent, { kind: 'toml' }>

function putTable(text: string, { path, value }: Table, { file, isForced }: PutOptions): string {
  const existing = valueAt(readToml(text, file), path)
  if (isEqual(existing, value)) return text
  if (existing !== undefined && !isForced && !placeOf(text, TOML_MARKS)) throw entryExists(file, nameOf(path))
  const without = existing === undefined ? text : removeTable(removeBlock(text, TOML_MARKS), path, file)
  const table = path.reduceRight<TomlTable>((inner, key) => ({ [key]: inner }), value)
  const changed = putBlock(without, stringifyToml(table), TOML_MARKS)
  if (isEqual(valueAt(tryToml(changed), path), value)) return changed
  throw unsupported(file, path)
}

function unsupported(file: string, path: readonly string[]): OperatingError {
  return new OperatingError(
    'config_unsupported',
    `Can't change ${nameOf(path)} in ${file} automatically. Change it by hand.`,
  )
}

/** Removes the table `path` and its subtables, which are lines from a header to the next. */
function removeTable(text: string, path: readonly string[], file: string): string {
  const before = readToml(text, file)
  if (valueAt(before, path) === undefined) return text
  let isInside = false
  const kept = text.split(/(?<=\n)/).filter((line) => {
    const header = /^\s*\[+\s*([^\]]+?)\s*\]/.exec(line)?.[1]
    if (header !== undefined) isInside = isBelow(header, path)
    return !isInside
  })
  const changed = kept.join('')
  const expected = plain(before) as TomlTable
  const parent = valueAt(expected, path.slice(0, -1)) as TomlTable
  delete parent[path.at(-1)!]
  if (isEqual(pruned(tryToml(changed), path), pruned(expected, path))) return changed
  throw unsupported(file, path)
}

/** Returns the value without an empty parent of `path`: a header may have gone with its only table. */
function pruned(root: unknown, path: readonly string[]): unknown {
  const parent = valueAt(root, path.slice(0, 1))
  if (!parent || Object.keys(parent).length > 0) return root
  return Object.fromEntries(Object.entries(root as object).filter(([key]) => key !== path[0]))
}

const isBelow = (header: string, path: readonly string[]): boolean => {
  const keys = header.split('.').map((key) => key.trim().replace(/^(["'])(.*)\1$/, '$2'))
  return path.every((key, i) => keys[i] === key)
}

function readToml(text: string, file: string): TomlTable {
  try {
    return parseToml(text.startsWith(BOM) ? text.slice(1) : text)
  } catch (cause) {
    const line = (cause as { line?: number }).line
    throw malformed(file, line === undefined ? 'it is not valid TOML' : `line ${line} is not valid TOML`)
  }
}

function tryToml(text: string): TomlTable | undefined {
  try {
    return readToml(text, '')
  } catch {
    return undefined // the caller compares the value
  }
}

const valueAt = (root: unknown, path: readonly string[]): unknown =>
  path.reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], root)

/** Compares values of parsers, whose objects have several prototypes. */
const isEqual = (a: unknown, b: unknown): boolean => isDeepStrictEqual(plain(a), plain(b))

const plain = (value: unknown): unknown => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)))
