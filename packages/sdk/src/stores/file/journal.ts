/**
 * Implements a store in one file. The file has a head, followed by a frame for each batch. A batch counts once its
 * frame is synced, and is read back completely or not at all. Obsolete records are dropped when the file is rewritten:
 * each time it is opened, and when they exceed half of it.
 *     head    "sealpost store 1" 16, salt 16, CRC-32 of the salt u32
 *     frame   length of the batch u32, CRC-32 of salt, place of the frame and batch u32, batch
 *
 * One frame is written at a time, so after a crash only the last one can be incomplete; it was not reported as stored
 * and is dropped. If a damaged frame is followed by complete ones, the file is refused. The checksum includes salt and
 * position, so that neither blocks of an earlier file nor a body that looks like a frame are mistaken for one.
 */
import { crc32 } from 'node:zlib'
import { SealpostError } from '../../errors.ts'
import type { StoreRecord } from '../records.ts'
import { type PeerStore, SECRET_PREFIX, type StoreChange } from '../store.ts'
import type { AppendFile, FileLayer } from './files.ts'
import { type EncryptedRecord, keysPathOf, SecretSegments, type Segment, type SegmentUse } from './secret-segments.ts'

const MAGIC = new TextEncoder().encode('sealpost store 1')
const SALT_BYTES = 16
const SALT_END = MAGIC.length + SALT_BYTES
const HEAD_BYTES = SALT_END + 4
const FRAME_HEAD_BYTES = 8
/** The size below which obsolete records do not cause a rewrite. */
const GARBAGE_BYTES_MIN = 1024 * 1024
/**
 * The maximum size of a batch to search for behind a damaged one. Random bytes would too often look like a larger one.
 */
const SOUGHT_BYTES_MAX = 1024 * 1024
/** The size of the pieces in a rewrite. */
const PIECE_BYTES = 1024 * 1024

type StoredRecord = StoreRecord | EncryptedRecord

interface Placed {
  readonly change: StoreChange
  /** The segment of a secret record. */
  readonly segment: Segment | null
  /** Where an erasure moves the record. */
  readonly nextUse: SegmentUse
}

interface Kept {
  readonly record: StoreRecord
  readonly nextUse: SegmentUse
  segment: Segment | null
  byteCount: number
}

/** The kinds of records with texts and keys of messages that are not sealed yet. */
const UNSEALED_KINDS: readonly StoredRecord['kind'][] = ['waiting', 'group']

/** @internal */
export class StoreJournal implements PeerStore {
  private readonly files: FileLayer
  private readonly path: string
  private readonly segments: SecretSegments
  private readonly kept = new Map<string, Kept>()
  private keptBytes = 0
  private file: AppendFile | null = null
  private salt = new Uint8Array(SALT_BYTES)
  private length = 0
  /** Whether the store has contained a secret record since it was opened. */
  private hasSecrets = false
  private failure: SealpostError | null = null
  private readonly steps = new TaskChain()
  private readonly erasures = new TaskChain()

  private constructor(files: FileLayer, path: string, segments: SecretSegments) {
    this.files = files
    this.path = path
    this.segments = segments
  }

  /** Opens the journal. @throws SealpostError `store_corrupt`, `store_failed` */
  static async open(files: FileLayer, path: string): Promise<StoreJournal> {
    const { changes, segments } = await readStore(files, path)
    const journal = new StoreJournal(files, path, segments)
    for (const change of changes) {
      journal.apply({ change, segment: null, nextUse: 'resting' }, encodeChange(change).length)
      journal.hasSecrets ||= hasPrefix(change)
    }
    await journal.step(async () => {
      await journal.writeAnew()
      await segments.destroyFormer()
    })
    return journal
  }

  async load(): Promise<StoreRecord[]> {
    return [...this.kept.values()].map(({ record }) => record)
  }

  async write(changes: readonly StoreChange[]): Promise<void> {
    await this.step(async () => {
      this.hasSecrets ||= changes.some(hasPrefix)
      const batch: Placed[] = []
      for (const change of changes) {
        const use = this.useOf(change)
        batch.push({ change, segment: use && (await this.segments.openSegment(use)), nextUse: use ?? 'resting' })
      }
      await this.store(batch)
      await this.dropObsolete()
    })
  }

  get hasObsoleteSecrets(): boolean {
    return this.segments.hasObsolete
  }

  /** Erases the former versions of secret records. Batches are written in between. */
  eraseObsoleteSecrets(): Promise<void> {
    return this.erasures.run(async () => {
      const obsolete: Segment[] = []
      await this.step(async () => void obsolete.push(...this.segments.takeObsolete()))
      while (obsolete.some(({ live }) => live.size > 0)) await this.step(() => this.moveSome(obsolete))
      await this.step(() => this.segments.destroy(obsolete))
    })
  }

  async close(): Promise<void> {
    try {
      if (!this.failure) await this.eraseObsoleteSecrets()
    } finally {
      const { file } = this
      this.file = null
      this.failure ??= new SealpostError('store_failed', 'This store was closed.')
      await file?.close()
      await this.segments.close()
    }
  }

  /** Returns the use of the segment that a change is stored in; null if its record is not secret. */
  private useOf(change: StoreChange): SegmentUse | null {
    if (!this.hasSecrets || !change.record) return null
    if (hasPrefix(change)) return 'changing'
    return UNSEALED_KINDS.includes(change.record.kind) ? 'unsealed' : null
  }

  private apply({ change: { key, record }, segment, nextUse }: Placed, byteCount: number): void {
    const former = this.kept.get(key)
    this.keptBytes -= former?.byteCount ?? 0
    if (former?.segment) this.segments.removed(key, former.segment)
    if (!record) this.kept.delete(key)
    else {
      this.kept.set(key, { record, segment, nextUse, byteCount })
      this.keptBytes += byteCount
      if (segment) this.segments.added(key, segment, byteCount)
    }
  }

  /** Appends a batch and applies it once it is synced. */
  private async store(batch: readonly Placed[]): Promise<void> {
    const pieces = batch.map((placed) => this.encode(placed))
    await this.append(pieces)
    await this.file!.sync()
    for (const [i, placed] of batch.entries()) this.apply(placed, pieces[i]!.length)
  }

  private encode({ change, segment }: Pick<Placed, 'change' | 'segment'>): Uint8Array {
    const plain = encodeChange(change)
    return segment ? encodeChange({ key: change.key, record: this.segments.encrypt(plain, segment) }) : plain
  }

  private async append(pieces: readonly Uint8Array[]): Promise<void> {
    const frame = frameOf(pieces, this.salt, this.length)
    await this.file!.append(frame)
    this.length += frame.length
  }

  /** Stores some live records of these segments in others. */
  private async moveSome(segments: readonly Segment[]): Promise<void> {
    const [keys] = this.inPieces(liveOf(segments))
    if (!keys) return // batches have replaced them in the meantime
    const batch: Placed[] = []
    for (const key of keys) {
      const { record, nextUse } = this.kept.get(key)!
      const segment = await this.segments.openSegment(nextUse)
      batch.push({ change: { key, record }, segment, nextUse: nextUse === 'unsealed' ? nextUse : 'resting' })
    }
    await this.store(batch)
    await this.dropObsolete()
  }

  private async dropObsolete(): Promise<void> {
    if (this.length - this.keptBytes > Math.max(GARBAGE_BYTES_MIN, this.keptBytes)) await this.writeAnew()
  }

  /** Writes a new file, which replaces this one once it is synced. */
  private async writeAnew(): Promise<void> {
    const fresh = `${this.path}.new`
    await this.file?.close()
    this.file = await this.files.create(fresh)
    crypto.getRandomValues(this.salt)
    await this.file.append(headOf(this.salt))
    this.length = HEAD_BYTES
    for (const keys of this.inPieces(this.kept.keys())) await this.append(await this.encodedAgain(keys))
    await this.file.sync()
    await this.files.rename(fresh, this.path)
    await this.files.syncFolder(this.path)
  }

  private async encodedAgain(keys: readonly string[]): Promise<Uint8Array[]> {
    const pieces: Uint8Array[] = []
    for (const key of keys) {
      const kept = this.kept.get(key)!
      const change = { key, record: kept.record }
      const isPlaced = kept.segment !== null
      if (!isPlaced && this.useOf(change)) kept.segment = await this.segments.openSegment(kept.nextUse)
      const piece = this.encode({ change, segment: kept.segment })
      this.keptBytes += piece.length - kept.byteCount
      kept.byteCount = piece.length
      if (!isPlaced && kept.segment) this.segments.added(key, kept.segment, piece.length)
      pieces.push(piece)
    }
    return pieces
  }

  /** Divides keys of records, so that a long backlog is not in memory twice. */
  private *inPieces(keys: Iterable<string>): Generator<string[]> {
    let piece: string[] = []
    let pieceBytes = 0
    for (const key of keys) {
      piece.push(key)
      pieceBytes += this.kept.get(key)!.byteCount
      if (pieceBytes < PIECE_BYTES) continue
      yield piece
      piece = []
      pieceBytes = 0
    }
    if (piece.length > 0) yield piece
  }

  /**
   * Runs a step after the earlier ones. After an error, refuses all others: the file's state is unknown, and a failed
   * sync must not be retried.
   */
  private step(run: () => Promise<void>): Promise<void> {
    return this.steps.run(() => this.guard(run))
  }

  private async guard(run: () => Promise<void>): Promise<void> {
    if (this.failure) throw this.failure
    try {
      await run()
    } catch (cause) {
      this.failure = storeFailed(cause)
      throw this.failure
    }
  }
}

/** Runs tasks one after another. */
class TaskChain {
  #last: Promise<unknown> = Promise.resolve()

  run(task: () => Promise<void>): Promise<void> {
    const ended = this.#last.then(task)
    this.#last = ended.catch(() => undefined) // its caller has the error
    return ended
  }
}

function* liveOf(segments: readonly Segment[]): Generator<string> {
  for (const { live } of segments) yield* live
}

function hasPrefix({ key }: StoreChange): boolean {
  return key.startsWith(SECRET_PREFIX)
}

function isEncrypted(record: StoredRecord): record is EncryptedRecord {
  return record.kind === 'secret'
}

function storeFailed(cause: unknown): SealpostError {
  return new SealpostError('store_failed', "Can't read or write the file of this store.", { cause })
}

function headOf(salt: Uint8Array): Uint8Array {
  const head = new Uint8Array(HEAD_BYTES)
  head.set(MAGIC)
  head.set(salt, MAGIC.length)
  new DataView(head.buffer).setUint32(SALT_END, crc32(salt))
  return head
}

function frameOf(pieces: readonly Uint8Array[], salt: Uint8Array, at: number): Uint8Array {
  const byteCount = pieces.reduce((sum, piece) => sum + piece.length, 0)
  const frame = new Uint8Array(FRAME_HEAD_BYTES + byteCount)
  let end = FRAME_HEAD_BYTES
  for (const piece of pieces) {
    frame.set(piece, end)
    end += piece.length
  }
  const view = new DataView(frame.buffer)
  view.setUint32(0, byteCount)
  view.setUint32(4, sumOf(frame.subarray(FRAME_HEAD_BYTES), salt, at))
  return frame
}

function sumOf(batch: Uint8Array, salt: Uint8Array, at: number): number {
  const place = new Uint8Array(8)
  new DataView(place.buffer).setFloat64(0, at)
  return crc32(batch, crc32(place, crc32(salt)))
}

/** Reads the newest version of each record. @throws SealpostError `store_corrupt`, `store_failed` */
export async function readStore(
  files: FileLayer,
  path: string,
): Promise<{ changes: StoreChange[]; segments: SecretSegments }> {
  const read = async () => ({
    segments: await SecretSegments.open(files, keysPathOf(path)),
    whole: await files.read(path),
  })
  const { segments, whole } = await read().catch((cause) => Promise.reject(storeFailed(cause)))
  const changes = [...(whole ? newestVersions(whole) : [])].map(([key, record]) =>
    isEncrypted(record) ? (decodeChanges(segments.decrypt(record))[0] as StoreChange) : { key, record },
  )
  return { changes, segments }
}

function newestVersions(whole: Uint8Array): Map<string, StoredRecord> {
  const records = new Map<string, StoredRecord>()
  for (const batch of batchesOf(whole))
    for (const { key, record } of decodeChanges(batch))
      if (record) records.set(key, record)
      else records.delete(key)
  return records
}

/** Yields the batches in a file. @throws SealpostError `store_corrupt` */
function* batchesOf(whole: Uint8Array): Generator<Uint8Array> {
  const head = headOf(whole.subarray(MAGIC.length, SALT_END))
  if (whole.length < HEAD_BYTES || !head.every((byte, i) => whole[i] === byte))
    throw new SealpostError('store_corrupt', 'This file is not a store of this version.')
  for (let at = HEAD_BYTES; at < whole.length; ) {
    const batch = batchAt(whole, at)
    if (!batch) return checkTail(whole, at)
    yield batch
    at += FRAME_HEAD_BYTES + batch.length
  }
}

/** Returns the batch of the frame at `at`; null if the frame is incomplete. Empty batches are never written. */
function batchAt(whole: Uint8Array, at: number): Uint8Array | null {
  const batchAt = at + FRAME_HEAD_BYTES
  if (batchAt >= whole.length) return null
  const view = new DataView(whole.buffer, whole.byteOffset, whole.length)
  const end = batchAt + view.getUint32(at)
  if (end === batchAt || end > whole.length) return null
  const batch = whole.subarray(batchAt, end)
  const salt = whole.subarray(MAGIC.length, SALT_END)
  return sumOf(batch, salt, at) === view.getUint32(at + 4) ? batch : null
}

function checkTail(whole: Uint8Array, brokenAt: number): void {
  const rest = new DataView(whole.buffer, whole.byteOffset, whole.length)
  for (let at = brokenAt + 1; at + FRAME_HEAD_BYTES < whole.length; at++)
    if (rest.getUint32(at) <= SOUGHT_BYTES_MAX && batchAt(whole, at))
      throw new SealpostError('store_corrupt', 'This store is damaged.')
}

/**
 * The size of the head of an encoded change: the lengths of the change and of its bytes (u32, big-endian). The key and
 * the fields as JSON follow, then the bytes.
 */
const CHANGE_HEAD_BYTES = 8
const NO_BYTES = new Uint8Array(0)
const encoder = new TextEncoder()
const decoder = new TextDecoder()

interface StoredChange {
  readonly key: string
  readonly record: StoredRecord | null
}

/** @internal */
export function encodeChange({ key, record }: StoredChange): Uint8Array {
  const { bytes = NO_BYTES, ...fields } = (record ?? {}) as { bytes?: Uint8Array }
  const text = encoder.encode(JSON.stringify({ key, fields: record ? fields : null }))
  const whole = new Uint8Array(CHANGE_HEAD_BYTES + text.length + bytes.length)
  const view = new DataView(whole.buffer)
  view.setUint32(0, text.length)
  view.setUint32(4, bytes.length)
  whole.set(text, CHANGE_HEAD_BYTES)
  whole.set(bytes, CHANGE_HEAD_BYTES + text.length)
  return whole
}

/** Reads changes that `encodeChange` wrote one after another. The caller has verified the checksum. @internal */
export function decodeChanges(batch: Uint8Array): StoredChange[] {
  const view = new DataView(batch.buffer, batch.byteOffset, batch.length)
  const changes: StoredChange[] = []
  for (let at = 0; at < batch.length; ) {
    const bytesAt = at + CHANGE_HEAD_BYTES + view.getUint32(at)
    const end = bytesAt + view.getUint32(at + 4)
    const { key, fields } = JSON.parse(decoder.decode(batch.subarray(at + CHANGE_HEAD_BYTES, bytesAt)))
    // Copy the bytes; a view would keep the whole file in memory.
    const record = end > bytesAt ? { ...fields, bytes: batch.slice(bytesAt, end) } : fields
    changes.push({ key, record: isEmptyBody(record) ? { ...record, bytes: NO_BYTES } : record })
    at = end
  }
  return changes
}

function isEmptyBody(record: StoredRecord | null): boolean {
  return record?.kind === 'waiting' && !record.bytes
}
