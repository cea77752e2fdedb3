import { createRoute, z } from '@hono/zod-openapi'
import { CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNKS_MAX } from '@sealpost/identity'
import { FANOUT_MAX } from '@sealpost/protocol'
import { body, hex, json, security } from '../http/json-schema.ts'
import { base64url, refusals } from '../http/route-parts.ts'

const Mesh = z.object({ mesh: hex(16) })
const One = Mesh.extend({ id: hex(16) })
/** Without leading zeros, so that a chunk has one path. */
const ChunkNo = z.string().regex(/^(0|[1-9]\d{0,4})$/).transform(Number).openapi({ type: 'integer', minimum: 0, maximum: CHUNKS_MAX - 1 }) // biome-ignore format: one thing
const OneChunk = One.extend({ chunk: ChunkNo })
const PATH = '/v1/meshes/{mesh}/attachments'
const binary = { 'application/octet-stream': { schema: z.string().openapi({ format: 'binary' }) } }

const Create = z
  .strictObject({
    id: hex(16),
    bytes: z.int().min(1).max(Number.MAX_SAFE_INTEGER),
    chunkBytes: z.int().min(CHUNK_BYTES_MIN).max(CHUNK_BYTES_MAX),
    keepSeconds: z.int().min(0).max(2 ** 31 - 1).default(0), // biome-ignore format: one thing
    recipients: z.array(hex(32)).min(1).max(FANOUT_MAX).optional(),
    group: hex(16).optional(),
  })
  .refine(({ recipients, group }) => (recipients === undefined) !== (group === undefined))
  .refine(({ bytes, chunkBytes }) => Math.ceil(bytes / chunkBytes) <= CHUNKS_MAX)
  .openapi('NewAttachment')

export const createAttachment = createRoute({
  method: 'post',
  path: PATH,
  summary:
    'Reserves space for a sealed file, for these recipients or for the members of a group at the time of the download',
  security,
  request: { params: Mesh, body: body(Create) },
  responses: {
    200: json(
      z.object({ id: hex(16), expiresAtMs: z.int() }).openapi('RoomForAttachment'),
      'The deadline for its chunks. Repeating the request has no further effect.',
    ),
    ...refusals(
      ...(['body_malformed', 'token_invalid', 'attachment_unknown', 'recipient_unknown', 'attachment_taken'] as const),
      ...(['attachment_too_large', 'quota_exceeded', 'mesh_quota_exceeded'] as const),
    ),
  },
})

export const attachmentStatus = createRoute({
  method: 'get',
  path: `${PATH}/{id}`,
  summary: 'Get the state of an attachment',
  security,
  request: { params: One },
  responses: {
    200: json(
      z
        .object({
          bytes: z.int(),
          chunkBytes: z.int(),
          isComplete: z.boolean(),
          expiresAtMs: z.int(),
          present: z.array(z.tuple([z.int(), z.int()])),
          hashes: z.string().nullable(),
        })
        .openapi('AttachmentStatus'),
      'The chunks that are there, as ranges from first to last; of a complete one the hashes of all, base64url.',
    ),
    ...refusals('token_invalid', 'attachment_unknown'),
  },
})

export const completeAttachment = createRoute({
  method: 'post',
  path: `${PATH}/{id}/complete`,
  summary: 'Complete an attachment',
  security,
  request: { params: One, body: body(z.strictObject({ hash: base64url(32) }).openapi('AttachmentHash')) },
  responses: {
    204: { description: 'It can now be fetched.' },
    ...refusals('body_malformed', 'token_invalid', 'attachment_unknown', 'chunk_missing', 'attachment_differs'),
  },
})

export const endAttachment = createRoute({
  method: 'delete',
  path: `${PATH}/{id}`,
  summary: 'Delete an attachment for all peers',
  security,
  request: { params: One },
  responses: {
    204: { description: 'It is deleted.' },
    ...refusals('token_invalid', 'attachment_unknown'),
  },
})

export const putChunk = createRoute({
  method: 'put',
  path: `${PATH}/{id}/chunks/{chunk}`,
  summary: 'Upload one chunk; chunks can arrive in any order and be repeated',
  security,
  request: {
    params: OneChunk,
    query: z.strictObject({ hash: base64url(32) }),
    body: { required: true, content: binary },
  },
  responses: {
    204: { description: 'It is stored.' },
    ...refusals(
      ...(['chunk_malformed', 'query_malformed', 'token_invalid', 'attachment_unknown', 'chunk_differs'] as const),
      'body_too_slow',
    ),
  },
})

export const getChunk = createRoute({
  method: 'get',
  path: `${PATH}/{id}/chunks/{chunk}`,
  summary: 'Fetch one chunk',
  security,
  request: { params: OneChunk },
  responses: {
    200: { description: 'The sealed chunk.', content: binary },
    ...refusals('token_invalid', 'attachment_unknown', 'chunk_missing'),
  },
})

/** Routes that count against a peer's request limits; then those that count against its chunk limits. */
export const attachmentRoutes = [createAttachment, attachmentStatus, completeAttachment, endAttachment]
export const chunkRoutes = [putChunk, getChunk]
