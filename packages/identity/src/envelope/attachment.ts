/**
 * Seals a file in chunks under its own key, with libsodium's secretstream (XChaCha20-Poly1305), which binds each chunk
 * to its position and marks the last one. An envelope contains the key, the header and the hash over the hashes of all
 * sealed chunks. Since every reader has the key, the hash prevents a reader from substituting another file together
 * with a broker. The hash also detects a bad chunk before any byte of it is used.
 *
 * A reference consists of these fields, big-endian, in base64url: version u8 (1), id 16, key 32, header 24, bytes u64,
 * chunk bytes u32, hash 32, lp(name), lp(type). Vector: packages/protocol/vectors/attachment.json.
 */
import { type AttachmentId, assert, fromBase64url, fromHex, toBase64url, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u32, u64, utf8 } from '../byte-fields.ts'
import { hash256, sodium } from '../sodium.ts'

export interface Attachment {
  readonly id: AttachmentId
  /** 32 bytes. */
  readonly key: Uint8Array
  /** 24 bytes, the initial state of both sides. */
  readonly header: Uint8Array
  readonly bytes: number
  /** The length of each sealed chunk except the last. */
  readonly chunkBytes: number
  /** The `attachmentHash` of its chunks. */
  readonly hash: Uint8Array
  /** Chosen by the sender; never use it as a path. */
  readonly name: string
  /** A media type, chosen by the sender. */
  readonly type: string
}

const VERSION = 1
const KEY_BYTES = 32
const HEADER_BYTES = 24
const HASH_BYTES = 32
const NAME_BYTES_MAX = 255
const HASH_CONTEXT = context('sealpost-attachment/1')

/** The number of bytes that sealing adds to a chunk. */
export const CHUNK_SEAL_BYTES = 17
export const CHUNK_BYTES_MIN = 4096
/** The maximum size of a chunk: that of a frame, so that one limit applies to every body. */
export const CHUNK_BYTES_MAX = 256 * 1024
/** The maximum number of chunks: 16 GiB at the largest size. */
export const CHUNKS_MAX = 65_536

/** Splits a file of this length into sealed chunks. An empty file has one chunk. */
export function chunkLayout(
  bytes: number,
  chunkBytes: number,
): { chunks: number; plainBytes: number; sealedBytes: number } {
  const plainBytes = chunkBytes - CHUNK_SEAL_BYTES
  const chunks = Math.max(1, Math.ceil(bytes / plainBytes))
  return { chunks, plainBytes, sealedBytes: bytes + chunks * CHUNK_SEAL_BYTES }
}

/** Returns the BLAKE2b-256 over the shape of a file and the hash of each sealed chunk. */
export function attachmentHash(sealedBytes: number, chunkBytes: number, hashes: readonly Uint8Array[]): Uint8Array {
  return hash256(concatBytes([HASH_CONTEXT, u64(sealedBytes), u32(chunkBytes), ...hashes]))
}

export interface OpenedChunk {
  readonly bytes: Uint8Array
  readonly isLast: boolean
}

/**
 * Seals or opens the chunks of one file in order. The same key, header and bytes result in the same chunks, so that a
 * later process can resume an upload. Never seal other bytes with them.
 */
export class ChunkStream {
  readonly #state: ReturnType<typeof sodium.crypto_secretstream_xchacha20poly1305_init_pull>

  /** The sealer chooses the header too: 24 random bytes, like those of libsodium. */
  constructor({ key, header }: Pick<Attachment, 'key' | 'header'>) {
    this.#state = sodium.crypto_secretstream_xchacha20poly1305_init_pull(header, key)
  }

  static newKey(): Pick<Attachment, 'key' | 'header'> {
    return {
      key: crypto.getRandomValues(new Uint8Array(KEY_BYTES)),
      header: crypto.getRandomValues(new Uint8Array(HEADER_BYTES)),
    }
  }

  seal(bytes: Uint8Array, isLast: boolean): Uint8Array {
    return sodium.crypto_secretstream_xchacha20poly1305_push(this.#state, bytes, null, tagOf(isLast))
  }

  /**
   * Returns null if `chunk` is not the next one, after which the stream is unusable. Never throws on input from the
   * network.
   */
  open(chunk: Uint8Array): OpenedChunk | null {
    if (chunk.length < CHUNK_SEAL_BYTES) return null
    const opened = sodium.crypto_secretstream_xchacha20poly1305_pull(this.#state, chunk, null)
    if (!opened) return null
    const isLast = opened.tag === tagOf(true)
    return isLast || opened.tag === tagOf(false) ? { bytes: opened.message, isLast } : null
  }
}

const tagOf = (isLast: boolean): number =>
  isLast
    ? sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL
    : sodium.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE

/** Returns whether the name has 1 to 255 bytes. */
export const isAttachmentName = (name: string): boolean =>
  name.length > 0 && name.isWellFormed() && utf8(name).length <= NAME_BYTES_MAX

/** Returns whether the type is empty or up to 127 characters of printable ASCII. */
export const isAttachmentType = (type: string): boolean => /^[ -~]{0,127}$/.test(type)

/**
 * Returns the reference to an attached file. @throws AssertionError unless every field is valid, as described in
 * `Attachment`
 * @example await peer.send(ben, 'the plan', { attachment: attachmentText(sent) })
 */
export function attachmentText(attachment: Attachment): string {
  const { id, key, header, bytes, chunkBytes, hash, name, type } = attachment
  assert(isAttachment(attachment), 'an attachment keeps its lengths and ranges')
  return toBase64url(
    concatBytes([
      Uint8Array.of(VERSION),
      fromHex(id),
      key,
      header,
      u64(bytes),
      u32(chunkBytes),
      hash,
      lengthPrefixed(utf8(name)),
      lengthPrefixed(utf8(type)),
    ]),
  )
}

/**
 * Reads a reference. Returns null unless `attachmentText` wrote it. Never throws.
 * @example const file = readAttachment(text)
 */
export function readAttachment(text: string): Attachment | null {
  try {
    const from = new FieldReader(fromBase64url(text))
    if (from.take(1)[0] !== VERSION) return null
    const attachment: Attachment = {
      id: toHex(from.take(16)) as AttachmentId,
      key: from.take(KEY_BYTES).slice(),
      header: from.take(HEADER_BYTES).slice(),
      bytes: from.u64(),
      chunkBytes: from.u32(),
      hash: from.take(HASH_BYTES).slice(),
      name: decoder.decode(from.prefixed()),
      type: decoder.decode(from.prefixed()),
    }
    return from.isAtEnd && isAttachment(attachment) ? attachment : null
  } catch {
    return null // not base64url, or not UTF-8
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function isAttachment({ id, key, header, bytes, chunkBytes, hash, name, type }: Attachment): boolean {
  return (
    id.length === 32 &&
    key.length === KEY_BYTES &&
    header.length === HEADER_BYTES &&
    hash.length === HASH_BYTES &&
    isUnsigned(bytes, Number.MAX_SAFE_INTEGER) &&
    isUnsigned(chunkBytes, CHUNK_BYTES_MAX) &&
    chunkBytes >= CHUNK_BYTES_MIN &&
    chunkLayout(bytes, chunkBytes).chunks <= CHUNKS_MAX &&
    isAttachmentName(name) &&
    isAttachmentType(type)
  )
}
