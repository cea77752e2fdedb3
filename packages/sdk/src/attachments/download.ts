/**
 * A download: every chunk is checked before a byte of it is handed out. The envelope's hash proves the list of the chunks'
 * hashes, the list each chunk, and the stream that the last one is the last: whatever a broker changes, swaps, doubles, leaves
 * out or takes from another file is told by its first chunk.
 */
import { type Attachment, attachmentHash, ChunkStream, chunkLayout, hash256, ready } from '@sealpost/identity'
import { isSameBytes } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { AttachmentBroker } from './attachment-service.ts'
import { inPieces, type TransferProgress } from './upload.ts'

export interface DownloadOptions {
  readonly onProgress?: (progress: TransferProgress) => void
  /**
   * What a former life has of the file, from its first byte: whole chunks (`plainBytes`), nothing more. It is checked like
   * what comes, and only what is behind it is fetched and handed out.
   */
  readonly from?: AsyncIterable<Uint8Array> | undefined
  /**
   * Chunks under way at a time: default 3, so that the way there and back is not waited for. What is under way when this
   * life ends is fetched again by the next one, so with 1, which is that of `saveAttachment`, one chunk at most.
   */
  readonly ahead?: number
  readonly signal?: AbortSignal
}

const HASH_BYTES = 32
const AHEAD = 3

/** Of each chunk but the last one, as a file has it. */
export const plainBytes = ({ bytes, chunkBytes }: Attachment): number => chunkLayout(bytes, chunkBytes).plainBytes

export async function* download(
  calls: AttachmentBroker,
  attachment: Attachment,
  { onProgress, from, ahead = AHEAD }: DownloadOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  await ready()
  const hashes = await provenHashes(calls, attachment)
  const stream = new ChunkStream(attachment)
  const { chunks } = chunkLayout(attachment.bytes, attachment.chunkBytes)
  const { chunk: first, bytes } = from ? await passOver(from, attachment, { stream, hashes }) : { chunk: 0, bytes: 0 }
  let done = bytes
  onProgress?.({ bytes: done, total: attachment.bytes })
  const fetch = (chunk: number) => calls.get(attachment.id, chunk)
  const coming = fetchAhead({ first, end: chunks, ahead }, fetch)
  for (let chunk = first; chunk < chunks; chunk++) {
    const { value: sealed } = await coming.next()
    if (!isHash(hashes, chunk, sealed!)) throw changed()
    const opened = stream.open(sealed!)
    if (!opened) throw changed()
    if (opened.isLast !== (chunk === chunks - 1)) throw truncated()
    done += opened.bytes.length
    yield opened.bytes
    onProgress?.({ bytes: done, total: attachment.bytes })
  }
  if (done !== attachment.bytes) throw truncated()
}

async function provenHashes(calls: AttachmentBroker, attachment: Attachment): Promise<Uint8Array> {
  const { id, bytes, chunkBytes, hash } = attachment
  const { sealedBytes, chunks } = chunkLayout(bytes, chunkBytes)
  const { hashes } = await calls.status(id)
  if (!hashes || hashes.length < chunks * HASH_BYTES) throw truncated()
  if (!isSameBytes(attachmentHash(sealedBytes, chunkBytes, [hashes]), hash)) throw changed()
  return hashes
}

/** Sealing it again brings the stream to where it broke off, and tells whether it is what was sent. */
async function passOver(
  from: AsyncIterable<Uint8Array>,
  attachment: Attachment,
  { stream, hashes }: { stream: ChunkStream; hashes: Uint8Array },
): Promise<{ chunk: number; bytes: number }> {
  const { chunks, plainBytes } = chunkLayout(attachment.bytes, attachment.chunkBytes)
  let chunk = 0
  let bytes = 0
  for await (const piece of inPieces(from, plainBytes)) {
    if (piece.length === 0 && attachment.bytes > 0) break
    const sealed = stream.seal(piece, chunk === chunks - 1)
    if (chunk >= chunks || !isHash(hashes, chunk, sealed))
      throw new SealpostError('part_differs', 'What is there of the file is not its beginning.')
    chunk += 1
    bytes += piece.length
  }
  return { chunk, bytes }
}

/** In their order. With `ahead` 1 none is asked for before its reader is done with the one before. */
async function* fetchAhead<T>(
  { first, end, ahead }: { first: number; end: number; ahead: number },
  fetch: (chunk: number) => Promise<T>,
): AsyncGenerator<T> {
  const under: Promise<T>[] = []
  for (let next = first; under.length > 0 || next < end; ) {
    while (next < end && under.length < ahead) {
      const fetched = fetch(next++)
      fetched.catch(() => undefined) // told when it is its turn
      under.push(fetched)
    }
    yield await under.shift()!
  }
}

const isHash = (hashes: Uint8Array, chunk: number, sealed: Uint8Array): boolean =>
  isSameBytes(hash256(sealed), hashes.subarray(chunk * HASH_BYTES, (chunk + 1) * HASH_BYTES))

const changed = () => new SealpostError('attachment_changed', 'What came is not what was sent.')
const truncated = () => new SealpostError('attachment_truncated', 'Not all of the file is there.')
