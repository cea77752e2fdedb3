/** The stores of attachment chunks. The database has a row for each chunk; a store may keep the bytes elsewhere. */
import type { Database } from '@sealpost/pg'
import { type AttachmentRef, type Chunk, type ExpiredAttachment, putChunk, readChunk } from '@sealpost/store'

export interface StoredChunk {
  readonly hash: Uint8Array
  readonly content: Uint8Array
}

export interface ChunkStore {
  readonly name: ExpiredAttachment['store']
  /** Like `putChunk` of the database. @throws OperatingError */
  put(of: AttachmentRef, chunk: Chunk & StoredChunk): Promise<'done' | 'differs' | 'gone'>
  get(of: AttachmentRef, chunkNo: number): Promise<StoredChunk | undefined>
  /** Deletes the stored bytes of an expired attachment. Idempotent. @throws OperatingError */
  forget(expired: ExpiredAttachment): Promise<void>
  close(): void
}

export function postgresChunks(db: Database): ChunkStore {
  return {
    name: 'postgres',
    put: (of, chunk) => putChunk(db, of, chunk),
    get: async (of, chunkNo) => {
      const chunk = await readChunk(db, of, chunkNo)
      return chunk?.content ? { hash: chunk.hash, content: chunk.content } : undefined
    },
    forget: async () => undefined, // deleted with their rows
    close: () => undefined,
  }
}
