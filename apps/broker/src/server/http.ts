/** Everything that is plain HTTP. `/livez` never touches Postgres, `/readyz` does; figures are on the private port only. */
import { CONSOLE_PATH, type Console } from '@sealpost/console'
import { DEMO_PATH, type Demo } from '@sealpost/demo'
import { type Context, Hono } from 'hono'

const DISCOVERY_PATH = '/.well-known/sealpost'

export interface VersionFacts {
  readonly version: string
  readonly gitSha: string
  readonly protocolVersions: readonly number[]
  readonly subprotocols: readonly string[]
  readonly brokerKey: string
  readonly shard: string
  readonly limits: 'on' | 'off'
  readonly durability: 'fsync' | 'degraded'
  readonly postgres: string
}

export interface HttpParts {
  readonly facts: VersionFacts
  /** What `/.well-known/sealpost` answers. */
  readonly discovery: object
  /** Resolves when the database answers and the broker takes sessions; rejects otherwise. */
  readonly isReady: () => Promise<void>
  readonly scrape: () => Promise<string>
  /** What an operator should look at though the broker is ready; a line each. */
  readonly warnings: () => readonly string[]
}

export function publicRoutes(parts: HttpParts): Hono {
  return routes(parts, () => 'ok')
}

function routes(parts: HttpParts, ready: () => string): Hono {
  const app = new Hono()
  // No commit and no version of Postgres: which faults they have is known, and clients prove nothing here.
  const { gitSha: _, postgres: __, ...publicFacts } = parts.facts
  app.get('/livez', (c) => c.text('ok'))
  app.get('/readyz', async (c) => {
    try {
      await parts.isReady()
      return c.text(ready())
    } catch {
      return c.text('not ready', 503) // the reason is in the log; a stranger need not know it
    }
  })
  app.get('/version', (c) => c.json(publicFacts))
  app.get(DISCOVERY_PATH, (c) => c.json(parts.discovery))
  for (const path of ['/livez', '/readyz', '/version', DISCOVERY_PATH]) app.all(path, methodNotAllowed)
  app.notFound((c) => c.json({ code: 'not_found' }, 404))
  app.onError((_, c) => c.json({ code: 'internal' }, 500))
  return app
}

/** Names what a path asks for by the route that answers it, so that nothing of what somebody made up is told; else `other`. */
export function routesOf({
  routes,
}: {
  readonly routes: readonly { readonly path: string }[]
}): (pathname: string) => string {
  const named = [...new Set(routes.map(({ path }) => path).filter((path) => !path.includes('*')))].map((path) => {
    const pattern = path.replace(/[.+?]/g, '\\$&').replace(/:\w+(\{[^}]*\})?/g, '[^/]+')
    return [path, new RegExp(`^${pattern}$`)] as const
  })
  const plain = new Set(named.map(([path]) => path).filter((path) => !path.includes(':')))
  return (pathname) =>
    (plain.has(pathname) ? pathname : undefined) ?? named.find(([, pattern]) => pattern.test(pathname))?.[0] ?? 'other'
}

/** Mounts the page of the demo. */
export function withDemo(app: Hono, demo: Demo): Hono {
  for (const path of [DEMO_PATH, `${DEMO_PATH}/*`]) {
    app.get(path, (c) => demo.answer(c.req.raw))
    app.all(path, methodNotAllowed)
  }
  return app
}

/** Mounts the page of the console. */
export function withConsole(app: Hono, console: Console): Hono {
  for (const path of [CONSOLE_PATH, `${CONSOLE_PATH}/*`]) {
    app.get(path, (c) => console.answer(c.req.raw))
    app.all(path, methodNotAllowed)
  }
  return app
}

export function adminRoutes(parts: HttpParts): Hono {
  const app = routes(parts, () => ['ok', ...parts.warnings()].join('\n'))
  app.get('/metrics', async (c) => c.text(await parts.scrape(), 200, { 'Content-Type': 'text/plain; version=0.0.4' }))
  app.all('/metrics', methodNotAllowed)
  return app
}

const methodNotAllowed = (c: Context) => c.json({ code: 'method_not_allowed' }, 405, { Allow: 'GET, HEAD' })
