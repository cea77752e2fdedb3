/** Checks the documentation: links and mentioned files exist, no placeholder remains, and each promise has a test. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { allPages, anchorOf } from '@sealpost/docs/pages'
import { describe, expect, test } from 'vitest'

const ROOT = join(import.meta.dirname, '..')
const pages = [...['README.md', 'SECURITY.md'].map((name) => join(ROOT, name)), ...pagesBelow(join(ROOT, 'docs'))]
/** Folders of files that pages mention without their folder. */
const SOURCES = [
  'scripts',
  ...['packages', 'apps'].flatMap((above) => readdirSync(join(ROOT, above)).map((name) => join(above, name, 'src'))),
]
const PLACEHOLDER = /\b(?:FIGURES|TODO|TBD|FIXME|XXX)\b/g

function pagesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md'))
    .map((path) => join(folder, path))
}

/** Returns the text without code, where brackets are no links. */
const proseOf = (text: string): string => text.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, '`')

const linksOf = (text: string): string[] => [...proseOf(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target!)

const anchorsOf = (page: string): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, title]) => anchorOf(title!))

function isDead(page: string, link: string): boolean {
  if (/^[a-z]+:/.test(link)) return false
  const [path, anchor] = link.split('#') as [string, string?]
  const target = path === '' ? page : join(dirname(page), path)
  if (!existsSync(target)) return true
  return anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).includes(anchor)
}

describe.each(pages.map((page) => relative(ROOT, page)))('%s', (name) => {
  const page = join(ROOT, name)
  const text = readFileSync(page, 'utf8')

  test('every link within the repository has an existing target', () => {
    expect(linksOf(text).filter((link) => isDead(page, link))).toEqual([])
  })

  test('every file that it names by its path exists', () => {
    const named = [...text.matchAll(/`((?:packages|apps|scripts|docs)\/[\w./-]+\.\w+)`/g)].map(([, path]) => path!)
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })

  test('it contains no placeholder', () => {
    expect(proseOf(text).match(PLACEHOLDER) ?? []).toEqual([])
  })
})

test('dead links and dead anchors are found, and links in code are ignored', () => {
  const page = join(ROOT, 'README.md')
  const links = linksOf(
    '[a](docs/absent.md) `[b](c)` [d](docs/PROTOCOL.md#nowhere) [e](docs/PROTOCOL.md) [f](https://g.h)',
  )
  expect(links.filter((link) => isDead(page, link))).toEqual(['docs/absent.md', 'docs/PROTOCOL.md#nowhere'])
})

test('every page is listed once in the order of the documentation (apps/docs/src/pages.ts)', () => {
  const listed = allPages().map(({ path }) => path)
  const there = pages.map((page) => relative(ROOT, page)).filter((path) => path !== 'README.md')
  expect(there.filter((path) => !listed.includes(path))).toEqual([])
  expect(listed.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  expect(new Set(listed).size).toBe(listed.length)
})

describe('the files that docs/ARCHITECTURE.md names', () => {
  const text = readFileSync(join(ROOT, 'docs/ARCHITECTURE.md'), 'utf8')
  const named = [...text.matchAll(/`([\w./-]+\.(?:ts|md))`/g)].map(([, path]) => path!)
  const files = SOURCES.flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }))

  test('exist: a path at its place, and a bare name somewhere', () => {
    const isThere = (path: string) =>
      existsSync(join(ROOT, path)) || files.some((file) => `/${file}`.endsWith(`/${path}`))
    expect(named.filter((path) => !isThere(path))).toEqual([])
    expect(named.length).toBeGreaterThan(30)
  })
})

describe('docs/PROMISES.md', () => {
  const text = readFileSync(join(ROOT, 'docs/PROMISES.md'), 'utf8')
  const sections = text.split(/^## /m).slice(1)
  const rows = [...text.matchAll(/^\| `([^`]+)` \| (.+?) \| .+ \|$/gm)].map(([, path, name]) => ({
    path: path!,
    name: name!,
  }))

  test.each(rows)('$path has the test: $name', ({ path, name }) => {
    const text = existsSync(join(ROOT, path)) ? readFileSync(join(ROOT, path), 'utf8') : ''
    const hasParts = (_: string, at: number, words: string[]) =>
      text.includes(words.slice(0, at).join(' ')) && text.includes(words.slice(at).join(' '))
    expect(name.split(' ').some(hasParts)).toBe(true) // a test's name, with or without its group's
  })

  test('every promise from P1 to P16 has a section and a test', () => {
    const named = sections.filter((section) => /^P\d+ /.test(section))
    expect(named.map((section) => section.split(' ')[0])).toEqual(Array.from({ length: 16 }, (_, i) => `P${i + 1}`))
    expect(named.filter((section) => !/^\| `/m.test(section))).toEqual([])
    expect(rows.length).toBeGreaterThan(40)
  })
})

/** Returns the last cells of tables whose last column is *test*: "`file`: words of a test; words of another one". */
function testCells(page: string): string[] {
  const tables = readFileSync(join(ROOT, page), 'utf8').split('\n\n')
  return tables
    .filter((table) => /^\|.*\| test \|\n/.test(table))
    .flatMap((table) => table.trimEnd().split('\n').slice(2))
    .map((row) => row.slice(0, -2).split(' | ').at(-1)!)
}

describe.each(['docs/SECURITY.md', 'docs/STATE.md'])('the capabilities of a hostile broker in %s', (page) => {
  const cells = testCells(page)
  const named = cells.flatMap((cell) =>
    cell.split(/(?:^|; )(?=`)/).flatMap((some) => {
      const [, file, words = ''] = /^`(.+?)`: (.+)$/.exec(some) ?? []
      return file === undefined ? [] : words.split('; ').map((word) => ({ file, word }))
    }),
  )
  const files = SOURCES.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((path) => join(ROOT, folder, path)),
  )

  test('names a test in each row, or a dash for none', () => {
    expect(cells.filter((cell) => cell !== '–' && !/^`[\w.-]+`: \w/.test(cell))).toEqual([])
    expect(named.length).toBeGreaterThan(25)
  })

  test.each(named)('$file has the test: $word', ({ file, word }) => {
    const holders = files.filter((path) => path.endsWith(`/${file}.test.ts`))
    expect(holders.some((path) => readFileSync(path, 'utf8').includes(word))).toBe(true)
  })
})

test('the first example of docs/STATE.md is the program docs/examples/state.ts', () => {
  const snippet = /^```ts.*\n([\s\S]*?)^```/m.exec(readFileSync(join(ROOT, 'docs/STATE.md'), 'utf8'))?.[1]
  expect(snippet).toBe(readFileSync(join(ROOT, 'docs/examples/state.ts'), 'utf8'))
})
