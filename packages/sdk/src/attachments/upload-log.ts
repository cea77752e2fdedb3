/**
 * What an upload must know to go on in another life: the key, and the hash of every chunk that may have left this process,
 * kept before it leaves. A chunk is sealed again by the same key, so one whose bytes are others must never be shown: two
 * texts under one key stream give both away. The log holds the key to the file: keep it like the file itself.
 */
import { type Attachment, CHUNK_BYTES_MAX } from '@sealpost/identity'
import { type AttachmentId, fromBase64url, type GroupId, isHex, type PeerKey, toBase64url } from '@sealpost/std'

/** Where an application keeps it: a small file, a record of IndexedDB. */
export interface UploadLog {
  /** Everything that was written; null when there is nothing. */
  read(): Promise<Uint8Array | null>
  /** In the place of whatever was there. */
  start(bytes: Uint8Array): Promise<void>
  /** Resolves when it is kept. */
  append(bytes: Uint8Array): Promise<void>
}

/** An upload, as far as it has come. */
export interface UploadRecord extends Omit<Attachment, 'hash'> {
  readonly to: readonly PeerKey[] | GroupId
  readonly hashes: Uint8Array[]
}

const HASH_BYTES = 32
const NEW_LINE = 10

/** A line of JSON, then the hashes. */
export function logHead({ hashes: _, key, header, ...facts }: UploadRecord): Uint8Array {
  const json = JSON.stringify({ ...facts, key: toBase64url(key), header: toBase64url(header) })
  return new TextEncoder().encode(`${json}\n`)
}

/** Null for anything but a log that was written by `logHead`; a hash that was written in part is left out. */
export function readLog(bytes: Uint8Array): UploadRecord | null {
  const end = bytes.indexOf(NEW_LINE)
  if (end < 0) return null
  try {
    const said = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)))
    const { id, key, header, bytes: size, chunkBytes, name, type, to } = said
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
    return null // torn, or something else
  }
}

function hashesIn(bytes: Uint8Array): Uint8Array[] {
  const count = Math.floor(bytes.length / HASH_BYTES)
  return Array.from({ length: count }, (_, i) => bytes.slice(i * HASH_BYTES, (i + 1) * HASH_BYTES))
}
