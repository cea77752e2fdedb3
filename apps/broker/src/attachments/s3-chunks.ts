/**
 * Stores chunks in S3, one object per chunk. Each chunk's row is written after its object. An object that a crash
 * leaves without a row is deleted with its file, whose possible keys are known.
 */
import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { type AttachmentRef, putChunk, readChunk } from '@sealpost/store'
import type { AttachmentConfig } from '../config/sections.ts'
import type { ChunkStore } from './attachments.ts'

const DELETED_AT_ONCE = 16
const ANSWER_WITHIN_MS = 20_000

export function s3Chunks(db: Database, config: AttachmentConfig): ChunkStore {
  const ask = requester(config)
  const keyOf = ({ meshId, id }: AttachmentRef, chunkNo: number) => `${config.S3_PREFIX}${meshId}/${id}/${chunkNo}`
  return {
    name: 's3',
    put: async (of, { chunkNo, hash, content }) => {
      const standing = await readChunk(db, of, chunkNo)
      if (standing) return Buffer.compare(standing.hash, hash) === 0 ? 'done' : 'differs'
      await ask('PUT', keyOf(of, chunkNo), content)
      return putChunk(db, of, { chunkNo, hash, content: null })
    },
    get: async (of, chunkNo) => {
      const chunk = await readChunk(db, of, chunkNo)
      const content = chunk && (await ask('GET', keyOf(of, chunkNo)))
      return content ? { hash: chunk.hash, content } : undefined
    },
    forget: async ({ chunks, ...of }) => {
      for (let first = 0; first < chunks; first += DELETED_AT_ONCE) {
        const count = Math.min(DELETED_AT_ONCE, chunks - first)
        await Promise.all(Array.from({ length: count }, (_, i) => ask('DELETE', keyOf(of, first + i))))
      }
    },
  }
}

type Ask = (method: 'PUT' | 'GET' | 'DELETE', key: string, body?: Uint8Array) => Promise<Uint8Array | null>

/**
 * Returns a function that sends signed requests. Bun's S3 client only signs, because its own requests have no time
 * limit. Hides errors, which may contain keys and addresses.
 */
function requester(config: AttachmentConfig): Ask {
  const { S3_BUCKET: bucket, S3_ENDPOINT: endpoint, S3_REGION: region } = config
  const client = new Bun.S3Client({
    bucket,
    region,
    accessKeyId: config.S3_ACCESS_KEY_ID,
    secretAccessKey: config.S3_SECRET_ACCESS_KEY,
    // Amazon's certificate does not cover a bucket name with a dot.
    ...(endpoint ? { endpoint } : { virtualHostedStyle: !bucket.includes('.') }),
  })
  return async (method, key, body) => {
    try {
      const url = client.presign(key, { method, expiresIn: (2 * ANSWER_WITHIN_MS) / 1000 })
      const signal = AbortSignal.timeout(ANSWER_WITHIN_MS)
      return await contentOf(await fetch(url, { method, signal, redirect: 'manual', ...(body && { body }) }))
    } catch {
      throw unavailable()
    }
  }
}

/** Returns the content of an object; `null` if it is missing or not Sealpost's. */
async function contentOf(response: Response): Promise<Uint8Array | null> {
  if (response.ok && Number(response.headers.get('content-length')) <= CHUNK_BYTES_MAX) return response.bytes()
  if (response.ok) await response.body?.cancel()
  else if (response.status !== 404 || !(await response.text()).includes('<Code>NoSuchKey<')) throw unavailable()
  return null
}

const unavailable = () =>
  new OperatingError('store_unavailable', 'A request to the S3 store failed.', { retryable: true })
