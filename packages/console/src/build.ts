/** Builds the page where a broker looks for it: `bun packages/console/src/build.ts [FOLDER PUBLIC_PATH]`. */
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { build } from 'vite'
import { CONSOLE_FOLDER, sourcesHash } from './console.ts'

const [publicPath = CONSOLE_FOLDER] = process.argv.slice(3)
const [folder = join(import.meta.dirname, '../dist', sourcesHash(publicPath))] = process.argv.slice(2)

await mkdir(dirname(folder), { recursive: true })
const fresh = await mkdtemp(join(dirname(folder), 'new-'))
await build({
  configFile: false,
  root: join(import.meta.dirname, 'page'),
  base: publicPath,
  logLevel: 'error',
  // The page's policy forbids inlined assets.
  build: { outDir: fresh, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: false, target: 'es2023' },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
})
await rename(fresh, folder).catch(() => rm(fresh, { recursive: true })) // another process won the race; keep its folder
for (const name of await readdir(dirname(folder)))
  if (/^[0-9a-f]{16}$/.test(name) && join(dirname(folder), name) !== folder)
    await rm(join(dirname(folder), name), { recursive: true, force: true })
