/** The demo as a broker serves it: a page that acts as a peer in the browser, built in memory from its sources. */
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Asset, PAGE_NAME, type ServedPage, servePage } from '@sealpost/ui/served-page'

/** Handles every request under `DEMO_PATH`. */
export type Demo = ServedPage

export const DEMO_PATH = '/demo'
const FOLDER = `${DEMO_PATH}/`

/**
 * `wasm-unsafe-eval` allows WebAssembly (libsodium) but not `eval`. The page's one trusted type registers its worker;
 * no other text becomes code.
 */
const ALLOWS = { scripts: "'wasm-unsafe-eval'", trustedTypes: 'sealpost' }

/** Builds the page once. @throws OperatingError `demo_not_built` */
export async function openDemo(): Promise<Demo> {
  return servePage({ folder: FOLDER, allows: ALLOWS, assets: await buildPage(FOLDER) })
}

const SOURCES = [PAGE_NAME, 'offline.ts'].map((name) => join(import.meta.dirname, 'page', name))
const NAMING = { entry: '[name].[ext]', chunk: '[name]-[hash].[ext]', asset: '[name]-[hash].[ext]' }

/**
 * Returns the assets by name. `publicPath` is the path from which the page loads them, with a slash at both ends.
 * @throws OperatingError `demo_not_built` when a source is missing or wrong
 */
async function buildPage(publicPath: string): Promise<ReadonlyMap<string, Asset>> {
  const built = await Bun.build({
    entrypoints: SOURCES,
    target: 'browser',
    minify: true,
    publicPath,
    naming: NAMING,
    define: { 'process.env.NODE_ENV': '"production"' },
  }).catch((cause) => {
    throw new OperatingError('demo_not_built', 'The page of the demo could not be built from its sources.', { cause })
  })
  const assets = built.outputs.map(async (output): Promise<[string, Asset]> => {
    const name = output.path.replace(/^\.\//, '')
    const bytes = new Uint8Array(await output.arrayBuffer())
    return [name, { type: output.type, bytes, isImmutable: output.hash !== null && name.includes(output.hash) }]
  })
  return new Map(await Promise.all(assets))
}
