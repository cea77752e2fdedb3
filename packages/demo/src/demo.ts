/** The demo as a broker serves it: a page that becomes a peer in the browser. */

import { type ServedPage, servePage } from '@sealpost/ui/served-page'
import { buildPage } from './build.ts'

/** For every request under `DEMO_PATH`. */
export type Demo = ServedPage

export const DEMO_PATH = '/demo'
const FOLDER = `${DEMO_PATH}/`

/**
 * `wasm-unsafe-eval` allows WebAssembly (libsodium) and no `eval`; by the one trusted type the page registers its worker,
 * and no other text becomes code.
 */
const ALLOWS = { scripts: "'wasm-unsafe-eval'", trustedTypes: 'sealpost' }

/** Builds the page once. @throws OperatingError `demo_not_built` */
export async function openDemo(): Promise<Demo> {
  return servePage({ folder: FOLDER, allows: ALLOWS, assets: await buildPage(FOLDER) })
}
