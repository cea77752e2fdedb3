/**
 * Stores chunks in S3, one object per chunk. A database row records each chunk, and is written after the object. A crash can
 * therefore leave an object without a row. It is deleted with its file, since all possible keys of a file are known.
 */
import { DeleteObjectsCommand, GetObjectCommand, NoSuchKey, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { type AttachmentRef, putChunk, readChunk } from '@sealpost/store'
import type { AttachmentConfig } from '../config/sections.ts'
import type { ChunkStore } from './attachments.ts'

/** The maximum number of keys per delete request of the S3 API. */
const DELETED_AT_ONCE = 1000
const ANSWER_WITHIN_MS = 20_000

export function s3Chunks(db: Database, config: AttachmentConfig): ChunkStore {
  const client = new S3Client(clientOptions(config))
  const { S3_BUCKET: Bucket, S3_PREFIX: prefix } = config
  const keyOf = ({ meshId, id }: AttachmentRef, chunkNo: number) => `${prefix}${meshId}/${id}/${chunkNo}`
  return {
    name: 's3',
    put: async (of, { chunkNo, hash, content }) => {
      const standing = await readChunk(db, of, chunkNo)
      if (standing) return Buffer.compare(standing.hash, hash) === 0 ? 'done' : 'differs'
      await asked(() =>
        client.send(new PutObjectCommand({ Bucket, Key: keyOf(of, chunkNo), Body: content }), bounded()),
      )
      return putChunk(db, of, { chunkNo, hash, content: null })
    },
    get: async (of, chunkNo) => {
      const chunk = await readChunk(db, of, chunkNo)
      if (!chunk) return undefined
      const content = await asked(() => getObject(client, { Bucket, Key: keyOf(of, chunkNo) }))
      return content ? { hash: chunk.hash, content } : undefined
    },
    forget: async ({ chunks, ...of }) => {
      for (let first = 0; first < chunks; first += DELETED_AT_ONCE) {
        const count = Math.min(DELETED_AT_ONCE, chunks - first)
        const Objects = Array.from({ length: count }, (_, i) => ({ Key: keyOf(of, first + i) }))
        const Delete = { Objects, Quiet: true }
        const { Errors = [] } = await asked(() => client.send(new DeleteObjectsCommand({ Bucket, Delete }), bounded()))
        if (Errors.length > 0) throw unavailable()
      }
    },
    close: () => client.destroy(),
  }
}

function clientOptions({ S3_ENDPOINT, S3_REGION, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY }: AttachmentConfig) {
  const credentials = { accessKeyId: S3_ACCESS_KEY_ID, secretAccessKey: S3_SECRET_ACCESS_KEY }
  return {
    region: S3_REGION,
    ...(S3_ENDPOINT && { endpoint: S3_ENDPOINT, forcePathStyle: true }),
    ...(S3_ACCESS_KEY_ID && { credentials }),
    // Readers verify each chunk by its Sealpost hash, and many compatible stores do not support trailing checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  } as const
}

const bounded = () => ({ abortSignal: AbortSignal.timeout(ANSWER_WITHIN_MS) })

/** Returns `null` if the object is missing or was not written by Sealpost. */
async function getObject(client: S3Client, object: { Bucket: string; Key: string }): Promise<Uint8Array | null> {
  try {
    const { Body, ContentLength = 0 } = await client.send(new GetObjectCommand(object), bounded())
    return Body && ContentLength <= CHUNK_BYTES_MAX ? await Body.transformToByteArray() : null
  } catch (error) {
    if (error instanceof NoSuchKey) return null
    throw error
  }
}

/** Hides the client's errors, which may contain keys and addresses. */
async function asked<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch {
    throw unavailable()
  }
}

const unavailable = () =>
  new OperatingError('store_unavailable', 'A request to the S3 store failed.', { retryable: true })
