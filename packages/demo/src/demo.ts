/** Serves the demo, a page that is a peer. It is built in memory from its sources. */
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Asset, PAGE_NAME, readAssets, type ServedPage, servePage } from '@sealpost/ui/served-page'

/** Handles every request under `DEMO_PATH`. */
export type Demo = ServedPage

export const DEMO_PATH = '/demo'
const FOLDER = `${DEMO_PATH}/`

/** Allows WebAssembly (libsodium) but not `eval`, and a Trusted Types policy for the worker only. */
const ALLOWS = { scripts: "'wasm-unsafe-eval'", trustedTypes: 'sealpost' }

/** Builds the page once, if the program does not contain it. @throws OperatingError `demo_not_built` */
export async function openDemo(): Promise<Demo> {
  const assets = Bun.isStandaloneExecutable ? readAssets(EMBEDDED, hasHash) : await buildDemo()
  return servePage({ folder: FOLDER, allows: ALLOWS, assets })
}

const EMBEDDED = join(import.meta.dirname, 'demo')
/** Returns whether the name contains a hash, as in `NAMING`. */
const hasHash = (name: string): boolean => /-[0-9a-z]{8}\.\w+$/.test(name)

const SOURCES = [PAGE_NAME, 'offline.ts'].map((name) => join(import.meta.dirname, 'page', name))
const NAMING = { entry: '[name].[ext]', chunk: '[name]-[hash].[ext]', asset: '[name]-[hash].[ext]' }

/**
 * Returns the assets by name, loaded from `FOLDER`.
 * @throws OperatingError `demo_not_built` if a source is missing or doesn't build
 */
export async function buildDemo(): Promise<ReadonlyMap<string, Asset>> {
  const built = await Bun.build({
    entrypoints: SOURCES,
    target: 'browser',
    minify: true,
    publicPath: FOLDER,
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
