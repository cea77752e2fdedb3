/** Serves `/.well-known/sealpost`: what a client must know before it connects. */

import { OpenAPIHono } from '@hono/zod-openapi'
import type { EngineLimits } from '@sealpost/core'
import type { ShardCertificate } from '@sealpost/identity'
import { BATCH_MAX, ENVELOPE_BYTES_MIN, FRAME_BYTES_MAX, LOOKUP_MAX } from '@sealpost/protocol'
import { toBase64url } from '@sealpost/std'
import type { VersionFacts } from '../server/server.ts'
import { chunkRoutes, POLL_MAX, peerRoutes, unprovenRoutes, WAIT_SECONDS_MAX } from './mailbox/routes.ts'
import { TTL_SECONDS_MAX } from './tokens.ts'

/** The broker's features, named as in docs/PROTOCOL.md. */
const FEATURES = ['attachments', 'broadcast', 'groups', 'http', 'lookup', 'priorities', 'retry', 'time-to-live']

export interface Discovered {
  readonly facts: Pick<VersionFacts, 'brokerKey' | 'protocolVersions' | 'subprotocols'>
  readonly certificate: ShardCertificate | null
  readonly limits: EngineLimits
  readonly pollingIdleMs: number
}

export function discoveryOf({ facts, certificate, limits, pollingIdleMs }: Discovered) {
  return {
    brokerKey: facts.brokerKey,
    /** in base64url; absent if `brokerKey` is the pinned key */
    certificate: certificate && toBase64url(certificate.bytes),
    protocolVersions: facts.protocolVersions,
    subprotocols: facts.subprotocols,
    webSocketPath: '/v1/ws',
    openApiPath: DOCUMENT_PATH,
    features: FEATURES,
    limits: {
      frameBytesMax: FRAME_BYTES_MAX,
      batchMax: BATCH_MAX,
      lookupMax: LOOKUP_MAX,
      envelopeBytesMin: ENVELOPE_BYTES_MIN,
      envelopeBytesMax: limits.envelopeBytesMax,
      ttlSecondsDefault: limits.ttlSecondsDefault,
      ttlSecondsMax: limits.ttlSecondsMax,
      creditMax: limits.creditMax,
      inFlightMax: limits.inFlightMax,
      leaseMs: limits.leaseMs,
      heartbeatMs: limits.heartbeatMs,
      dedupeSeconds: Math.floor(limits.dedupeMs / 1000),
      rate: limits.rate,
      tokenTtlSecondsMax: TTL_SECONDS_MAX,
      pollMax: POLL_MAX,
      pollWaitSecondsMax: WAIT_SECONDS_MAX,
      pollingIdleMs,
    },
  }
}

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
