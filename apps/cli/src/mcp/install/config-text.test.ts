import { getNodeValue, parseTree } from 'jsonc-parser'
import { parse as parseToml } from 'smol-toml'
import { describe, expect, test } from 'vitest'
import { type FileContent, missingContainers, putContent, removeContent } from './config-text.ts'

const FILE = '/home/user/config'
const options = { file: FILE, isForced: false }
const server = { command: '/bin/sealpost', args: ['mcp'] }
const hook = { hooks: [{ type: 'command', command: 'sealpost status idle' }] }

const content: FileContent = {
  kind: 'json',
  entries: [
    { kind: 'default', path: ['version'], value: 1 },
    { kind: 'property', path: ['mcpServers', 'sealpost'], value: server },
    { kind: 'item', path: ['hooks', 'Stop'], value: hook },
    { kind: 'item', path: ['hooks', 'Start'], value: hook },
  ],
}

const parsed = (text: string): any => {
  const root = parseTree(text.replace('\uFEFF', ''), [], { allowTrailingComma: true })
  return root === undefined ? {} : getNodeValue(root)
}

const remove = (text: string, before: string, what: FileContent = content) =>
  removeContent(text, what, { file: FILE, containers: missingContainers(before, what, FILE) })

const CASES: readonly (readonly [string, string])[] = [
  ['an empty object', '{}'],
  ['an empty object with lines', '{\n}\n'],
  ['an object with a comment only', '{\n  // nothing yet\n}\n'],
  ['another server', '{\n  "mcpServers": {\n    "a": { "command": "x" }\n  }\n}\n'],
  ['a comment behind the last entry', '{\n  "mcpServers": {\n    "a": { "command": "x" } // mine\n  }, // end\n}\n'],
  ['a block comment before the comma', '{\n  "a": 1 /* , */ ,\n  "mcpServers": {} // none\n}\n'],
  ['tabs', '{\n\t"a": [1, 2],\n\t"mcpServers": {\n\t\t"a": { "command": "x" }\n\t}\n}'],
  [
    'four spaces and CRLF',
    '{\r\n    "a": 1,\r\n    "hooks": {\r\n        "Stop": [\r\n            {}\r\n        ]\r\n    }\r\n}\r\n',
  ],
  ['trailing commas', '{\n  "hooks": {\n    "Stop": [\n      { "hooks": [] },\n    ],\n  },\n}\n'],
  ['one line', '{"a":1,"mcpServers":{"a":{"command":"x"}},"b":[1,2]}'],
  ['one line with spaces', '{ "a": 1, "hooks": { "Stop": [ {} ] } }'],
  ['lists on one line', '{\n  "hooks": { "Stop": [{ "hooks": [] }] },\n  "z": 0\n}\n'],
  ['a byte order mark', '\uFEFF{\n  "a": 1\n}\n'],
  ['strings with braces', '{\n  "a": "}, // \\" {",\n  "mcpServers": {\n    "b}": {}\n  }\n}\n'],
]

describe.each(CASES)('a JSON file with %s', (_, text) => {
  const changed = putContent(text, content, options)

  test('gets the entries, and keeps every other value', () => {
    const { version, mcpServers, hooks, ...others } = parsed(changed)
    const before = parsed(text)
    expect([version, mcpServers.sealpost, hooks.Stop.at(-1), hooks.Start]).toEqual([1, server, hook, [hook]])
    expect(mcpServers).toEqual({ ...before.mcpServers, sealpost: server })
    expect(hooks.Stop).toEqual([...(before.hooks?.Stop ?? []), hook])
    expect({ ...before, ...others }).toEqual(before)
  })

  test('is changed only by insertions', () => {
    let place = 0
    for (const character of text.replace(/\{\s*\}/g, '{}')) {
      place = changed.indexOf(character, place) + 1
      expect(place).toBeGreaterThan(0)
    }
  })

  test('does not change again', () => {
    expect(putContent(changed, content, options)).toBe(changed)
  })

  test('has the same values and comments after the removal, also with other changes', () => {
    const before = parsed(text)
    const removed = remove(changed, text)
    expect(parsed(removed)).toEqual({ ...before, version: 1 })
    for (const comment of text.match(/\/\/ [a-z ]+$|\/\*.*?\*\//gm) ?? []) expect(removed).toContain(comment)
    const other: FileContent = { kind: 'json', entries: [{ kind: 'property', path: ['mcpServers', 'new'], value: {} }] }
    const { mcpServers } = parsed(remove(putContent(changed, other, options), text))
    expect(mcpServers).toEqual({ ...before.mcpServers, new: {} })
  })
})

test('a new JSON file is indented with two spaces', () => {
  const one: FileContent = { kind: 'json', entries: [{ kind: 'property', path: ['a', 'b'], value: [1] }] }
  expect(putContent('', one, options)).toBe('{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}\n')
})

test('an entry with another value is refused, and replaced in its place with --force', () => {
  const text = '{\n  "mcpServers": {\n    "sealpost": { "command": "other" }, // mine\n    "z": {}\n  }\n}\n'
  expect(() => putContent(text, content, options)).toThrow(expect.objectContaining({ code: 'mcp_entry_exists' }))
  const forced = putContent(text, content, { file: FILE, isForced: true })
  expect(parsed(forced).mcpServers).toEqual({ sealpost: server, z: {} })
  expect(forced).toContain('}, // mine\n')
})

test.each([
  ['a missing brace', '{\n  "a": 1,\n'],
  ['a missing comma', '{\n  "a": 1\n  "b": 2\n}'],
  ['text', 'hello'],
  ['a list', '[]'],
  ['a list in the place of an object', '{ "mcpServers": [] }'],
  ['an object in the place of a list', '{ "hooks": { "Stop": {} } }'],
])('a JSON file with %s is refused', (_, text) => {
  expect(() => putContent(text, content, options)).toThrow(expect.objectContaining({ code: 'config_malformed' }))
})

describe('TOML', () => {
  const table: FileContent = {
    kind: 'toml',
    path: ['mcp_servers', 'sealpost'],
    value: { ...server, env: { A: 'b "c"' } },
  }
  const text = [
    '# mine',
    'model = "m" # best',
    '',
    '[mcp_servers.other]',
    'command = "x"',
    'text = """',
    '[a]',
    '"""',
    'since = 2026-01-01',
    '',
  ].join('\n')

  test('a table is appended, and the rest of the file stays as it is', () => {
    const changed = putContent(text, table, options)
    expect(changed.startsWith(text)).toBe(true)
    expect(parseToml(changed)).toMatchObject({ mcp_servers: { other: { command: 'x' }, sealpost: server } })
    expect(putContent(changed, table, options)).toBe(changed)
    expect(remove(changed, text, table)).toBe(text)
  })

  test('a table whose marks another program has removed is found by its header', () => {
    const changed = putContent(text, table, options).replace(/^# sealpost mcp install: .*\n/gm, '')
    expect(parseToml(remove(`${changed}\n[last]\na = 1\n`, text, table))).toEqual({
      ...parseToml(text),
      last: { a: 1 },
    })
  })

  test('a table of the user is refused, and replaced with --force', () => {
    const own = `${text}\n[mcp_servers.sealpost]\ncommand = "mine"\n\n[mcp_servers.sealpost.env]\nX = "y"\n\n[z]\na = 1\n`
    expect(() => putContent(own, table, options)).toThrow(expect.objectContaining({ code: 'mcp_entry_exists' }))
    const forced = parseToml(putContent(own, table, { file: FILE, isForced: true }))
    expect(forced).toMatchObject({ mcp_servers: { sealpost: table.value }, z: { a: 1 } })
  })

  test('a line of a text that looks like the header is never removed', () => {
    const tricky = text.replace('[a]', '[mcp_servers.sealpost]')
    const changed = putContent(tricky, table, options)
    expect(remove(changed, tricky, table)).toBe(tricky)
    const unmarked = changed.replace(/^# sealpost mcp install: .*\n/gm, '')
    expect(() => remove(unmarked, tricky, table)).toThrow(expect.objectContaining({ code: 'config_unsupported' }))
  })

  test.each([
    ['config_malformed', 'a = \n'],
    ['config_unsupported', 'mcp_servers = { other = { command = "x" } }\n'],
  ])('what can not be changed is refused with %s', (code, bad) => {
    expect(() => putContent(bad, table, options)).toThrow(expect.objectContaining({ code }))
  })
})

test.each([
  ['an empty file', ''],
  ['a page', '# Rules\n\nBe kind.\n'],
  ['a page without a line end', '# Rules'],
  ['a page with CRLF', '# Rules\r\n\r\nBe kind.\r\n'],
])('a marked block is appended to %s, replaced in its place and removed', (_, text) => {
  const block = (inside: string): FileContent => ({ kind: 'block', text: inside })
  const first = putContent(text, block('one\ntwo\n'), options)
  expect(first.startsWith(text)).toBe(true)
  const second = putContent(`${first}more\n`, block('three'), options)
  expect(second).toContain('three')
  expect(second).not.toContain('two')
  expect(
    remove(second, text, block('three'))
      .replace(/more\n$/, '')
      .trimEnd(),
  ).toBe(text.trimEnd())
})
