/**
 * Encodes heads: the newest state that a peer knows of what it shares with the recipient of a message
 * (docs/adr/0024). They are the field `heads` of a note, in base64url.
 *
 * Bytes: u8 version 1, then for each head u8 kind and lp(fields), in any order. Readers skip kinds that they don't know,
 * and additional bytes after the fields. All numbers are big-endian. Kinds: 1 lane: u8 flag (1: the lane of this message), stream id 16, u64 seq,
 * u64 sentAtMs. 2 group: id 16, u32 epoch, hash 16. 3 pool: id 32, u32 epoch, hash 16. 4 checkpoint: its bytes.
 */
import {
  assert,
  fromBase64url,
  fromHex,
  type GroupId,
  type Millis,
  type PoolId,
  toBase64url,
  toHex,
} from '@sealpost/std'
import { concatBytes, FieldReader, isUnsigned, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { hash256 } from '../sodium.ts'
import type { StreamId } from './inner-header.ts'

export type Head = LaneHead | StatementHead | CheckpointHead

/** The last message of the sender in one lane to the recipient that the broker has acknowledged. */
export interface LaneHead {
  readonly kind: 'lane'
  /** Whether it is the lane of the message that contains this head, so that the recipient must have received it before. */
  readonly isOwnLane: boolean
  readonly streamId: StreamId
  readonly seq: number
  readonly sentAtMs: Millis
}

/** The newest statement of a group or pool that the sender has seen. */
export type StatementHead = { readonly epoch: number; readonly hash: Uint8Array } & (
  | { readonly kind: 'group'; readonly id: GroupId }
  | { readonly kind: 'pool'; readonly id: PoolId }
)

/** The newest checkpoint of the mesh's log that the sender has seen. */
export interface CheckpointHead {
  readonly kind: 'checkpoint'
  readonly bytes: Uint8Array
}

const VERSION = 1
const HASH_BYTES = 16
const STREAM_BYTES = 16
const CHECKPOINT_BYTES_MAX = 150
const KINDS = { lane: 1, group: 2, pool: 3, checkpoint: 4 } as const
/** The maximum size of encoded heads, which leaves room for the rest of the note. */
export const HEADS_BYTES_MAX = 4_096

/** Returns the hash that a head has of a statement: the first 16 bytes of its BLAKE2b-256. */
export const statementHash = (statement: Uint8Array): Uint8Array => hash256(statement).slice(0, HASH_BYTES)

/** @throws AssertionError if the heads exceed `HEADS_BYTES_MAX` or a field has a wrong length */
export function encodeHeads(heads: readonly Head[]): string {
  const parts = heads.flatMap((head) => [Uint8Array.of(KINDS[head.kind]), lengthPrefixed(fieldsOf(head))])
  const bytes = concatBytes([Uint8Array.of(VERSION), ...parts])
  assert(bytes.length <= HEADS_BYTES_MAX, 'heads are short')
  return toBase64url(bytes)
}

/** Reads heads. Returns null if the text is not in this version's form. Never throws. */
export function readHeads(text: string): Head[] | null {
  const bytes = bytesOf(text)
  if (!bytes || bytes.length > HEADS_BYTES_MAX) return null
  const reader = new FieldReader(bytes)
  if (reader.take(1)[0] !== VERSION) return null
  const heads: Head[] = []
  while (!reader.isAtEnd) {
    const [kind] = reader.take(1)
    const length = reader.u16()
    const fields = reader.take(length)
    if (kind === undefined || fields.length !== length) return null // past the end
    const head = headOf(kind, fields)
    if (head) heads.push(head)
  }
  return heads
}

function bytesOf(text: string): Uint8Array | null {
  try {
    return fromBase64url(text)
  } catch {
    return null // not base64url
  }
}

function fieldsOf(head: Head): Uint8Array {
  switch (head.kind) {
    case 'lane': {
      const { isOwnLane, streamId, seq, sentAtMs } = head
      return concatBytes([Uint8Array.of(isOwnLane ? 1 : 0), fromHex(streamId), u64(seq), u64(sentAtMs)])
    }
    case 'group':
    case 'pool':
      return concatBytes([fromHex(head.id), u32(head.epoch), hashField(head.hash)])
    case 'checkpoint':
      assert(head.bytes.length <= CHECKPOINT_BYTES_MAX, 'a checkpoint is short')
      return head.bytes
  }
}

function hashField(hash: Uint8Array): Uint8Array {
  assert(hash.length === HASH_BYTES, 'a head has a hash of 16 bytes')
  return hash
}

const FIELD_BYTES = { lane: 1 + STREAM_BYTES + 8 + 8, group: 16 + 4 + HASH_BYTES, pool: 32 + 4 + HASH_BYTES }

/** Returns null for a kind of a later version, and for a head that has too few bytes or an impossible number. */
function headOf(kind: number, fields: Uint8Array): Head | null {
  const reader = new FieldReader(fields)
  if (kind === KINDS.lane && fields.length >= FIELD_BYTES.lane) return laneOf(reader)
  if (kind === KINDS.group && fields.length >= FIELD_BYTES.group)
    return { kind: 'group', id: toHex(reader.take(16)) as GroupId, epoch: reader.u32(), hash: reader.take(HASH_BYTES) }
  if (kind === KINDS.pool && fields.length >= FIELD_BYTES.pool)
    return { kind: 'pool', id: toHex(reader.take(32)) as PoolId, epoch: reader.u32(), hash: reader.take(HASH_BYTES) }
  const isCheckpoint = kind === KINDS.checkpoint && fields.length <= CHECKPOINT_BYTES_MAX
  return isCheckpoint ? { kind: 'checkpoint', bytes: fields } : null
}

function laneOf(reader: FieldReader): LaneHead | null {
  const isOwnLane = reader.take(1)[0] === 1
  const streamId = toHex(reader.take(STREAM_BYTES)) as StreamId
  const seq = reader.u64()
  const sentAtMs = reader.u64()
  const isPossible = [seq, sentAtMs].every((each) => isUnsigned(each, Number.MAX_SAFE_INTEGER)) && seq > 0
  return isPossible ? { kind: 'lane', isOwnLane, streamId, seq, sentAtMs } : null
}
