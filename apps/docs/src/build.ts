/**
 * Builds the site: `bun run docs:build [FOLDER]`, by default in `apps/docs/dist`. Fails on a dead link. VitePress
 * builds from `apps/docs/pages`. This program writes each page there under its name on the site, with rewritten links,
 * and the files that the pages link to.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { build } from 'vitepress'
import { allPages, type DocPage, machineFiles, placeOf, ROOT, sections, withLinks } from './pages.ts'

const OWN = join(import.meta.dirname, '..')
const PAGES = join(OWN, 'pages') // `.vitepress/config.ts` uses the same path
const PUBLIC = join(PAGES, 'public')
const DECISIONS = 'docs/adr'
const LLMS_HEAD = `# Sealpost

> A durable, end-to-end encrypted message broker on Postgres. Peers (AI agents, people, devices) hold a key, join a mesh
> and send each other sealed envelopes over WebSocket or HTTP. An acknowledged message is on disk; it is delivered in
> order, at least once, and once through the SDK. The broker has no key that opens it.

Every page is available as Markdown; [llms-full.txt](llms-full.txt) contains all of them.`

stage()
process.chdir(OWN) // VitePress looks for Vue from here
const folder = resolve(process.argv[2] ?? join(OWN, 'dist'))
await build(OWN, { outDir: folder })
// Programs read each page as Markdown.
cpSync(PAGES, folder, { recursive: true, filter: (path) => !path.startsWith(PUBLIC) })

function stage(): void {
  rmSync(PAGES, { recursive: true, force: true })
  const pages = allPages().map((page) => ({ ...page, text: readFileSync(join(ROOT, page.path), 'utf8') }))
  for (const { path, text } of pages) write(join(PAGES, `${placeOf(path)}.md`), withLinks(text, path, moved))
  write(join(PAGES, `${placeOf(`${DECISIONS}/README.md`)}.md`), decisions())
  copyFileSync(join(OWN, 'home.md'), join(PAGES, 'index.md'))
  copyFileSync(join(OWN, 'generated/sdk-reference.md'), join(PAGES, 'reference/sdk.md')) // of `scripts/descriptions.ts`
  cpSync(join(OWN, 'public'), PUBLIC, { recursive: true })
  for (const { path } of machineFiles) copyOf(path)
  cpSync(join(ROOT, 'docs/benchmarks'), join(PAGES, 'benchmarks'), {
    recursive: true,
    filter: (source) => !source.endsWith('.md'),
  })
  write(join(PUBLIC, 'llms.txt'), llmsText())
  const texts = pages.map(({ path, text }) => `<!-- ${path} -->\n${text.trim()}\n`)
  write(join(PUBLIC, 'llms-full.txt'), `${LLMS_HEAD}\n\n${texts.join('\n')}`)
}

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

/** Returns the address on the site of a file or folder of the repository. */
function moved(target: string): string {
  const path = target.replace(/\/$/, '')
  if (path === DECISIONS) return `/${placeOf(`${DECISIONS}/README.md`)}`
  if (allPages().some((page) => page.path === path)) return `/${placeOf(path)}`
  if (/\.(?:svg|png)$/.test(path)) return `/${path.replace(/^docs\//, '')}` // Vite copies images itself
  if (!existsSync(join(ROOT, path)) || statSync(join(ROOT, path)).isDirectory()) return target // VitePress reports a dead link
  return `/${copyOf(path)}`
}

/** Copies the file next to the pages, as text if browsers don't display its type. @returns its path on the site */
function copyOf(path: string): string {
  const isKnown = /\.(?:json|yaml|ts)$/.test(path)
  const place = path.replace(/^docs\//, '') + (isKnown ? '' : '.txt')
  mkdirSync(dirname(join(PUBLIC, place)), { recursive: true })
  copyFileSync(join(ROOT, path), join(PUBLIC, place))
  return place
}

function decisions(): string {
  const { pages } = sections.find(({ name }) => name === 'Decisions')!
  const rows = pages.map(({ path, name }) => `- [${name}](./${basename(placeOf(path))})`)
  return `# Decisions\n\nEach page explains one decision, with its measurements.\n\n${rows.join('\n')}\n`
}

/** Returns `llms.txt`, the list of pages for programs. */
function llmsText(): string {
  const lineOf = ({ path, name, about }: DocPage) => `- [${name}](${placeOf(path)}.md): ${about}`
  const fileLineOf = ({ path, name, about }: DocPage) => `- [${name}](${path.replace(/^docs\//, '')}): ${about}`
  const listOf = (name: string, lines: readonly string[]) => [`## ${name}`, '', ...lines].join('\n')
  const lists = sections.map(({ name, pages }) => listOf(name, pages.map(lineOf)))
  return `${[LLMS_HEAD, ...lists, listOf('For machines', machineFiles.map(fileLineOf))].join('\n\n')}\n`
}
