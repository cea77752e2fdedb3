/**
 * Lays the documentation out as VitePress wants it, in a folder of its own: pages under the names they have on the site,
 * links between them made to fit, and beside them what they link to that is no page.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { withLinks } from './links.ts'
import { llmsFullText, llmsText } from './llms.ts'
import { allPages, machineFiles, placeOf, ROOT, sections } from './pages.ts'

const OWN = join(import.meta.dirname, '..')
const DECISIONS = 'docs/adr'

/** Replaces the folder's content by the pages and the files they link to. */
export function stage(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
  const publicFolder = join(folder, 'public')
  const move = (target: string) => moved(target, publicFolder)
  const pages = allPages().map(({ path }) => ({
    path,
    place: placeOf(path),
    text: readFileSync(join(ROOT, path), 'utf8'),
  }))
  for (const { path, place, text } of pages) write(join(folder, `${place}.md`), withLinks(text, path, move))
  write(join(folder, `${placeOf(`${DECISIONS}/README.md`)}.md`), decisions())
  copyFileSync(join(OWN, 'home.md'), join(folder, 'index.md'))
  cpSync(join(OWN, 'public'), publicFolder, { recursive: true })
  for (const { path } of machineFiles) copyOf(path, publicFolder)
  // The notes are pages, written above with their links made to fit.
  cpSync(join(ROOT, 'docs/benchmarks'), join(folder, 'benchmarks'), {
    recursive: true,
    filter: (source) => !source.endsWith('.md'),
  })
  write(join(publicFolder, 'llms.txt'), llmsText())
  write(join(publicFolder, 'llms-full.txt'), llmsFullText())
}

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

/** Where a link to this file or folder leads on the site, from its root. */
function moved(target: string, publicFolder: string): string {
  const path = target.replace(/\/$/, '')
  if (path === DECISIONS) return `/${placeOf(`${DECISIONS}/README.md`)}`
  if (allPages().some((page) => page.path === path)) return `/${placeOf(path)}`
  if (/\.(?:svg|png)$/.test(path)) return `/${path.replace(/^docs\//, '')}` // an image of the page, which Vite takes along
  if (!existsSync(join(ROOT, path)) || statSync(join(ROOT, path)).isDirectory()) return target // told as a dead link
  return `/${copyOf(path, publicFolder)}`
}

/** Beside the pages; what a browser has no word for is text. @returns its place on the site */
function copyOf(path: string, publicFolder: string): string {
  const isKnown = /\.(?:json|yaml|ts)$/.test(path)
  const place = path.replace(/^docs\//, '') + (isKnown ? '' : '.txt')
  mkdirSync(dirname(join(publicFolder, place)), { recursive: true })
  copyFileSync(join(ROOT, path), join(publicFolder, place))
  return place
}

function decisions(): string {
  const { pages } = sections.find(({ name }) => name === 'Decisions')!
  const rows = pages.map(({ path, name }) => `- [${name}](./${basename(placeOf(path))})`)
  return `# Decisions\n\nWhat one would explain twice is written down once, with what was measured.\n\n${rows.join('\n')}\n`
}
