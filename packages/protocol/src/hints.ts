/**
 * What shards tell each other, in one table: number, name and fields, as the frames of peers have. A hint may be lost,
 * doubled, late or forged: it makes a shard look, and the database decides.
 */
import type { DeliveryId, GroupId, MeshId, PeerNo, PoolId, ShardId, SpaceId } from '@sealpost/std'
import { Malformed, Reader, Writer } from './cursor.ts'
import { AVAILABILITIES } from './frames.ts'
import { envelopeId, peerKey } from './items.ts'
import { blob, choice, type Field, flag, hex, struct, token, u32, u53 } from './layout.ts'
import { ENVELOPE_BYTES_MIN, SUMMARY_MAX } from './limits.ts'

/** A larger one does not fit a notification of Postgres. */
export const WHISPER_BYTES_MAX = 4096

const meshId = hex<MeshId>(16)
const shardId = hex<ShardId>(16)
const peerNo = u32 as unknown as Field<PeerNo>

const inMesh = { meshId }

/** A number, once given, never changes its meaning: shards of two versions share a bus during an upgrade. */
const kinds = {
  /** Something may wait for this peer, or for this pool. */
  wake: { number: 1, body: struct({ ...inMesh, peer: peerNo }) },
  /** This shard has opened a session of this peer. */
  superseded: { number: 3, body: struct({ ...inMesh, peer: peerNo, epoch: u53 }) },
  /** This member was revoked, or has another key. */
  revoked: { number: 4, body: struct({ ...inMesh, peer: peerNo }) },
  /** Somebody here wants to know who is online in this mesh, for a while. */
  whoIsThere: { number: 5, body: struct(inMesh) },
  /** What this shard has of one peer; a later `moment` of the same epoch counts. */
  presence: {
    number: 6,
    body: struct({
      ...inMesh,
      peer: peerKey,
      epoch: u53,
      moment: u53,
      isOnline: flag,
      availability: choice(AVAILABILITIES),
      summary: token(SUMMARY_MAX),
    }),
  },
  /** For one that is online elsewhere. `user`: for whom its sender writes, by which the recipient lets it in. */
  whisper: {
    number: 7,
    body: struct({
      ...inMesh,
      recipient: peerKey,
      sender: peerKey,
      user: peerNo,
      envelopeId,
      envelope: blob(ENVELOPE_BYTES_MIN, WHISPER_BYTES_MAX),
    }),
  },
  /** Something was changed here that others may have read before. */
  staleConsent: { number: 8, body: struct({ ...inMesh, user: peerNo }) },
  staleGroup: { number: 9, body: struct({ ...inMesh, group: hex<GroupId>(16) }) },
  stalePool: { number: 10, body: struct({ ...inMesh, pool: hex<PoolId>(32) }) },
  /** There is something new in this space: a change of an entry, or a message that is kept. */
  happened: { number: 12, body: struct({ ...inMesh, space: hex<SpaceId>(16) }) },
  /** Its owner has said what it is. */
  staleSpace: { number: 13, body: struct({ ...inMesh, space: hex<SpaceId>(16) }) },
  staleKey: { number: 11, body: struct({ ...inMesh, peer: peerKey }) },
  /** This shard serves this peer under this epoch, or does so no more: others may lease to it at birth. */
  serves: { number: 14, body: struct({ ...inMesh, peer: peerNo, epoch: u53, isOn: flag }) },
  /** Mail for this peer was leased at birth to its session of this epoch; the id is the last one of its block. */
  born: { number: 15, body: struct({ ...inMesh, peer: peerNo, epoch: u53, id: u53 as unknown as Field<DeliveryId> }) },
  /** A shard came or went. */
  shards: { number: 2, body: struct({}) },
}

type Kinds = typeof kinds
type FieldsOf<Name extends keyof Kinds> = Kinds[Name]['body'] extends Field<infer Fields> ? Fields : never
export type HintOf<Name extends keyof Kinds> = { readonly type: Name } & Readonly<FieldsOf<Name>>
export type Hint = { [Name in keyof Kinds]: HintOf<Name> }[keyof Kinds]

/** Hints of one shard that travel together. */
export interface Packet {
  readonly from: ShardId
  readonly hints: readonly Hint[]
}

/** Before everything else in a packet; a shard that reads another one drops it. */
const PACKET_VERSION = 1
export const PACKET_HEADER_BYTES = 17

const byNumber = new Map(Object.entries(kinds).map(([type, { number, body }]) => [number, { type, body }]))
const writer = new Writer()

export function encodePacketHeader(from: ShardId): Uint8Array {
  return written(() => {
    writer.u8(PACKET_VERSION)
    shardId.write(writer, from)
  })
}

/** A packet is its header and so many of these. @throws Malformed for what could not be decoded: a bug of the caller */
export function encodeHint(hint: Hint): Uint8Array {
  return written(() => {
    const { number, body } = kinds[hint.type]
    writer.u8(number)
    ;(body as Field<unknown>).write(writer, hint)
  })
}

/** `null` for anything else than a packet, whole and in order. */
export function decodePacket(bytes: Uint8Array): Packet | null {
  try {
    const reader = new Reader(bytes)
    if (reader.u8() !== PACKET_VERSION) return null
    const from = shardId.read(reader)
    const hints: Hint[] = []
    while (!reader.isAtEnd) hints.push(readHint(reader))
    return { from, hints }
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

function readHint(reader: Reader): Hint {
  const kind = byNumber.get(reader.u8())
  if (!kind) throw new Malformed('unknown hint')
  return { type: kind.type, ...(kind.body as Field<object>).read(reader) } as Hint
}

function written(write: () => void): Uint8Array {
  try {
    write()
    return writer.finish().slice()
  } catch (error) {
    writer.abandon()
    throw error
  }
}
