/** Where the chunks of attachments lie. The database knows of each chunk in any case; a store may keep its bytes elsewhere. */
import type { Database } from '@sealpost/pg'
import { type AttachmentRef, type Chunk, type ExpiredAttachment, putChunk, readChunk } from '@sealpost/store'

export interface StoredChunk {
  readonly hash: Uint8Array
  readonly content: Uint8Array
}

export interface ChunkStore {
  readonly name: ExpiredAttachment['store']
  /** As `putChunk` of the database. @throws OperatingError */
  put(of: AttachmentRef, chunk: Chunk & StoredChunk): Promise<'done' | 'differs' | 'gone'>
  /** @throws OperatingError */
  get(of: AttachmentRef, chunkNo: number): Promise<StoredChunk | undefined>
  /** Lets go of what it keeps itself of one whose time is over. Again and again, if need be. @throws OperatingError */
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
    forget: async () => undefined, // they go with their rows
    close: () => undefined,
  }
}
