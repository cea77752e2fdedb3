/**
 * Encrypts the secret records of a journal, so that the store can erase their former versions. Each *segment* is a set
 * of versions that one random key encrypts. To erase versions, the journal stores the live records of their segment
 * again, in another segment, and overwrites the key. The keys are in a file of their own, which is never replaced,
 * because the blocks of a replaced file stay on the disk and can no longer be overwritten.
 *     block   id of the segment 8, key 32, CRC-32 of both u32; zeros if it is free
 *
 * A key is synced before the first version that it encrypts, and overwritten only after the journal has synced the new
 * versions. So each live version has its key at any moment. Blocks are as large as those of disks: a write that is torn
 * by a power loss damages no other key.
 */
import { createCipheriv, createDecipheriv } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { assert, toHex } from '@sealpost/std'
import { SealpostError } from '../../errors.ts'
import type { FileLayer, InPlaceFile } from './files.ts'

/** A version of a secret record in the journal. */
export interface EncryptedRecord {
  readonly kind: 'secret'
  readonly segment: string
  /** A nonce, the ciphertext and its tag. */
  readonly bytes: Uint8Array
}

export interface Segment {
  readonly id: string
  readonly block: number
  readonly cipherKey: Uint8Array
  /** The keys of the records whose newest version is in this segment. */
  readonly live: Set<string>
  /** The size of all versions. */
  byteCount: number
  /** Whether it contains a version that is no longer the newest one of its record. */
  hasObsolete: boolean
}

/**
 * An erasure stores all live records of a segment again. So records that changed recently are apart from those that did
 * not, and from messages that are not sealed yet, of which there may be many.
 */
export type SegmentUse = 'changing' | 'resting' | 'unsealed'

const BLOCK_BYTES = 4096
const ID_BYTES = 8
const CIPHER_KEY_BYTES = 32
const KEY_END = ID_BYTES + CIPHER_KEY_BYTES
const ENTRY_BYTES = KEY_END + 4
const NONCE_BYTES = 12
const TAG_BYTES = 16
const CIPHER = 'aes-256-gcm'
/** The size from which a segment takes no more versions: what an erasure of one version stores again at most. */
const SEGMENT_BYTES_MAX = 1024 * 1024

/** Returns the path of the keys of a store. */
export const keysPathOf = (storePath: string): string => `${storePath}.secrets`

export class SecretSegments {
  readonly #files: FileLayer
  readonly #path: string
  /** The keys in the file when it was opened. They decrypt only. */
  readonly #former: ReadonlyMap<string, Uint8Array>
  /** The blocks of the former keys. */
  #formerBlocks: readonly number[]
  readonly #freeBlocks: number[]
  #blockCount: number
  readonly #segments = new Set<Segment>()
  readonly #open = new Map<SegmentUse, Segment>()
  #file: InPlaceFile | null = null

  private constructor(files: FileLayer, path: string, whole: Uint8Array) {
    this.#files = files
    this.#path = path
    this.#blockCount = Math.ceil(whole.length / BLOCK_BYTES)
    const entries = Array.from({ length: this.#blockCount }, (_, block) => entryAt(whole, block))
    const blocks = [...entries.keys()]
    this.#formerBlocks = blocks.filter((block) => entries[block]!.some((byte) => byte !== 0))
    this.#freeBlocks = blocks.filter((block) => entries[block]!.every((byte) => byte === 0))
    this.#former = new Map(entries.filter(isWhole).map((entry) => [idOf(entry), entry.slice(ID_BYTES, KEY_END)]))
  }

  static async open(files: FileLayer, path: string): Promise<SecretSegments> {
    return new SecretSegments(files, path, (await files.read(path)) ?? new Uint8Array(0))
  }

  /** Returns an open segment, whose key is synced. */
  async openSegment(use: SegmentUse): Promise<Segment> {
    const open = this.#open.get(use)
    if (open && open.byteCount < SEGMENT_BYTES_MAX) return open
    const segment = await this.#begin()
    this.#open.set(use, segment)
    return segment
  }

  encrypt(plain: Uint8Array, segment: Segment): EncryptedRecord {
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES))
    const cipher = createCipheriv(CIPHER, segment.cipherKey, nonce)
    const bytes = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
    return { kind: 'secret', segment: segment.id, bytes }
  }

  /** Decrypts a version that a former process stored. @throws SealpostError `store_corrupt` */
  decrypt({ segment, bytes }: EncryptedRecord): Uint8Array {
    const cipherKey = this.#former.get(segment)
    if (!cipherKey)
      throw new SealpostError(
        'store_corrupt',
        `${this.#path} lacks keys of this store. Restore both files from one copy.`,
      )
    try {
      const decipher = createDecipheriv(CIPHER, cipherKey, bytes.subarray(0, NONCE_BYTES))
      decipher.setAuthTag(bytes.subarray(bytes.length - TAG_BYTES))
      const text = bytes.subarray(NONCE_BYTES, bytes.length - TAG_BYTES)
      return new Uint8Array(Buffer.concat([decipher.update(text), decipher.final()]))
    } catch (cause) {
      throw new SealpostError('store_corrupt', 'A secret record of this store is damaged.', { cause })
    }
  }

  /** Notes that the newest version of a record is in this segment. */
  added(key: string, segment: Segment, byteCount: number): void {
    segment.live.add(key)
    segment.byteCount += byteCount
  }

  /** Notes that the newest version of a record is no longer in this segment. */
  removed(key: string, segment: Segment): void {
    segment.live.delete(key)
    segment.hasObsolete = true
  }

  get hasObsolete(): boolean {
    for (const segment of this.#segments) if (segment.hasObsolete) return true
    return false
  }

  /** Closes and returns the segments that contain obsolete versions. */
  takeObsolete(): Segment[] {
    const obsolete = [...this.#segments].filter((segment) => segment.hasObsolete)
    for (const [use, segment] of this.#open) if (segment.hasObsolete) this.#open.delete(use)
    return obsolete
  }

  /** Overwrites the keys of these segments, which contain no live record any more. */
  async destroy(segments: readonly Segment[]): Promise<void> {
    assert(
      segments.every(({ live }) => live.size === 0),
      'a live record has a key',
    )
    await this.#overwrite(segments.map(({ block }) => block))
    for (const segment of segments) this.#segments.delete(segment)
  }

  /** Overwrites the keys of former processes, which no live version needs any more. */
  async destroyFormer(): Promise<void> {
    await this.#overwrite(this.#formerBlocks)
    this.#formerBlocks = []
  }

  async close(): Promise<void> {
    await this.#file?.close()
    this.#file = null
  }

  async #begin(): Promise<Segment> {
    const entry = new Uint8Array(ENTRY_BYTES)
    crypto.getRandomValues(entry.subarray(0, KEY_END))
    new DataView(entry.buffer).setUint32(KEY_END, crc32(entry.subarray(0, KEY_END)))
    const block = this.#freeBlocks.pop() ?? this.#blockCount++
    const file = await this.#opened()
    await file.write(block * BLOCK_BYTES, entry)
    await file.sync()
    const cipherKey = entry.slice(ID_BYTES, KEY_END)
    const segment = { id: idOf(entry), block, cipherKey, live: new Set<string>(), byteCount: 0, hasObsolete: false }
    this.#segments.add(segment)
    return segment
  }

  async #overwrite(blocks: readonly number[]): Promise<void> {
    if (blocks.length === 0) return
    const file = await this.#opened()
    for (const block of blocks) await file.write(block * BLOCK_BYTES, new Uint8Array(ENTRY_BYTES))
    await file.sync()
    this.#freeBlocks.push(...blocks)
  }

  async #opened(): Promise<InPlaceFile> {
    if (this.#file) return this.#file
    this.#file = await this.#files.openInPlace(this.#path)
    await this.#files.syncFolder(this.#path)
    return this.#file
  }
}

/** Returns the entry of a block. If the file is too short for it, the rest is zero. */
function entryAt(whole: Uint8Array, block: number): Uint8Array {
  const entry = new Uint8Array(ENTRY_BYTES)
  entry.set(whole.subarray(block * BLOCK_BYTES, block * BLOCK_BYTES + ENTRY_BYTES))
  return entry
}

function isWhole(entry: Uint8Array): boolean {
  return new DataView(entry.buffer).getUint32(KEY_END) === crc32(entry.subarray(0, KEY_END))
}

const idOf = (entry: Uint8Array) => toHex(entry.subarray(0, ID_BYTES))
