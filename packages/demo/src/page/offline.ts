/**
 * Runs a service worker that caches the page and its assets. It requests the page from the broker first, so that a new
 * version is shown; assets never change.
 */

interface WorkerEvent {
  readonly request: Request
  respondWith(answer: Promise<Response>): void
  waitUntil(work: Promise<unknown>): void
}
interface Worker {
  addEventListener(type: 'install' | 'fetch', listener: (event: WorkerEvent) => void): void
}

const KEPT = 'sealpost page'
const PAGE = new URL('./', location.href).href
const BROKER_WITHIN_MS = 4_000

const worker = self as unknown as Worker
worker.addEventListener('install', (event) => event.waitUntil(newestPage()))
worker.addEventListener('fetch', (event) => {
  const { method, mode, url } = event.request
  if (method !== 'GET' || !url.startsWith(PAGE)) return
  event.respondWith(mode === 'navigate' ? anyPage() : partOfPage(event.request))
})

async function anyPage(): Promise<Response> {
  try {
    return await newestPage()
  } catch (error) {
    const kept = await caches.match(PAGE)
    if (kept) return kept
    throw error
  }
}

async function newestPage(): Promise<Response> {
  const page = await fetch(PAGE, { signal: AbortSignal.timeout(BROKER_WITHIN_MS) })
  if (page.ok) await keep(page.clone())
  return page
}

async function partOfPage(request: Request): Promise<Response> {
  return (await caches.match(request)) ?? fetch(request)
}

/** Caches the assets first, so that a cached page is complete. */
async function keep(page: Response): Promise<void> {
  const cache = await caches.open(KEPT)
  const parts = partsOf(await page.clone().text())
  for (const part of parts) if (!(await cache.match(part))) await cache.add(part)
  await cache.put(PAGE, page)
  for (const { url } of await cache.keys()) if (url !== PAGE && !parts.includes(url)) await cache.delete(url)
}

/** Returns the quoted addresses below the page's folder. */
function partsOf(html: string): string[] {
  const { pathname, origin } = new URL(PAGE)
  const addresses = [...html.matchAll(/"([^"]+)"/g)].map(([, address]) => address!)
  return addresses.filter((address) => address.startsWith(pathname)).map((address) => origin + address)
}
