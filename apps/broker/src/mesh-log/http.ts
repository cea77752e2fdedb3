/** Serves the transparent log of a mesh to its members: checkpoints, proofs and entries (docs/adr/0023). */
import { createRoute, z } from '@hono/zod-openapi'
import { concatBytes } from '@sealpost/identity'
import { entryKindOf, LEAVES_MAX } from '@sealpost/identity/log'
import type { Database } from '@sealpost/pg'
import { LOOKUP_MAX } from '@sealpost/protocol'
import { type PeerKey, toBase64url } from '@sealpost/std'
import { listLogEntries, type StoredEntry } from '@sealpost/store'
import { body, hex, json, security } from '../http/json-schema.ts'
import { type HttpApi, refusals } from '../http/route-parts.ts'
import { isRefused, refuse } from '../http/tokens.ts'
import type { MeshLogs } from './mesh-logs.ts'

/** The maximum number of signers in one request. */
const SIGNERS_MAX = 16
const ENTRIES_MAX = 256
/** The size from which a page of entries ends early. */
const PAGE_BYTES = 512 * 1024

const size = z.int().min(0).max(LEAVES_MAX)
const bytes = z.string().regex(/^[A-Za-z0-9_-]*$/)
const path = bytes.openapi({ description: 'the hashes of the proof, 32 bytes each, the lowest first' })

const checkpoint = createRoute({
  method: 'post',
  path: '/v1/log/checkpoint',
  summary: "Request a signed checkpoint of the mesh's log",
  security,
  request: {
    body: body(
      z
        .strictObject({ signers: z.array(hex(32)).max(SIGNERS_MAX).default([]) })
        .openapi('CheckpointQuery', { description: 'the signers of other checkpoints, to request their certificates' }),
    ),
  },
  responses: {
    200: json(
      z
        .object({
          checkpoint: bytes,
          certificate: bytes.nullable().openapi({ description: 'null if the pinned key signed the checkpoint' }),
          certificates: z.array(bytes).openapi({ description: 'the known certificates of `signers`' }),
        })
        .openapi('SignedCheckpoint'),
      'The checkpoint, and certificates of shards. Verify both.',
    ),
    ...refusals('body_malformed', 'token_invalid', 'log_incomplete', 'log_broken'),
  },
})

const inclusion = createRoute({
  method: 'post',
  path: '/v1/log/inclusion',
  summary: 'Request proofs that statements are in the log of a size',
  security,
  request: {
    body: body(z.strictObject({ size, leaves: z.array(hex(32)).min(1).max(LOOKUP_MAX) }).openapi('InclusionQuery')),
  },
  responses: {
    200: json(
      z
        .object({
          proofs: z.array(
            z.object({
              leaf: hex(32),
              index: size.nullable().openapi({ description: 'null if the log of this size has no such leaf' }),
              path,
            }),
          ),
        })
        .openapi('InclusionProofs'),
      'A proof for each leaf, in their order.',
    ),
    ...refusals('body_malformed', 'token_invalid', 'log_size_unknown', 'log_broken'),
  },
})

const consistency = createRoute({
  method: 'post',
  path: '/v1/log/consistency',
  summary: 'Request a proof that the log of one size begins with the log of another',
  security,
  request: { body: body(z.strictObject({ from: size, to: size }).openapi('ConsistencyQuery')) },
  responses: {
    200: json(z.object({ path }).openapi('ConsistencyProof'), 'The proof.'),
    ...refusals('body_malformed', 'token_invalid', 'log_size_unknown', 'log_broken'),
  },
})

const entries = createRoute({
  method: 'get',
  path: '/v1/log/entries',
  summary: 'List the entries of the log',
  security,
  request: {
    query: z.strictObject({
      from: z
        .string()
        .regex(/^\d{1,10}$/)
        .transform(Number)
        .pipe(size)
        .openapi({ type: 'integer', minimum: 0, maximum: LEAVES_MAX }),
    }),
  },
  responses: {
    200: json(
      z
        .object({ entries: z.array(z.object({ kind: z.string(), statement: bytes })).max(ENTRIES_MAX) })
        .openapi('LogEntries'),
      'The next entries from number `from` on, in their order; none at the end of the log.',
    ),
    ...refusals('query_malformed', 'token_invalid'),
  },
})

export const logRoutes = [checkpoint, inclusion, consistency, entries]

export function addMeshLog(app: HttpApi, { db, logs }: { readonly db: Database; readonly logs: MeshLogs }): void {
  app.openapi(checkpoint, async (c) => {
    const { meshId } = c.var.holder
    const signed = await logs.checkpoint(meshId)
    if (isRefused(signed)) return refuse(c, signed)
    const { signers } = c.req.valid('json')
    const certificates = signers.length === 0 ? [] : await logs.certificatesOf(meshId, signers as PeerKey[])
    return c.json(
      {
        checkpoint: toBase64url(signed.checkpoint),
        certificate: signed.certificate && toBase64url(signed.certificate),
        certificates: certificates.map(toBase64url),
      },
      200,
    )
  })
  app.openapi(inclusion, async (c) => {
    const proofs = await logs.inclusion(c.var.holder.meshId, c.req.valid('json'))
    if (isRefused(proofs)) return refuse(c, proofs)
    return c.json({ proofs: proofs.map((proof) => ({ ...proof, path: pathText(proof.path) })) }, 200)
  })
  app.openapi(consistency, async (c) => {
    const hashes = await logs.consistency(c.var.holder.meshId, c.req.valid('json'))
    return isRefused(hashes) ? refuse(c, hashes) : c.json({ path: pathText(hashes) }, 200)
  })
  app.openapi(entries, async (c) => {
    const { from } = c.req.valid('query')
    const found = await listLogEntries(db, c.var.holder.meshId, { from, limit: ENTRIES_MAX })
    return c.json({ entries: firstBytes(found).map(entryJson) }, 200)
  })
}

/** Returns the first entry, and those after it up to the size of a page. */
function firstBytes(found: readonly StoredEntry[]): readonly StoredEntry[] {
  let total = 0
  const end = found.findIndex(({ statement }) => {
    total += statement.length
    return total > PAGE_BYTES
  })
  return end < 0 ? found : found.slice(0, Math.max(end, 1))
}

const entryJson = ({ kind, statement }: StoredEntry) => ({
  kind: entryKindOf(kind) ?? String(kind),
  statement: toBase64url(statement),
})

const pathText = (hashes: readonly Uint8Array[]): string => toBase64url(concatBytes(hashes))
