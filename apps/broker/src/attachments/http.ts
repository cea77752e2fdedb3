/** Serves attachments over HTTP: routes, handlers, and the transfer of chunks through this process. */

import { createRoute, z } from '@hono/zod-openapi'
import { CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNKS_MAX } from '@sealpost/identity'
import { FANOUT_MAX } from '@sealpost/protocol'
import { type AttachmentId, fromBase64url, type GroupId, type PeerKey, toBase64url } from '@sealpost/std'
import type { MiddlewareHandler } from 'hono'
import { body, hex, json, security } from '../http/json-schema.ts'
import { base64url, type Env, type HttpApi, type RequestLimits, refusals } from '../http/route-parts.ts'
import { type HttpRefusal, isRefused, refuse, shareNameOf, type TokenHolder } from '../http/tokens.ts'
import { PaceWatch, readAtPace, type TransferPace } from '../server/connection.ts'
import type { AttachmentRequests } from './attachments.ts'

const Mesh = z.object({ mesh: hex(16) })
const One = Mesh.extend({ id: hex(16) })
/** A chunk number without leading zeros, so that each chunk has one path. */
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
      'The uploaded chunks, as ranges from first to last. For a complete attachment, the hashes of all chunks, as base64url.',
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
    204: { description: 'The attachment can now be fetched.' },
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
    204: { description: 'The attachment is deleted.' },
    ...refusals('token_invalid', 'attachment_unknown'),
  },
})

export const putChunk = createRoute({
  method: 'put',
  path: `${PATH}/{id}/chunks/{chunk}`,
  summary: 'Upload one chunk; you can upload chunks in any order and repeatedly',
  security,
  request: {
    params: OneChunk,
    query: z.strictObject({ hash: base64url(32) }),
    body: { required: true, content: binary },
  },
  responses: {
    204: { description: 'The chunk is stored.' },
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

/** The routes under a peer's request limits, then those under its chunk limits. */
export const attachmentRoutes = [createAttachment, attachmentStatus, completeAttachment, endAttachment]
export const chunkRoutes = [putChunk, getChunk]

export interface ChunkCounters {
  taken: number
  takenBytes: number
  given: number
  givenBytes: number
}

export interface AttachmentParts {
  readonly attachments: AttachmentRequests
  readonly transit: Transit
  readonly chunkers: RequestLimits
  readonly meshes: RequestLimits
  readonly counters: ChunkCounters
}

const NO_ROOM: HttpRefusal = { code: 'try_later', retryAfterMs: 1000 }
const PIECE_BYTES = 64 * 1024
/** The minimum pace of a transfer, below which it is cut to free its memory. */
const PACE: TransferPace = { bytesPerSecond: 16 * 1024, startMs: 5_000 }
const TOO_SLOW: HttpRefusal = { code: 'body_too_slow' }

export function addAttachments(app: HttpApi, parts: AttachmentParts): void {
  const { attachments } = parts
  for (const route of [...attachmentRoutes, ...chunkRoutes]) app.on(route.method, route.getRoutingPath(), ownMesh)
  app.openapi(createAttachment, async (c) => {
    const { id, recipients, group, ...asked } = c.req.valid('json')
    const to = group === undefined ? [...new Set(recipients as PeerKey[])] : (group as GroupId)
    const made = await attachments.create(c.var.holder, { ...asked, id: id as AttachmentId, to })
    return isRefused(made) ? refuse(c, made) : c.json({ id, ...made }, 200)
  })
  app.openapi(attachmentStatus, async (c) => {
    const status = await attachments.status(c.var.holder, c.req.valid('param').id as AttachmentId)
    if (isRefused(status)) return refuse(c, status)
    const present = status.present.map(([first, last]): [number, number] => [first, last])
    return c.json({ ...status, present, hashes: status.hashes && toBase64url(status.hashes) }, 200)
  })
  app.openapi(completeAttachment, async (c) => {
    const hash = bytesOf(c.req.valid('json').hash)
    const refused = hash
      ? await attachments.complete(c.var.holder, c.req.valid('param').id as AttachmentId, hash)
      : ({ code: 'body_malformed' } as const)
    return refused ? refuse(c, refused) : c.body(null, 204)
  })
  app.openapi(endAttachment, async (c) => {
    const refused = await attachments.end(c.var.holder, c.req.valid('param').id as AttachmentId)
    return refused ? refuse(c, refused) : c.body(null, 204)
  })
  addChunks(app, parts)
}

/** Hides other meshes from the holder of a token. */
const ownMesh: MiddlewareHandler<Env> = async (c, next) =>
  c.req.param('mesh') === c.var.holder.meshId ? next() : refuse(c, { code: 'attachment_unknown' })

function addChunks(app: HttpApi, parts: AttachmentParts): void {
  app.openapi(putChunk, async (c) => {
    const { id, chunk } = c.req.valid('param')
    const refused = await take(parts, c.var.holder, {
      id: id as AttachmentId,
      chunkNo: chunk,
      hash: bytesOf(c.req.valid('query').hash),
      body: c.req.raw,
    })
    return refused ? refuse(c, refused) : c.body(null, 204)
  })
  app.openapi(getChunk, async (c) => {
    const { id, chunk } = c.req.valid('param')
    const given = await give(parts, c.var.holder, id as AttachmentId, chunk)
    return isRefused(given) ? refuse(c, given) : given
  })
}

interface Arriving {
  readonly id: AttachmentId
  readonly chunkNo: number
  readonly hash: Uint8Array | null
  readonly body: Request
}

async function take(
  parts: AttachmentParts,
  holder: TokenHolder,
  { id, chunkNo, hash, body }: Arriving,
): Promise<HttpRefusal | null> {
  if (!hash) return { code: 'query_malformed' }
  const done = beginTurn(parts, holder)
  if (isRefused(done)) return done
  try {
    const found = await parts.attachments.own(holder, id)
    if (isRefused(found)) return found
    const leave = takeRoom(parts, holder)
    if (isRefused(leave)) return leave
    try {
      const content = await readAtPace(body, PACE)
      if (!content) return TOO_SLOW
      const refused = await parts.attachments.put({ meshId: holder.meshId, id }, found, { chunkNo, hash, content })
      if (!refused) count(parts.counters, 'taken', content)
      return refused
    } finally {
      leave()
    }
  } finally {
    done()
  }
}

async function give(
  parts: AttachmentParts,
  holder: TokenHolder,
  id: AttachmentId,
  chunkNo: number,
): Promise<Response | HttpRefusal> {
  const done = beginTurn(parts, holder)
  if (isRefused(done)) return done
  const chunk = await chunkInRoom(parts, holder, { id, chunkNo }).catch((error) => {
    done()
    throw error
  })
  if (isRefused(chunk)) {
    done()
    return chunk
  }
  const { content, leave } = chunk
  count(parts.counters, 'given', content)
  const end = () => {
    leave()
    done()
  }
  return new Response(inPieces(content, end), { headers: { 'Content-Type': 'application/octet-stream' } })
}

interface ChunkInRoom {
  readonly content: Uint8Array
  readonly leave: () => void
}

async function chunkInRoom(
  parts: AttachmentParts,
  holder: TokenHolder,
  { id, chunkNo }: { id: AttachmentId; chunkNo: number },
): Promise<ChunkInRoom | HttpRefusal> {
  const found = await parts.attachments.readable(holder, id)
  if (isRefused(found)) return found
  const leave = takeRoom(parts, holder)
  if (isRefused(leave)) return leave
  const chunk = await parts.attachments.get({ meshId: holder.meshId, id }, found, chunkNo).catch((error) => {
    leave()
    throw error
  })
  if (!isRefused(chunk)) return { content: chunk.content, leave }
  leave()
  return chunk
}

/** Counts a chunk of this peer as in transit until the returned function is called, or refuses it. */
function beginTurn({ chunkers }: AttachmentParts, holder: TokenHolder): (() => void) | HttpRefusal {
  const name = shareNameOf(holder)
  return chunkers.begin(name) ?? once(() => chunkers.done(name))
}

/** Reserves memory for a chunk, within the limit for all meshes and this mesh's share. */
function takeRoom({ transit, meshes }: AttachmentParts, { meshId }: TokenHolder): (() => void) | HttpRefusal {
  if (meshes.begin(meshId)) return NO_ROOM
  const giveBack = transit.take(CHUNK_BYTES_MAX)
  const leave = once(() => {
    giveBack?.()
    meshes.done(meshId)
  })
  if (giveBack) return leave
  leave()
  return NO_ROOM
}

function once(act: () => void): () => void {
  let isDone = false
  return () => {
    if (!isDone) act()
    isDone = true
  }
}

/** Serves a chunk. Its memory is released with the last byte. */
function inPieces(content: Uint8Array, leave: () => void): ReadableStream<Uint8Array> {
  let at = 0
  let watch: PaceWatch
  const end = () => {
    watch.stop()
    leave()
  }
  return new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        watch = new PaceWatch(PACE, () => {
          leave()
          controller.error(new Error('too slow'))
        })
      },
      pull: (controller) => {
        watch.passed(Math.min(PIECE_BYTES, at))
        controller.enqueue(content.subarray(at, at + PIECE_BYTES))
        at += PIECE_BYTES
        if (at < content.length) return
        end()
        controller.close()
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  )
}

function count(counters: ChunkCounters, way: 'taken' | 'given', { length }: Uint8Array): void {
  counters[way] += 1
  counters[`${way}Bytes`] += length
}

function bytesOf(text: string): Uint8Array | null {
  try {
    return fromBase64url(text)
  } catch {
    return null // the last character has invalid bits
  }
}

export class Transit {
  private readonly bytesMax: number
  private held = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  get bytes(): number {
    return this.held
  }

  /** Returns a function that releases the bytes once, or `null` if there is no space. */
  take(bytes: number): (() => void) | null {
    if (this.held + bytes > this.bytesMax) return null
    this.held += bytes
    let isHeld = true
    return () => {
      if (isHeld) this.held -= bytes
      isHeld = false
    }
  }
}
