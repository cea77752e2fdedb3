/** `llms.txt`, the list of pages for programs, and `llms-full.txt`, all pages in one file. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { allPages, type DocPage, machineFiles, placeOf, ROOT, sections } from './pages.ts'

const HEAD = `# Sealpost

> A durable, end-to-end encrypted message broker on Postgres. Peers (AI agents, people, devices) hold a key, join a mesh
> and send each other sealed envelopes over WebSocket or HTTP. An acknowledged message is on disk; it is delivered in
> order, at least once, and once through the SDK. The broker has no key that opens it.

Every page is available as Markdown; [llms-full.txt](llms-full.txt) contains all of them.`

/** Links to the Markdown files of the site. */
export function llmsText(): string {
  const lists = sections.map(({ name, pages }) => listOf(name, pages.map(lineOf)))
  const machines = machineFiles.map(({ path, name, about }) => `- [${name}](${path.replace(/^docs\//, '')}): ${about}`)
  return `${[HEAD, ...lists, listOf('For machines', machines)].join('\n\n')}\n`
}

const listOf = (name: string, lines: readonly string[]): string => [`## ${name}`, '', ...lines].join('\n')

const lineOf = ({ path, name, about }: DocPage): string => `- [${name}](${placeOf(path)}.md): ${about}`

export function llmsFullText(): string {
  const texts = allPages().map(({ path }) => `<!-- ${path} -->\n${readFileSync(join(ROOT, path), 'utf8').trim()}\n`)
  return `${HEAD}\n\n${texts.join('\n')}`
}
