/** Provides tests with an in-memory broker for attachments, which a test can make lie. */

import { ready } from '@sealpost/identity'
import type { AttachmentId } from '@sealpost/std'
import type { AttachmentBroker, RemoteStatus, UploadLog, UploadSpec } from '../attachments/upload.ts'
import { SealpostError } from '../errors.ts'
import { sodiumCrypto } from '../keys/sodium-crypto.ts'
import { type ConnectOptions, Peer } from '../peer.ts'
import type { CryptoPort } from '../ports.ts'

interface Kept {
  readonly room: UploadSpec
  readonly chunks: Map<number, { bytes: Uint8Array; hash: Uint8Array }>
  hash: Uint8Array | null
}

export class MemoryAttachments implements AttachmentBroker {
  readonly kept = new Map<AttachmentId, Kept>()
  puts = 0
  gets = 0
  /** Called before each chunk is accepted. */
  beforePut: () => void = () => undefined
  /** Changes the broker's replies. */
  lie: { status?: (status: RemoteStatus) => RemoteStatus; chunk?: (chunk: number) => Uint8Array | undefined } = {}

  async create(room: UploadSpec): Promise<void> {
    if (!this.kept.has(room.id)) this.kept.set(room.id, { room, chunks: new Map(), hash: null })
  }

  async status(id: AttachmentId): Promise<RemoteStatus> {
    const { room, chunks, hash } = this.#find(id)
    const { bytes, chunkBytes } = room
    const numbers = [...chunks.keys()].sort((a, b) => a - b)
    const hashes = hash && new Uint8Array(numbers.flatMap((n) => [...chunks.get(n)!.hash]))
    const present = numbers.map((n) => [n, n] as const)
    const status = { bytes, chunkBytes, isComplete: hash !== null, expiresAtMs: 0, present, hashes }
    return this.lie.status?.(status) ?? status
  }

  async put(id: AttachmentId, chunk: number, sealed: { bytes: Uint8Array; hash: Uint8Array }): Promise<void> {
    this.beforePut()
    this.puts += 1
    this.#find(id).chunks.set(chunk, sealed)
  }

  async get(id: AttachmentId, chunk: number): Promise<Uint8Array> {
    this.gets += 1
    return this.lie.chunk?.(chunk) ?? this.#find(id).chunks.get(chunk)!.bytes
  }

  async complete(id: AttachmentId, hash: Uint8Array): Promise<void> {
    this.#find(id).hash = hash
  }

  chunksOf(id: AttachmentId): Uint8Array[] {
    return [...this.#find(id).chunks.values()].map(({ bytes }) => bytes)
  }

  #find(id: AttachmentId): Kept {
    const kept = this.kept.get(id)
    if (!kept) throw new SealpostError('attachment_unknown', 'There is none.')
    return kept
  }
}

export class MemoryLog implements UploadLog {
  bytes: Uint8Array | null = null

  async read(): Promise<Uint8Array | null> {
    return this.bytes
  }
  async start(bytes: Uint8Array): Promise<void> {
    this.bytes = bytes
  }
  async append(bytes: Uint8Array): Promise<void> {
    this.bytes = Uint8Array.from([...this.bytes!, ...bytes])
  }
}

/**
 * Connects a peer that adds an attachment to everything that it sends, even to messages to a pool, which the types do
 * not allow.
 */
export async function connectAttaching(options: ConnectOptions, attachment: string): Promise<Peer> {
  await ready()
  const crypto = sodiumCrypto(options)
  const seal: CryptoPort['seal'] = (draft) => crypto.seal({ ...draft, note: { ...draft.note, attachment } })
  const peer = new Peer(options, Object.assign(Object.create(crypto), { seal }))
  await peer.start()
  return peer
}
