/** The demo as a broker serves it: a page that becomes a peer in the browser. */
import { buildPage } from './build.ts'
import { type ServedPage, servePage } from './served-page.ts'

/** For every request under `DEMO_PATH`. */
export type Demo = ServedPage

export const DEMO_PATH = '/demo'
const FOLDER = `${DEMO_PATH}/`

/**
 * Nothing but what was served with the page runs, is loaded or is asked. `wasm-unsafe-eval` allows WebAssembly
 * (libsodium) and no `eval`; trusted types forbid every way from text to markup, and from text to code but the one by
 * which the page registers its worker.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types sealpost',
].join('; ')

/** Builds the page once. @throws OperatingError `demo_not_built` */
export async function openDemo(): Promise<Demo> {
  return servePage({ folder: FOLDER, policy: POLICY, assets: await buildPage(FOLDER) })
}
