/** The OpenAPI document, generated from the routes; `bun scripts/descriptions.ts` writes it to a file. */
import { OpenAPIHono } from '@hono/zod-openapi'
import { chunkRoutes, peerRoutes, unprovenRoutes } from './mailbox/routes.ts'

export const DOCUMENT_PATH = '/v1/openapi.json'

export function openApiDocument() {
  const described = new OpenAPIHono()
  const registry = described.openAPIRegistry
  registry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer' })
  for (const route of [...unprovenRoutes, ...peerRoutes, ...chunkRoutes]) registry.registerPath(route)
  return described.getOpenAPI31Document({
    openapi: '3.1.0',
    info: {
      title: 'Sealpost HTTP API',
      version: '1',
      description: 'For clients without a socket. docs/PROTOCOL.md describes the semantics.',
    },
  })
}

export const openApiText = (): string => `${JSON.stringify(openApiDocument(), null, 2)}\n`
