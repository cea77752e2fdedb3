/**
 * The OpenAPI document of the admin API, generated from the routes; `bun scripts/descriptions.ts` writes it to a file.
 */
import { OpenAPIHono } from '@hono/zod-openapi'
import { ADMIN_PATH, adminApiRoutes } from './routes.ts'

export const ADMIN_DOCUMENT_PATH = `${ADMIN_PATH}/openapi.json`

export function adminDocument() {
  const described = new OpenAPIHono()
  const registry = described.openAPIRegistry
  registry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer' })
  for (const route of adminApiRoutes) registry.registerPath(route)
  return described.getOpenAPI31Document({
    openapi: '3.1.0',
    info: {
      title: 'Sealpost admin API',
      version: '1',
      description:
        'Served on the private port of a broker. Authenticate with a token of `sealpost admin token create`.',
    },
  })
}

export const adminDocumentText = (): string => `${JSON.stringify(adminDocument(), null, 2)}\n`
