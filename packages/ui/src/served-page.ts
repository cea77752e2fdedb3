/** Serves a page of static files, compressed, with ETags and a content security policy. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

export interface Asset {
  readonly type: string
  readonly bytes: Uint8Array<ArrayBuffer>
  /** Whether the name contains a hash of the contents. */
  readonly isImmutable: boolean
}

export interface ServedPage {
  /** Replies to requests for the folder, with or without its last slash, and below it. */
  answer(request: Request): Response
}

export interface PageParts {
  /** The path of the folder, which begins and ends with a slash. */
  readonly folder: string
  /** Additional script sources and trusted-types rules. */
  readonly allows: { readonly scripts?: string; readonly trustedTypes: string }
  /** The assets by name, with `index.html` at the folder's own path. */
  readonly assets: ReadonlyMap<string, Asset>
}

export const PAGE_NAME = 'index.html'

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

/** Returns the names of the files below `folder`, sorted. */
export const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .sort()

/** Returns the files of a built page by name. */
export function readAssets(folder: string, isImmutable: (name: string) => boolean): ReadonlyMap<string, Asset> {
  const assetOf = (name: string): Asset => ({
    type: TYPES[name.split('.').at(-1)!] ?? 'application/octet-stream',
    bytes: new Uint8Array(readFileSync(join(folder, name))),
    isImmutable: isImmutable(name),
  })
  return new Map(filesBelow(folder).map((name) => [name, assetOf(name)]))
}

const HEADERS = {
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

/** Returns the policy: only served code runs, requests go to the page's origin, and strings can't become markup. */
const policyOf = ({ scripts, trustedTypes }: PageParts['allows']): string =>
  [
    "default-src 'none'",
    ["script-src 'self'", scripts].filter(Boolean).join(' '),
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    `trusted-types ${trustedTypes}`,
  ].join('; ')

export function servePage({ folder, allows, assets }: PageParts): ServedPage {
  const policy = policyOf(allows)
  const served = new Map([...assets].map(([name, asset]) => [name === PAGE_NAME ? '' : name, prepare(asset, policy)]))
  return {
    answer: (request) => {
      const { pathname } = new URL(request.url)
      if (pathname === folder.slice(0, -1)) return new Response(null, { status: 308, headers: { Location: folder } })
      const found = served.get(pathname.slice(folder.length))
      if (!found) return Response.json({ code: 'not_found' }, { status: 404 })
      return answer(request, found)
    },
  }
}

function prepare(asset: Asset, policy: string): Served {
  const etag = `"${new Bun.CryptoHasher('sha256').update(asset.bytes).digest('hex').slice(0, 32)}"`
  const headers = {
    'Content-Security-Policy': policy,
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
