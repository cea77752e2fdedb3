/** Uploads a file. Seals one chunk at a time, with one chunk in flight. The upload can be resumed. */
import {
  type Attachment,
  attachmentHash,
  CHUNK_BYTES_MAX,
  CHUNK_BYTES_MIN,
  CHUNKS_MAX,
  ChunkStream,
  chunkLayout,
  concatBytes,
  hash256,
  isAttachmentName,
  isAttachmentType,
  ready,
} from '@sealpost/identity'
import {
  type AttachmentId,
  fromBase64url,
  type GroupId,
  isHex,
  type Millis,
  type PeerKey,
  toBase64url,
  toHex,
} from '@sealpost/std'
import { SealpostError } from '../errors.ts'

export interface UploadSpec {
  readonly id: AttachmentId
  readonly bytes: number
  readonly chunkBytes: number
  /** 0 means the broker's default. */
  readonly keepSeconds: number
  readonly to: readonly PeerKey[] | GroupId
}

export interface RemoteStatus {
  readonly bytes: number
  readonly chunkBytes: number
  readonly isComplete: boolean
  readonly expiresAtMs: Millis
  /** Ranges of stored chunks, from first to last. */
  readonly present: readonly (readonly [first: number, last: number])[]
  /** 32 bytes for each chunk; null until the file is complete. */
  readonly hashes: Uint8Array | null
}

/** The operations that uploads and downloads need from a broker. */
export interface AttachmentBroker {
  create(room: UploadSpec): Promise<void>
  status(id: AttachmentId): Promise<RemoteStatus>
  put(id: AttachmentId, chunk: number, sealed: { readonly bytes: Uint8Array; readonly hash: Uint8Array }): Promise<void>
  get(id: AttachmentId, chunk: number): Promise<Uint8Array>
  complete(id: AttachmentId, hash: Uint8Array): Promise<void>
}

/**
 * Where an application keeps the log of an upload, such as a small file or a record in IndexedDB: the key, and the hash
 * of every chunk that may have left this process. Under the same key, changed bytes must never be sent: two plaintexts
 * under one key stream reveal both. Protect the log like the file, because it contains the key.
 */
export interface UploadLog {
  /** Returns everything that was written; null if there is nothing. */
  read(): Promise<Uint8Array | null>
  start(bytes: Uint8Array): Promise<void>
  /** Appends bytes. Resolves when they are stored. */
  append(bytes: Uint8Array): Promise<void>
}

interface UploadRecord extends Omit<Attachment, 'hash'> {
  readonly to: readonly PeerKey[] | GroupId
  readonly hashes: Uint8Array[]
}

const HASH_BYTES = 32
const NEW_LINE = 10

/** Returns the beginning of the log: a line of JSON. The hashes follow it. */
function logHead({ hashes: _, key, header, ...facts }: UploadRecord): Uint8Array {
  const json = JSON.stringify({ ...facts, key: toBase64url(key), header: toBase64url(header) })
  return new TextEncoder().encode(`${json}\n`)
}

/** Reads a log. Returns null unless it begins with what `logHead` returns. Ignores a partly written hash. */
function readLog(bytes: Uint8Array): UploadRecord | null {
  const end = bytes.indexOf(NEW_LINE)
  if (end < 0) return null
  try {
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)))
    const { id, key, header, bytes: size, chunkBytes, name, type, to } = head
    const isGood = isHex(id, 16) && size >= 0 && chunkBytes > 0 && chunkBytes <= CHUNK_BYTES_MAX && to.length > 0
    if (!isGood) return null
    const facts = { id: id as AttachmentId, bytes: size, chunkBytes, name, type, to }
    return {
      ...facts,
      key: fromBase64url(key),
      header: fromBase64url(header),
      hashes: hashesIn(bytes.subarray(end + 1)),
    }
  } catch {
    return null
  }
}

function hashesIn(bytes: Uint8Array): Uint8Array[] {
  const count = Math.floor(bytes.length / HASH_BYTES)
  return Array.from({ length: count }, (_, i) => bytes.slice(i * HASH_BYTES, (i + 1) * HASH_BYTES))
}

export interface TransferProgress {
  readonly bytes: number
  readonly total: number
}

export interface UploadOptions {
  /** The recipients: peers, or the members of a group at the time of the download. */
  readonly to: PeerKey | readonly PeerKey[] | { readonly group: GroupId }
  /** The name that readers see: 1 to 255 bytes. */
  readonly name: string
  /** A media type. */
  readonly type?: string
  /** How long the broker keeps the file once it is complete. Default: the broker's own value. */
  readonly keepSeconds?: number
  /** The length of each sealed chunk, 4 KiB to 256 KiB. Default: the maximum. */
  readonly chunkBytes?: number
  readonly onProgress?: (progress: TransferProgress) => void
  /**
   * The log with which a later process can resume the upload. Remove it once the message that refers to the file is
   * sent.
   */
  readonly resume?: UploadLog
  readonly signal?: AbortSignal
}

export async function upload(
  calls: AttachmentBroker,
  source: AttachmentSource,
  options: UploadOptions,
): Promise<Attachment> {
  await ready()
  checkOptions(options, source)
  const former = await formerUpload(calls, source, options)
  const { record, present } = former ?? { record: await begin(calls, source, options), present: [] }
  const hash = former?.isComplete ? wholeHash(record) : await sendChunks(calls, { source, record, present, options })
  if (!former?.isComplete) await calls.complete(record.id, hash)
  options.onProgress?.({ bytes: source.bytes, total: source.bytes })
  const { hashes: _, to: __, ...facts } = record
  return { ...facts, hash }
}

function checkOptions(options: UploadOptions, { bytes }: AttachmentSource): void {
  const { name, type = '', to, chunkBytes = CHUNK_BYTES_MAX } = options
  check(isAttachmentName(name), '`name` must have 1 to 255 bytes')
  check(isAttachmentType(type), '`type` must have at most 127 characters of printable ASCII')
  check(recipientsOf(to).length > 0, '`to` must not be empty')
  check(Number.isSafeInteger(bytes) && bytes >= 0, 'a source must report its number of bytes')
  const isInRange = Number.isInteger(chunkBytes) && chunkBytes >= CHUNK_BYTES_MIN && chunkBytes <= CHUNK_BYTES_MAX
  check(isInRange, `chunkBytes must be from ${CHUNK_BYTES_MIN} to ${CHUNK_BYTES_MAX}`)
  if (chunkLayout(bytes, chunkBytes).chunks > CHUNKS_MAX)
    throw new SealpostError('attachment_too_large', `An attachment can have at most ${CHUNKS_MAX} chunks.`)
}

function check(isGood: boolean, rule: string): void {
  if (!isGood) throw new RangeError(rule)
}

const recipientsOf = (to: UploadOptions['to']): readonly PeerKey[] | GroupId =>
  typeof to === 'string' ? [to] : 'group' in to ? to.group : to

interface PartialUpload {
  readonly record: UploadRecord
  readonly present: readonly (readonly [number, number])[]
  readonly isComplete: boolean
}

/**
 * Returns the earlier upload that this call resumes. Returns null if there is none of this file for these recipients,
 * or if the broker has dropped it.
 */
async function formerUpload(
  calls: AttachmentBroker,
  source: AttachmentSource,
  { resume, to, name, chunkBytes }: UploadOptions,
): Promise<PartialUpload | null> {
  const written = await resume?.read()
  const record = written ? readLog(written) : null
  if (!record || record.bytes !== source.bytes || String(record.to) !== String(recipientsOf(to))) return null
  if (record.name !== name || (chunkBytes !== undefined && record.chunkBytes !== chunkBytes)) return null
  try {
    const { present, isComplete } = await calls.status(record.id)
    await resume!.start(concatBytes([logHead(record), ...record.hashes])) // overwrites a partly written hash
    return { record, present, isComplete: isComplete && record.hashes.length === layoutOf(record).chunks }
  } catch (error) {
    if ((error as SealpostError).code === 'attachment_unknown') return await unstarted(calls, record)
    throw error
  }
}

/**
 * Repeats the request for a recorded upload, because the first request may not have reached the broker. Returns null if
 * a chunk may have left this process: the upload is then abandoned, and its key is not used again.
 */
async function unstarted(calls: AttachmentBroker, record: UploadRecord): Promise<PartialUpload | null> {
  if (record.hashes.length > 0) return null
  await calls.create(roomOf(record, 0))
  return { record, present: [], isComplete: false }
}

async function begin(
  calls: AttachmentBroker,
  { bytes }: AttachmentSource,
  { to, name, type = '', chunkBytes = CHUNK_BYTES_MAX, keepSeconds = 0, resume }: UploadOptions,
): Promise<UploadRecord> {
  const id = toHex(crypto.getRandomValues(new Uint8Array(16))) as AttachmentId
  const record = { id, ...ChunkStream.newKey(), bytes, chunkBytes, name, type, to: recipientsOf(to), hashes: [] }
  await resume?.start(logHead(record)) // An upload that is not recorded takes up space until the broker drops it, so record it first.
  await calls.create(roomOf(record, keepSeconds))
  return record
}

function roomOf(record: UploadRecord, keepSeconds: number) {
  const { id, chunkBytes, to } = record
  return { id, bytes: layoutOf(record).sealedBytes, chunkBytes, keepSeconds, to }
}

const layoutOf = ({ bytes, chunkBytes }: UploadRecord) => chunkLayout(bytes, chunkBytes)

interface Sending {
  readonly source: AttachmentSource
  readonly record: UploadRecord
  readonly present: PartialUpload['present']
  readonly options: UploadOptions
}

/** Seals all chunks in order and sends the missing ones. Returns the hash of the file. */
async function sendChunks(calls: AttachmentBroker, sending: Sending): Promise<Uint8Array> {
  const { source, record, present, options } = sending
  const { chunks, plainBytes } = layoutOf(record)
  const stream = new ChunkStream(record)
  let chunk = 0
  let done = 0
  for await (const piece of inPieces(source.stream(), plainBytes)) {
    done += piece.length
    if (done > source.bytes) throw changed()
    const bytes = stream.seal(piece, chunk === chunks - 1)
    const hash = hash256(bytes)
    await remember(record, chunk, hash, options.resume)
    if (!present.some(([first, last]) => chunk >= first && chunk <= last))
      await calls.put(record.id, chunk, { bytes, hash })
    chunk += 1
    options.onProgress?.({ bytes: done, total: source.bytes })
  }
  if (done !== source.bytes) throw changed()
  return wholeHash(record)
}

async function remember(record: UploadRecord, chunk: number, hash: Uint8Array, log?: UploadLog): Promise<void> {
  const known = record.hashes[chunk]
  if (known && toHex(known) !== toHex(hash)) throw changed()
  if (known) return
  record.hashes.push(hash)
  await log?.append(hash)
}

const wholeHash = (record: UploadRecord): Uint8Array =>
  attachmentHash(layoutOf(record).sealedBytes, record.chunkBytes, record.hashes)

const changed = () => new SealpostError('source_changed', 'The file has changed since its upload started.')

/** `stream` is called once per upload and must start at the first byte. */
export interface AttachmentSource {
  readonly bytes: number
  readonly stream: () => AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>
}

export const sourceOf = (given: Blob | AttachmentSource): AttachmentSource =>
  'stream' in given && 'size' in given ? { bytes: given.size, stream: () => given.stream() } : given

/**
 * Splits a source into pieces of this length; the last one may be shorter. Yields one empty piece for an empty source.
 * Never reads ahead.
 */
export async function* inPieces(
  stream: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>,
  pieceBytes: number,
): AsyncGenerator<Uint8Array> {
  let piece = new Uint8Array(pieceBytes)
  let filled = 0
  let count = 0
  for await (const read of iterate(stream)) {
    for (let at = 0; at < read.length; ) {
      if (filled === pieceBytes) {
        yield piece
        count += 1
        piece = new Uint8Array(pieceBytes)
        filled = 0
      }
      const part = read.subarray(at, at + pieceBytes - filled)
      piece.set(part, filled)
      filled += part.length
      at += part.length
    }
  }
  if (filled > 0 || count === 0) yield piece.subarray(0, filled)
}

async function* iterate(
  stream: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (!('getReader' in stream)) return yield* stream
  const reader = stream.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}
