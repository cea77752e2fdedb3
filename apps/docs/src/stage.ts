/**
 * Writes the documentation into a folder for VitePress: pages under their names on the site, with rewritten links, and the
 * other files that they link to.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { withLinks } from './links.ts'
import { llmsFullText, llmsText } from './llms.ts'
import { allPages, machineFiles, placeOf, ROOT, sections } from './pages.ts'

const OWN = join(import.meta.dirname, '..')
const DECISIONS = 'docs/adr'

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

/** Returns the address on the site of a file or folder of the repository. */
function moved(target: string, publicFolder: string): string {
  const path = target.replace(/\/$/, '')
  if (path === DECISIONS) return `/${placeOf(`${DECISIONS}/README.md`)}`
  if (allPages().some((page) => page.path === path)) return `/${placeOf(path)}`
  if (/\.(?:svg|png)$/.test(path)) return `/${path.replace(/^docs\//, '')}` // Vite copies images
  if (!existsSync(join(ROOT, path)) || statSync(join(ROOT, path)).isDirectory()) return target // reported as a dead link
  return `/${copyOf(path, publicFolder)}`
}

/** Copies the file next to the pages, as text if browsers don't display its type. @returns its path on the site */
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
  return `# Decisions\n\nEach page explains one decision, with its measurements.\n\n${rows.join('\n')}\n`
}
