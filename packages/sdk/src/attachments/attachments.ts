/**
 * Transfers a peer's attachments (`@sealpost/sdk/attachments`). Files are sealed before they leave this process and
 * verified as they arrive. They are sent over HTTP, independently of the peer's session. Runs in browsers, Node and
 * Bun.
 */
import {
  type Attachment,
  attachmentHash,
  ChunkStream,
  chunkLayout,
  hash256,
  readAttachment,
  ready,
} from '@sealpost/identity'
import { type AttachmentId, fromBase64url, isSameBytes, toBase64url } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { HttpAccess, type HttpAsk, type HttpOptions, type PeerCredentials } from '../http/access.ts'
import type { Message } from '../inbox/message.ts'
import {
  type AttachmentBroker,
  type AttachmentSource,
  inPieces,
  type RemoteStatus,
  sourceOf,
  type TransferProgress,
  type UploadOptions,
  type UploadSpec,
  upload,
} from './upload.ts'

export { type Attachment, attachmentText, readAttachment } from '@sealpost/identity'
export type { HttpOptions, PeerCredentials } from '../http/access.ts'
export type { AttachmentSource, TransferProgress, UploadLog, UploadOptions } from './upload.ts'

export class Attachments implements AsyncDisposable {
  readonly #access: HttpAccess

  constructor(place: PeerCredentials, options?: HttpOptions) {
    this.#access = new HttpAccess(place, options)
  }

  /**
   * Uploads a file. Resolves when the broker has all of it. Recipients are not notified: send a message whose
   * `attachment` is the `attachmentText` of the result.
   * @throws SealpostError `attachment_too_large`, `quota_exceeded`, `mesh_quota_exceeded`, `recipient_unknown`;
   * `source_changed` if the file is not the one whose upload began; `connection_lost` after 5 minutes without a broker
   * @example const sent = await files.upload(new Blob(['plan']), { to: ben, name: 'plan.txt' })
   */
  upload(source: Blob | AttachmentSource, options: UploadOptions): Promise<Attachment> {
    return upload(new AttachmentService(this.#access, options.signal), sourceOf(source), options)
  }

  /**
   * Downloads a file. Yields it in order, one chunk at a time, and fetches chunks as they are read. Every yielded byte
   * is genuine; the file is complete when the iteration ends without an error.
   * @throws SealpostError `attachment_unknown` if it does not exist or no longer exists; `attachment_changed` or
   * `attachment_truncated` if the broker returned different data; `part_differs`, `connection_lost`
   * @example for await (const bytes of files.download(attachment)) console.log(bytes.length)
   */
  download(attachment: Attachment, options: DownloadOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return download(new AttachmentService(this.#access, options.signal), attachment, options)
  }

  /**
   * Removes the file for all readers. @throws SealpostError `attachment_unknown` if it does not exist or belongs to
   * another peer
   * @example await files.remove(attachment)
   */
  remove(attachment: Pick<Attachment, 'id'>): Promise<void> {
    return new AttachmentService(this.#access).end(attachment.id)
  }

  /**
   * Revokes the token. Requests in progress fail.
   * @example await files.close()
   */
  close(): Promise<void> {
    return this.#access.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/**
 * Returns the file attached to a message; null if there is none or a later version wrote the reference.
 * @example const file = attachmentOf(message)
 */
export const attachmentOf = ({ attachment }: Pick<Message, 'attachment'>): Attachment | null =>
  attachment === null ? null : readAttachment(attachment)

export interface DownloadOptions {
  readonly onProgress?: (progress: TransferProgress) => void
  /**
   * The beginning of the file that an earlier process saved, in whole chunks (`plainBytes`). It is verified like
   * fetched data; only the rest is fetched and yielded.
   */
  readonly from?: AsyncIterable<Uint8Array> | undefined
  /**
   * The maximum number of chunks in flight. Default: 3, which hides the round trip. After a restart, chunks that were
   * in flight are fetched again, so `saveAttachment` uses 1.
   */
  readonly ahead?: number
  readonly signal?: AbortSignal
}

const HASH_BYTES = 32
const AHEAD = 3

/** Returns the unsealed length of each chunk except the last. @internal */
export const plainBytes = ({ bytes, chunkBytes }: Attachment): number => chunkLayout(bytes, chunkBytes).plainBytes

/**
 * Downloads a file. Each chunk is verified before any byte of it is yielded. The envelope's hash proves the list of the
 * chunks' hashes, the list proves each chunk, and the stream proves which chunk is the last. A broker that changes,
 * swaps, repeats, omits or mixes chunks is detected at the first bad chunk.
 * @internal
 */
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

/**
 * Seals the saved part again, which restores the cipher's state and shows whether the part belongs to the same file.
 */
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
      throw new SealpostError('part_differs', 'The partial file does not match the attachment.')
    chunk += 1
    bytes += piece.length
  }
  return { chunk, bytes }
}

/**
 * Yields results in order. If `ahead` is 1, nothing is fetched until the reader has finished with the previous item.
 */
async function* fetchAhead<T>(
  { first, end, ahead }: { first: number; end: number; ahead: number },
  fetch: (chunk: number) => Promise<T>,
): AsyncGenerator<T> {
  const under: Promise<T>[] = []
  for (let next = first; under.length > 0 || next < end; ) {
    while (next < end && under.length < ahead) {
      const fetched = fetch(next++)
      fetched.catch(() => undefined) // an error is reported when it is the item's turn
      under.push(fetched)
    }
    yield await under.shift()!
  }
}

const isHash = (hashes: Uint8Array, chunk: number, sealed: Uint8Array): boolean =>
  isSameBytes(hash256(sealed), hashes.subarray(chunk * HASH_BYTES, (chunk + 1) * HASH_BYTES))

const changed = () => new SealpostError('attachment_changed', 'The downloaded file does not match the attachment.')
const truncated = () => new SealpostError('attachment_truncated', 'The attachment is incomplete.')

/** The maximum number of attempts to send one chunk while other requests succeed. */
const PUT_TRIES = 5

/** Calls the broker's operations for attachments. All methods throw the errors of `HttpAccess.ask`. @internal */
export class AttachmentService implements AttachmentBroker {
  readonly #access: HttpAccess
  readonly #path: string
  readonly #signal: AbortSignal | undefined

  constructor(access: HttpAccess, signal?: AbortSignal) {
    this.#access = access
    this.#path = `/v1/meshes/${access.meshId}/attachments`
    this.#signal = signal
  }

  async create({ to, ...room }: UploadSpec): Promise<void> {
    const json = { ...room, ...(typeof to === 'string' ? { group: to } : { recipients: to }) }
    await this.#access.ask({ method: 'POST', path: this.#path, json, signal: this.#signal })
  }

  async status(id: AttachmentId): Promise<RemoteStatus> {
    const answer = await this.#access.ask({ method: 'GET', path: `${this.#path}/${id}`, signal: this.#signal })
    const status = answer.json<Omit<RemoteStatus, 'hashes'> & { hashes: string | null }>()
    return { ...status, hashes: status.hashes === null ? null : fromBase64url(status.hashes) }
  }

  /** Sends a chunk. If no reply comes, waits for the broker and sends the chunk again only if it has not arrived. */
  async put(id: AttachmentId, chunk: number, { bytes, hash }: { bytes: Uint8Array; hash: Uint8Array }): Promise<void> {
    const path = `${this.#path}/${id}/chunks/${chunk}?hash=${toBase64url(hash)}`
    const ask: HttpAsk = { method: 'PUT', path, bytes, isOnce: true, signal: this.#signal }
    for (let tries = 1; ; tries++) {
      try {
        await this.#access.ask(ask)
        return
      } catch (error) {
        if ((error as SealpostError).code !== 'connection_lost' || tries === PUT_TRIES) throw error
      }
      const { present } = await this.status(id)
      if (present.some(([first, last]) => chunk >= first && chunk <= last)) return
    }
  }

  async get(id: AttachmentId, chunk: number): Promise<Uint8Array> {
    const path = `${this.#path}/${id}/chunks/${chunk}`
    return (await this.#access.ask({ method: 'GET', path, signal: this.#signal })).bytes
  }

  async complete(id: AttachmentId, hash: Uint8Array): Promise<void> {
    const json = { hash: toBase64url(hash) }
    await this.#access.ask({ method: 'POST', path: `${this.#path}/${id}/complete`, json, signal: this.#signal })
  }

  async end(id: AttachmentId): Promise<void> {
    await this.#access.ask({ method: 'DELETE', path: `${this.#path}/${id}`, signal: this.#signal })
  }
}
