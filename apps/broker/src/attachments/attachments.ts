/** Creates, stores, serves and deletes the attachments of token holders, or returns a refusal. */
import { attachmentHash, groupFields } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { type AttachmentId, GROUP_EPOCH_LAST, type GroupId, type Millis, type PeerKey } from '@sealpost/std'
import {
  type AttachmentInfo,
  type AttachmentQuota,
  type AttachmentRef,
  type Chunk,
  type ChunkRange,
  completeAttachment,
  createAttachment,
  deleteAttachment,
  type ExpiredAttachment,
  expireAttachment,
  findAttachment,
  findGroups,
  listChunks,
  listExpiredAttachments,
  putChunk,
  readChunk,
  readChunkHashes,
} from '@sealpost/store'
import type { HttpCode, HttpRefusal, TokenHolder } from '../http/tokens.ts'

export interface AttachmentLimits {
  readonly bytesMax: number
  /** `null` disables the quotas. */
  readonly quota: AttachmentQuota | null
  readonly keepSeconds: number
  readonly keepSecondsMax: number
  readonly finishSeconds: number
}

interface AttachmentPorts {
  /** Separate connections, so that messages never wait for a chunk. */
  readonly db: Database
  readonly store: ChunkStore
  /** All stores, including those without new attachments. */
  readonly stores: readonly ChunkStore[]
  readonly limits: AttachmentLimits
}

export interface NewAttachment {
  readonly id: AttachmentId
  readonly bytes: number
  readonly chunkBytes: number
  readonly keepSeconds: number
  readonly to: readonly PeerKey[] | GroupId
}

export interface AttachmentStatus {
  readonly bytes: number
  readonly chunkBytes: number
  readonly isComplete: boolean
  readonly expiresAtMs: Millis
  readonly present: readonly ChunkRange[]
  /** The chunks' hashes, 32 bytes each; null until the attachment is complete. */
  readonly hashes: Uint8Array | null
}

interface SentChunk extends StoredChunk {
  readonly chunkNo: number
}

const HASH_BYTES = 32
const REFUSALS = {
  taken: 'attachment_taken',
  peer_quota: 'quota_exceeded',
  mesh_quota: 'mesh_quota_exceeded',
  unknown_recipient: 'recipient_unknown',
} as const satisfies Record<string, HttpCode>

export class AttachmentRequests {
  private readonly ports: AttachmentPorts
  /** The last creation. Creations run one after another, so that they can't exceed a quota. */
  private creating: Promise<unknown> = Promise.resolve()

  constructor(ports: AttachmentPorts) {
    this.ports = ports
  }

  create(holder: TokenHolder, asked: NewAttachment): Promise<{ expiresAtMs: Millis } | HttpRefusal> {
    const created = this.creating.then(() => this.createNext(holder, asked))
    this.creating = created.catch(() => undefined) // the caller receives the error
    return created
  }

  private async createNext(holder: TokenHolder, asked: NewAttachment): Promise<{ expiresAtMs: Millis } | HttpRefusal> {
    const { db, store, limits } = this.ports
    const { bytesMax, quota, finishSeconds, keepSecondsMax } = limits
    if (asked.bytes > bytesMax) return { code: 'attachment_too_large' }
    const { meshId, peer: owner } = holder
    if (typeof asked.to === 'string' && !(await this.isMember(holder, asked.to))) return { code: 'recipient_unknown' }
    const keepSeconds = Math.min(asked.keepSeconds || limits.keepSeconds, keepSecondsMax)
    const terms = { ...asked, meshId, owner, keepSeconds, finishSeconds, store: store.name }
    const { outcome, expiresAtMs } = await createAttachment(db, terms, quota)
    return outcome === 'done' ? { expiresAtMs } : { code: REFUSALS[outcome] }
  }

  async status(holder: TokenHolder, id: AttachmentId): Promise<AttachmentStatus | HttpRefusal> {
    const found = await this.find(holder, id)
    if (!found) return UNKNOWN
    const { bytes, chunkBytes, isComplete, expiresAtMs } = found
    const of = { meshId: holder.meshId, id }
    const present: readonly ChunkRange[] = isComplete
      ? [[0, chunkCount(found) - 1]]
      : await listChunks(this.ports.db, of)
    const hashes = isComplete ? await readChunkHashes(this.ports.db, of) : null
    return { bytes, chunkBytes, isComplete, expiresAtMs, present, hashes }
  }

  /** Returns the attachment if this peer created it and may upload its chunks. @throws OperatingError */
  async own(holder: TokenHolder, id: AttachmentId): Promise<AttachmentInfo | HttpRefusal> {
    const found = await this.find(holder, id)
    return found?.isOwner ? found : UNKNOWN
  }

  /** Returns the attachment if this peer may fetch its chunks. @throws OperatingError */
  async readable(holder: TokenHolder, id: AttachmentId): Promise<AttachmentInfo | HttpRefusal> {
    return (await this.find(holder, id)) ?? UNKNOWN
  }

  /** Returns `null` if the chunk is stored. `found`: the result of `own`. @throws OperatingError */
  async put(ref: AttachmentRef, found: AttachmentInfo, chunk: SentChunk): Promise<HttpRefusal | null> {
    if (chunk.content.length !== chunkLength(found, chunk.chunkNo) || !isHashOf(chunk))
      return { code: 'chunk_malformed' }
    const outcome = await this.storeOf(found).put(ref, chunk)
    if (outcome === 'done') return null
    return outcome === 'differs' ? { code: 'chunk_differs' } : UNKNOWN
  }

  /** Returns `null` if the attachment is complete. @throws OperatingError */
  async complete(holder: TokenHolder, id: AttachmentId, hash: Uint8Array): Promise<HttpRefusal | null> {
    const found = await this.find(holder, id)
    if (!found?.isOwner) return UNKNOWN
    const of: AttachmentRef = { meshId: holder.meshId, id }
    const hashes = await readChunkHashes(this.ports.db, of)
    if (hashes.length !== chunkCount(found) * HASH_BYTES) return { code: 'chunk_missing' }
    const whole = attachmentHash(found.bytes, found.chunkBytes, [hashes])
    if (Buffer.compare(whole, hash) !== 0) return { code: 'attachment_differs' }
    await completeAttachment(this.ports.db, of, hash)
    return null
  }

  async get(ref: AttachmentRef, found: AttachmentInfo, chunkNo: number): Promise<StoredChunk | HttpRefusal> {
    return (await this.storeOf(found).get(ref, chunkNo)) ?? { code: 'chunk_missing' }
  }

  /** Returns `null` if the attachment is deleted for all peers. @throws OperatingError */
  async end({ meshId, peer }: TokenHolder, id: AttachmentId): Promise<HttpRefusal | null> {
    return (await expireAttachment(this.ports.db, { meshId, id }, peer)) ? null : UNKNOWN
  }

  /** Returns the attachment if this peer may access it. Only its owner may access an incomplete attachment. */
  private async find(holder: TokenHolder, id: AttachmentId): Promise<AttachmentInfo | null> {
    const { meshId, peer, user } = holder
    const found = await findAttachment(this.ports.db, { meshId, id }, { peer, person: user })
    if (!found || found.isOwner) return found ?? null
    return found.isComplete && (found.isRecipient || isNamed(found.groupStatement, holder.peerKey)) ? found : null
  }

  private async isMember({ meshId, peerKey }: TokenHolder, group: GroupId): Promise<boolean> {
    const [found] = await findGroups(this.ports.db, meshId, [group])
    return found !== undefined && found.epoch < GROUP_EPOCH_LAST && isNamed(found.statement, peerKey)
  }

  private storeOf({ store }: AttachmentInfo): ChunkStore {
    return this.ports.stores.find(({ name }) => name === store) ?? this.ports.store
  }
}

const UNKNOWN: HttpRefusal = { code: 'attachment_unknown' }

const isNamed = (statement: Uint8Array | null, peer: PeerKey): boolean =>
  statement !== null && (groupFields(statement)?.members.includes(peer) ?? false)

type Shape = Pick<AttachmentInfo, 'bytes' | 'chunkBytes'>
const chunkCount = ({ bytes, chunkBytes }: Shape): number => Math.ceil(bytes / chunkBytes)

/** Returns the required length of a chunk; 0 outside the file. */
function chunkLength({ bytes, chunkBytes }: Shape, chunkNo: number): number {
  return Math.max(0, Math.min(chunkBytes, bytes - chunkNo * chunkBytes))
}

/** Uses the native hash: libsodium takes three times as long and blocks the event loop. */
function isHashOf({ hash, content }: StoredChunk): boolean {
  return Buffer.compare(new Bun.CryptoHasher('blake2b256').update(content).digest(), hash) === 0
}

interface StoredChunk {
  readonly hash: Uint8Array
  readonly content: Uint8Array
}

export interface ChunkStore {
  readonly name: ExpiredAttachment['store']
  /** Stores a chunk. Returns the same as the database's `putChunk`. @throws OperatingError */
  put(of: AttachmentRef, chunk: Chunk & StoredChunk): Promise<'done' | 'differs' | 'gone'>
  get(of: AttachmentRef, chunkNo: number): Promise<StoredChunk | undefined>
  /** Deletes an expired attachment's bytes. Idempotent. @throws OperatingError */
  forget(expired: ExpiredAttachment): Promise<void>
}

export function postgresChunks(db: Database): ChunkStore {
  return {
    name: 'postgres',
    put: (of, chunk) => putChunk(db, of, chunk),
    get: async (of, chunkNo) => {
      const chunk = await readChunk(db, of, chunkNo)
      return chunk?.content ? { hash: chunk.hash, content: chunk.content } : undefined
    },
    forget: async () => undefined, // the database deletes bytes with their rows
  }
}

interface Ports {
  readonly db: Database
  readonly stores: readonly ChunkStore[]
  readonly forgotten: () => void
  readonly failed: (error: unknown) => void
}

interface Pace {
  readonly everyMs: Millis
  /** The delay between expiry and deletion, longer than any transfer of a chunk to a store. */
  readonly sinceSeconds: number
}

const USUAL: Pace = { everyMs: 30_000, sinceSeconds: 60 }
const FILES_AT_ONCE = 20
/** The number of chunks per step, at most 16 MB. */
const CHUNKS_AT_ONCE = 64

export class AttachmentExpiry {
  private readonly ports: Ports
  private readonly sinceSeconds: number
  private readonly timer: ReturnType<typeof setInterval>
  private looking: Promise<void> | null = null
  private isOver = false

  constructor(ports: Ports, { everyMs, sinceSeconds }: Pace = USUAL) {
    this.ports = ports
    this.sinceSeconds = sinceSeconds
    this.timer = setInterval(() => this.look(), everyMs)
    this.timer.unref()
  }

  async stop(): Promise<void> {
    this.isOver = true
    clearInterval(this.timer)
    await this.looking
  }

  private look(): void {
    if (this.isOver) return
    this.looking ??= this.forgetAll()
      .catch(this.ports.failed)
      .finally(() => (this.looking = null))
  }

  private async forgetAll(): Promise<void> {
    const { sinceSeconds } = this
    for (;;) {
      const expired = await listExpiredAttachments(this.ports.db, { sinceSeconds, max: FILES_AT_ONCE })
      for (const each of expired) await this.forget(each)
      if (this.isOver || expired.length === 0) return
    }
  }

  /** Deletes the stored bytes, except in a store that is no longer configured. */
  private async forget(expired: ExpiredAttachment): Promise<void> {
    await this.ports.stores.find(({ name }) => name === expired.store)?.forget(expired)
    while (!this.isOver) if (await deleteAttachment(this.ports.db, expired, CHUNKS_AT_ONCE)) break
    if (!this.isOver) this.ports.forgotten()
  }
}
