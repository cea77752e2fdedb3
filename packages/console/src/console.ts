/** Serves the console's static files, built by Vite on the first request. */

import { existsSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { OperatingError } from '@sealpost/std'
import { type Asset, filesBelow, readAssets, type ServedPage, servePage } from '@sealpost/ui/served-page'

/**
 * The page's sources. A separate process builds them, because Vite would stay in the broker's memory; an image builds
 * them in advance with `bun packages/console/src/build.ts`.
 */
const HERE = import.meta.dirname
const DIST = join(HERE, '../dist')
/** The built page inside the compiled program. */
const EMBEDDED = join(HERE, 'console')
const BUILT_WITHIN_MS = 120_000

/** Returns the assets by name, loaded from `publicPath`. @throws OperatingError `console_not_built` */
async function builtPage(publicPath: string): Promise<ReadonlyMap<string, Asset>> {
  const folder = Bun.isStandaloneExecutable ? EMBEDDED : join(DIST, sourcesHash(publicPath))
  if (!existsSync(folder)) await build(folder, publicPath)
  return readAssets(folder, (name) => name.startsWith('assets/'))
}

export function sourcesHash(publicPath: string): string {
  const hasher = new Bun.CryptoHasher('sha256').update(publicPath)
  const sources = filesBelow(join(HERE, 'page')).map((name) => join(HERE, 'page', name))
  const theme = fileURLToPath(import.meta.resolve('@sealpost/ui/theme.css'))
  for (const path of [...sources, theme, join(HERE, 'build.ts'), join(HERE, '../package.json')])
    hasher.update(relative(HERE, path)).update(readFileSync(path))
  return hasher.digest('hex').slice(0, 16)
}

async function build(folder: string, publicPath: string): Promise<void> {
  const child = Bun.spawn([process.execPath, join(HERE, 'build.ts'), folder, publicPath], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
    timeout: BUILT_WITHIN_MS,
  })
  const [said, code] = await Promise.all([new Response(child.stderr).text(), child.exited])
  if (code === 0 && existsSync(folder)) return
  const why = said.trim().split('\n').at(-1) ?? ''
  throw new OperatingError('console_not_built', `The console could not be built from its sources: ${why}`)
}

export interface Console {
  /** Replies to every request below `CONSOLE_PATH`. */
  answer(request: Request): Promise<Response>
}

export const CONSOLE_PATH = '/console'
export const CONSOLE_FOLDER = `${CONSOLE_PATH}/`

const ALLOWS = { trustedTypes: "'none'" }

/** Opens the console. `failed` receives a build's error; its request is answered with 503 and the code. */
export function openConsole(failed: (error: OperatingError) => void): Console {
  let page: Promise<ServedPage> | null = null
  const make = async () =>
    servePage({ folder: CONSOLE_FOLDER, allows: ALLOWS, assets: await builtPage(CONSOLE_FOLDER) })
  return {
    answer: async (request) => {
      page ??= make()
      try {
        return (await page).answer(request)
      } catch (error) {
        page = null // the next request tries again
        if (!(error instanceof OperatingError)) throw error
        failed(error)
        return Response.json({ code: error.code }, { status: 503 })
      }
    },
  }
}
