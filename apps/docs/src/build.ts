/** Builds the site: `bun run docs:build [FOLDER]`, by default in `apps/docs/dist`. Fails on a dead link. */
import { cpSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { build } from 'vitepress'
import { stage } from './stage.ts'

const OWN = join(import.meta.dirname, '..')
const folder = resolve(process.argv[2] ?? join(OWN, 'dist'))

const pages = join(OWN, 'pages') // as `.vitepress/config.ts` names it
stage(pages)
process.chdir(OWN) // VitePress looks for Vue from here
await build(OWN, { outDir: folder })
// Programs read each page as Markdown.
cpSync(pages, folder, { recursive: true, filter: (path) => !path.startsWith(join(pages, 'public')) })
