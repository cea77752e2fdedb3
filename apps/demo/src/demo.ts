/** The demo as a broker serves it: a page that becomes a peer in the browser. */
import { type Asset, buildPage, PAGE_NAME } from './build.ts'

export interface Demo {
  /** For every request under `DEMO_PATH`. */
  answer(request: Request): Response
}

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

const HEADERS = {
  'Content-Security-Policy': POLICY,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
}
const FOREVER = 'public, max-age=31536000, immutable'

interface Served {
  readonly asset: Asset
  readonly headers: Readonly<Record<string, string>>
  readonly etag: string
  readonly gzipped: Uint8Array<ArrayBuffer>
}

/** Builds the page once. @throws OperatingError `demo_not_built` */
export async function openDemo(): Promise<Demo> {
  const assets = await buildPage(FOLDER)
  const served = new Map([...assets].map(([name, asset]) => [name === PAGE_NAME ? '' : name, prepare(asset)]))
  return {
    answer: (request) => {
      const { pathname } = new URL(request.url)
      if (pathname === DEMO_PATH) return new Response(null, { status: 308, headers: { Location: FOLDER } })
      const found = served.get(pathname.slice(FOLDER.length))
      if (!found) return Response.json({ code: 'not_found' }, { status: 404 })
      return answer(request, found)
    },
  }
}

function prepare(asset: Asset): Served {
  const etag = `"${new Bun.CryptoHasher('sha256').update(asset.bytes).digest('hex').slice(0, 32)}"`
  const headers = {
    ...HEADERS,
    'Content-Type': asset.type,
    'Cache-Control': asset.isImmutable ? FOREVER : 'no-cache',
    ETag: etag,
    Vary: 'Accept-Encoding',
  }
  return { asset, headers, etag, gzipped: Bun.gzipSync(asset.bytes) }
}

function answer(request: Request, { asset, headers, etag, gzipped }: Served): Response {
  if (request.headers.get('if-none-match')?.includes(etag)) return new Response(null, { status: 304, headers })
  if (!/\bgzip\b/.test(request.headers.get('accept-encoding') ?? '')) return new Response(asset.bytes, { headers })
  return new Response(gzipped, { headers: { ...headers, 'Content-Encoding': 'gzip' } })
}
